"""Runs of one name whose settings differ are several experiments, named by what differs."""

import json

import pytest

import spinup
from spinup.parts.make_env import EnvMaker
from spinup.parts.settings import what_differs
from spinup.results import compare, curves, tables


def write_run(folder, config, returns=(1.0, 2.0)):
    folder.mkdir(parents=True)
    rows = [f"{i}\t{value}\t{(i + 1) * 100}" for i, value in enumerate(returns)]
    table = "\n".join(["Epoch\tAverageEpRet\tTotalEnvInteracts", *rows]) + "\n"
    (folder / "progress.txt").write_text(table)
    (folder / "config.json").write_text(json.dumps(config))


def lines(runs):
    return list(dict.fromkeys(name for run in runs for name in run["Condition1"]))


def rows(runs, **settings):
    found = compare.compare(runs, **settings).results
    return {(r.environment, r.experiment): r.seeds for r in found}


def test_real_runs_are_told_apart_by_what_they_were_started_with(tmp_path):
    def train(folder, seed, **settings):
        small = dict(
            steps_per_epoch=60, epochs=1, train_v_iters=1, ac_kwargs=dict(hidden_sizes=[4])
        )
        where = dict(output_dir=str(tmp_path / folder), exp_name="x")
        spinup.vpg_pytorch(
            EnvMaker("CartPole-v1"), seed=seed, logger_kwargs=where, **small | settings
        )

    train("one", 0)
    train("two", 1, epochs=2, save_freq=3)  # none of which changes a number
    assert lines(tables.get_all_datasets([tmp_path])) == ["x"]
    train("three", 0, pi_lr=0.5, ac_kwargs=dict(hidden_sizes=[8]))
    names = [f"x (ac_kwargs:hidden_sizes [{n}], pi_lr {lr})" for n, lr in ((4, 0.0003), (8, 0.5))]
    runs = tables.get_all_datasets([tmp_path])
    assert sorted(lines(runs)) == names
    assert rows(runs) == {("CartPole-v1", names[0]): 2, ("CartPole-v1", names[1]): 1}
    titled = tables.get_all_datasets([tmp_path], legend=["mine"])
    assert sorted(lines(titled)) == [name.replace("x (", "mine (") for name in names]


def config(env="A-v0", **settings):
    return dict(exp_name="x", algorithm="ppo_pytorch", environment=dict(id=env)) | settings


def test_environments_are_curves_of_their_own(tmp_path):
    for i, env in enumerate(["A-v0", "A-v0", "B-v0"]):
        write_run(tmp_path / f"x_s{i}", config(env, seed=i, lr=0.1))
    runs = tables.get_all_datasets([tmp_path])
    assert lines(runs) == ["x (environment A-v0)", "x (environment B-v0)"]
    assert rows(runs) == {("A-v0", "x"): 2, ("B-v0", "x"): 1}
    assert rows(runs, pool=True) == {("2 environments", "x"): 1}


def test_pooled_environments_must_have_the_same_settings(tmp_path):
    write_run(tmp_path / "x_s0", config("A-v0", seed=0, lr=0.1))
    write_run(tmp_path / "x_s1", config("B-v0", seed=1, lr=0.2))
    runs = tables.get_all_datasets([tmp_path])
    assert rows(runs) == {("A-v0", "x"): 1, ("B-v0", "x"): 1}  # each by itself is one experiment
    assert rows(runs, pool=True) == {("A-v0", "x (lr 0.1)"): 1, ("B-v0", "x (lr 0.2)"): 1}


@pytest.mark.parametrize(
    "one, other, expected",
    [
        (dict(lr=1), dict(lr=1.0), ["", ""]),
        (dict(lr=0.1), dict(lr=0.2), ["lr 0.1", "lr 0.2"]),
        (dict(lr=0.1, ent_coef=0.0), dict(lr=0.1), ["", ""]),  # an older version knew no ent_coef
        (dict(ac_kwargs={}), dict(ac_kwargs=None), ["", ""]),
        (
            dict(ac_kwargs=None),
            dict(ac_kwargs=dict(h=[8])),
            ["ac_kwargs:h default", "ac_kwargs:h [8]"],
        ),
        (dict(max_ep_len=None), dict(max_ep_len=5), ["max_ep_len null", "max_ep_len 5"]),
        (dict(f="<function f at 0x7f01>"), dict(f="<function f at 0x7f02>"), ["", ""]),
        (dict(f=1), dict(f="1"), ["f 1", 'f "1"']),
        (dict(num_procs=1), dict(num_procs=2), ["num_procs 1", "num_procs 2"]),
        (
            dict(environment=dict(kwargs=dict(g=1))),
            dict(environment=dict(kwargs={})),
            ["environment:kwargs:g 1", "environment:kwargs:g default"],
        ),
    ],
)
def test_what_makes_a_difference(one, other, expected):
    assert what_differs([one, other]) == expected


def test_a_run_that_does_not_tell_stands_apart_where_others_differ():
    found = what_differs([dict(lr=0.1), dict(lr=0.2), {}])
    assert found == ["lr 0.1", "lr 0.2", "lr unknown"]


def test_runs_of_the_original_library_are_pooled_over_seeds(tmp_path):
    for seed in range(3):
        address = f"<spinup.utils.logx.EpochLogger object at 0x7f{seed}00>"
        original = dict(
            ac_kwargs=dict(hidden_sizes=[64, 64]),
            actor_critic="MLPActorCritic",
            clip_ratio=0.2,
            env_fn=f"<function <lambda> at 0x7f{seed}10>",
            epochs=50,
            exp_name="x",
            gamma=0.99,
            logger={address: dict(epoch_dict={}, exp_name="x", output_dir=f"/x_s{seed}")},
            logger_kwargs=dict(exp_name="x", output_dir=f"/x_s{seed}"),
            seed=seed,
        )
        write_run(tmp_path / f"x_s{seed}", original)
    write_run(tmp_path / "x_s3", dict(original, seed=3, gamma=0.9))
    runs = tables.get_all_datasets([tmp_path])
    assert lines(runs) == ["x (gamma 0.99)", "x (gamma 0.9)"]
    assert rows(runs) == {(None, "x (gamma 0.99)"): 3, (None, "x (gamma 0.9)"): 1}


@pytest.mark.parametrize(
    "one, other, unknown",
    [
        (dict(lr=0.1, ent_coef=0.0), dict(lr=0.1), "ent_coef"),
        (dict(f="<function f at 0x7f01>"), dict(f="<function f at 0x7f02>"), "f"),
        (dict(schedule="<lambda>"), dict(schedule="<lambda>"), "schedule"),
        (dict(lr=0.1), dict(lr=0.1), None),
    ],
)
def test_what_cannot_be_known_is_said(one, other, unknown, tmp_path, capsys):
    """Runs whose files say too little are taken together, and a sentence says what is unknown."""
    for i, settings in enumerate((one, other)):
        write_run(tmp_path / f"x_s{i}", config(seed=i, **settings))
    runs = tables.get_all_datasets([tmp_path])
    assert rows(runs) == {("A-v0", "x"): 2}
    sentence = f"Not every config.json of x says what {unknown} was"
    told = [text for text in compare.compare(runs).warnings if "says what" in text]
    assert [text.startswith(sentence) for text in told] == [True] * (unknown is not None)
    curves.make_plots([str(tmp_path)], output=tmp_path / "x.png")
    assert (sentence in capsys.readouterr().err.replace("\n", " ")) is (unknown is not None)
