"""Wrong input gets one or two sentences, exit code 2, no traceback, and nothing is lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spinup.run import main

QUICK = "--env CartPole-v1 --epochs 1 --steps_per_epoch 64 --train_pi_iters 1 --train_v_iters 1"


def spinup(*words, expect=None):
    """Run the command line here; gives nothing, or raises if it ends otherwise than expected."""
    try:
        main([str(word) for word in words])
        code = 0
    except SystemExit as ended:
        code = ended.code
    assert code == (0 if expect is None else expect)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("spinup.user_config.DEFAULT_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


WRONG = {
    "unknown command": ("pop", "Did you mean 'ppo'"),
    "unknown flag": (f"ppo {QUICK} --gama 0.9", "no setting called 'gama'. Did you mean 'gamma'?"),
    "text for an integer": ("ppo --env CartPole-v1 --epochs ten", "must be a number such as 50"),
    "fraction for an integer": ("ppo --env CartPole-v1 --epochs 2.5", "epochs must be an"),
    "no epochs": ("ppo --env CartPole-v1 --epochs 0", "epochs must be an integer from 1 up"),
    "gamma above one": (f"ppo {QUICK} --gamma 1.5", "gamma must be a number from 0 to 1"),
    "negative learning rate": (f"ppo {QUICK} --pi_lr -1", "pi_lr must be a number from 0 up"),
    "a number beyond 64 bits": (f"ppo {QUICK} --clip_ratio {2**64}", "is too large to compute"),
    "a misspelt word for a number": ("sac --env Pendulum-v1 --alpha atuo", "0.2 or 'auto', not"),
    "a name that leads elsewhere": (f"ppo {QUICK} --exp_name ../../x", "leads out of the folder"),
    "an absolute name": (f"ppo {QUICK} --exp_name /tmp/x", "leads out of the folder"),
    "an argument that fails in a step": (
        "sac --env Pendulum-v1 --env_kwargs:g é", "Pendulum-v1 does not take these env_kwargs",
    ),
    "no number": (f"ppo {QUICK} --pi_lr nan", "pi_lr must be a number"),
    "no processes": (f"ppo {QUICK} --cpu 0", "num_cpu must be an integer from 1 up"),
    "truth as text": ("dqn --env CartPole-v1 --double_q maybe", "must be True or False"),
    "wrong word for alpha": ("sac --env Pendulum-v1 --alpha atuo", "alpha must be a number"),
    "no step to look ahead": ("dqn --env CartPole-v1 --n_step 0", "n_step must be an integer"),
    "weights beyond full": ("dqn --env CartPole-v1 --importance_exponent 2", "from 0 to 1"),
    "wrong word for a choice": ("reinforce --env CartPole-v1 --baseline mean",
                                "baseline must be 'none', 'average' or 'value', not 'mean'"),
    "number for a choice": ("reinforce --env CartPole-v1 --baseline 3", "not '3'"),
    "no word for a choice": ("reinforce --env CartPole-v1 --baseline", "'average' or 'value'"),
    "unknown variant of trpo": ("trpo --env CartPole-v1 --algo pgn", "must be 'trpo' or 'npg'"),
    "number for a word": ("trpo --env CartPole-v1 --algo 3", "'npg', not '3'"),
    "trust region of negative size": ("trpo --env CartPole-v1 --delta -1", "delta must be a"),
    "step that grows": ("trpo --env CartPole-v1 --backtrack_coeff 1.1", "a number from 0 to 1"),
    "no attempts": ("trpo --env CartPole-v1 --backtrack_iters 0", "integer from 1 up"),
    "images without an encoder": ("trpo --env ALE/Pong-v5", "Use ppo or dqn"),
    "empty layers": (f"ppo {QUICK} --hid []", "hidden_sizes must be integers"),
    "negative layers": (f"ppo {QUICK} --hid [64,-1]", "hidden_sizes must be integers"),
    "unknown activation": (f"ppo {QUICK} --act torch.nn.Tnah", "Did you mean 'Tanh'"),
    "activation that is code": (f"ppo {QUICK} --act __import__('os').getcwd()", "not an activ"),
    "unknown network setting": (f"ppo {QUICK} --ac_kwargs:width 3", "no setting 'width'"),
    "truth as text in a network": (f"ppo {QUICK} --ac_kwargs:normalize maybe", "True or False"),
    "no environment": ("ppo --epochs 1", "--env CartPole-v1"),
    "mistyped environment": ("ppo --env CartPol-v1", "'CartPole-v1'"),
    "mistyped game": ("dqn --env ALE/Pnog-v5", "Did you mean 'ALE/Pong-v5'"),
    "game without its maker": ("ppo --env Pong-v5", "Did you mean ALE/Pong-v5"),
    "retired environment": ("sac --env HalfCheetah-v2", "HalfCheetah-v5"),
    "package that is not there": ("ppo --env nopackage:Thing-v0", "nopackage"),
    "wrong environment argument": (f"ppo {QUICK} --env_kwargs:wind 3", "env_kwargs"),
    "ddpg, discrete actions": ("ddpg --env CartPole-v1", "use dqn or ppo"),
    "td3, discrete actions": ("td3 --env CartPole-v1", "use dqn or ppo"),
    "negative noise": ("ddpg --env Pendulum-v1 --act_noise -1", "act_noise must be a number"),
    "negative target noise": ("td3 --env Pendulum-v1 --target_noise -1", "target_noise must be"),
    "noise cut below zero": ("td3 --env Pendulum-v1 --noise_clip -1", "noise_clip must be a"),
    "no delay": ("td3 --env Pendulum-v1 --policy_delay 0", "policy_delay must be an integer"),
    "wrong argument for a game": ("dqn --env ALE/Pong-v5 --env_kwargs:wind 3", "env_kwargs"),
    "images normalised": (
        "ppo --env ALE/Pong-v5 --ac_kwargs:normalize True", "scaled anyway; leave normalize away"
    ),
    "discrete algorithm, continuous actions": ("dqn --env Pendulum-v1", "use sac or ppo"),
    "acer, continuous actions": ("acer --env Pendulum-v1", "use sac or ppo"),
    "average that learns": ("acer --env CartPole-v1 --alpha auto", "alpha must be a number"),
    "average that runs away": ("acer --env CartPole-v1 --alpha 1.5", "a number from 0 to 1, not"),
    "negative weight": ("acer --env CartPole-v1 --c -1", "c must be a number from 0 up"),
    "memory below a segment": ("acer --env CartPole-v1 --replay_size 19", "replay_size is 19, but"),
    "hindsight without goals": ("her --env CartPole-v1", "use sac, td3 or dqn for others"),
    "hindsight by dqn, continuous actions": (
        "her --env spinup/Reach-v0 --method dqn", "Use method td3 or ddpg"
    ),
    "hindsight by td3, discrete": ("her --env spinup/BitFlip-v0 --method td3", "Use method dqn"),
    "hindsight by nobody": ("her --env spinup/BitFlip-v0 --method dqm", "'ddpg' or 'dqn', not"),
    "unknown strategy": ("her --env spinup/BitFlip-v0 --strategy last", "or 'episode', not"),
    "negative k": ("her --env spinup/BitFlip-v0 --k -1", "k must be an integer from 0 up"),
    "too many random actions": ("her --env spinup/BitFlip-v0 --random_eps 2", "from 0 to 1"),
    "mistyped environment of ours": ("her --env spinup/BitFlop-v0", "spinup/BitFlip-v0"),
    "value without flag": ("ppo CartPole-v1", "belongs to no flag"),
    "flag twice": ("ppo --env CartPole-v1 --env CartPole-v1", "there twice"),
    "two names": (f"ppo {QUICK} --exp_name a b", "--exp_name has 2 values, but takes one"),
    "two folders": (f"ppo {QUICK} --data_dir a b", "--data_dir has 2 values"),
    "two numbers of processes": (f"ppo {QUICK} --cpu 1 2", "--num_cpu has 2 values"),
    "two dates": (f"ppo {QUICK} --dt True False", "--datestamp has 2 values"),
    "no name": (f"ppo {QUICK} --exp_name", "--exp_name needs a value"),
    "no folder": (f"ppo {QUICK} --data_dir --seed 1 2", "--data_dir needs a value"),
    "no environment behind the flag": ("ppo --env --seed 1 2", "--env_name needs a value"),
    "no seed": (f"ppo {QUICK} --seed", "seed must be an integer from 0"),
    "no jobs": (f"ppo {QUICK} --jobs 0", "jobs must be an integer from 1 up"),
    "no jobs for a grid": (f"ppo {QUICK} --seed 1 2 --jobs 0", "jobs must be an integer from 1"),
    "half a job": (f"ppo {QUICK} --seed 1 2 --jobs 0.5", "jobs must be an integer from 1 up"),
    "many jobs": (f"ppo {QUICK} --seed 1 2 --jobs many", "--jobs must be a number such as 1"),
    "no processes for a grid": (f"ppo {QUICK} --seed 1 2 --cpu 0", "num_cpu must be an integer"),
    "few processes": (f"ppo {QUICK} --cpu few", "--num_cpu must be a number"),
    "no address": (f"ppo {QUICK} --ray-address", "--ray_address needs a value: HOST:PORT"),
    "half an address": (f"ppo {QUICK} --ray-address here", "must be HOST:PORT"),
    "unknown flag of a grid": (f"ppo {QUICK} --seed 1 2 --gama 0.9 1", "Did you mean 'gamma'?"),
    "wrong value among others": (f"ppo {QUICK} --gamma 0.8 0.9 1.5", "from 0 to 1, not 1.5"),
    "wrong kind among others": (f"ppo {QUICK} --gamma 0.8 0.9 high", "must be a number such as"),
    "wrong seed among others": (f"ppo {QUICK} --seed 0 1 -1", "seed must be an integer from 0"),
    "mistyped environment among others": ("ppo --env CartPole-v1 CartPol-v1", "'CartPole-v1'"),
    "retired environment among others": ("sac --env Pendulum-v1 Ant-v2 --seed 0 1", "Ant-v5"),
    "mistyped activation among others": (f"ppo {QUICK} --act Tanh torch.nn.Tnah", "mean 'Tanh'"),
    "activation of another library": (f"ppo {QUICK} --act tf.nn.tanh tf.nn.relu", "mean 'Tanh'"),
    "empty layers among others": (f"ppo {QUICK} --hid [8] []", "hidden_sizes must be integers"),
    "unknown setting of networks": (f"ppo {QUICK} --ac_kwargs:width 3 4", "no setting 'width'"),
    "wrong arguments of environments": (f"ppo {QUICK} --env_kwargs:wind 3 4", "env_kwargs"),
    "contradiction in a grid": (f"ppo {QUICK} --ac_kwargs 3 4 --hid [8] [9]", "contradicts"),
    "two variants, one folder": (f"ppo {QUICK} --hid 8 [8]", "Two variants would be kept in"),
    "open bracket": (f"ppo {QUICK} --hid[h [8] [9]", "'--hid[h' is no flag"),
    "text behind a bracket": (f"ppo {QUICK} --hid[h]x [8]", "is no flag: a shorthand"),
    "path as a short name": (f"ppo {QUICK} --hid[../h] [8] [9]", "is no flag: a shorthand"),
    "no name of a flag": (f"ppo {QUICK} -- 3", "a flag has a name"),
    "no name in a dict": (f"ppo {QUICK} --ac_kwargs: 3", "a flag has a name"),
    "nothing after an equals sign": (f"ppo {QUICK} --gamma=", "--gamma must be a number such as"),
    "equals sign without a flag": (f"ppo {QUICK} --=0.9", "a flag has a name"),
    "short and long flag": ("ppo --env CartPole-v1 --env_name CartPole-v1", "there twice"),
    "flag twice, in a grid": (f"ppo {QUICK} --gamma 0.9 --gamma 1", "--gamma is there twice"),
    "unknown backend": (f"ppo_jax {QUICK}", "Did you mean"),
    "package without a name": ("ppo --env :CartPole-v1 .x:CartPole-v1", "is no environment's name"),
    "dict as a number": (f"ppo {QUICK} --ac_kwargs 3", "ac_kwargs"),
    "setting inside a number": (f"ppo {QUICK} --gamma:x 3", "only ac_kwargs and env_kwargs"),
    "contradiction": (f"ppo {QUICK} --ac_kwargs 3 --hid [8]", "contradicts"),
    "script's own setting": (f"ppo {QUICK} --resume True", "in a script"),
    "device that is not there": (f"ppo {QUICK} --device cuda:7", "device"),
    "device that is none": (f"ppo {QUICK} --device gpu", "device='cpu' always works"),
    "too few steps": (f"ppo {QUICK} --num_envs 65", "steps_per_epoch is 64"),
    "negative seed": (f"ppo {QUICK} --seed -1", "seed must be an integer from 0"),
    "resume nothing": ("resume nowhere", "no folder nowhere"),
    "watch nothing": ("watch nowhere", "no folder nowhere"),
    "plot nothing": ("plot nowhere", "nowhere"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_words(case, folder, capsys):
    words, expected = WRONG[case]
    spinup(*words.split(), expect=2)
    error = capsys.readouterr().err
    assert expected in error
    assert error.startswith("spinup: ")
    assert "Traceback" not in error
    assert len(error) < 500
    assert not list(folder.glob("data/**/progress.txt"))  # it did not begin


def test_a_word_that_reads_like_nothing_is_a_word(folder):
    small = ("--env", "CartPole-v1", "--epochs", 1, "--steps_per_epoch", 64)
    spinup("reinforce", *small, "--baseline", "none")
    config = json.loads((run_folder(folder, "cmd_reinforce_pytorch") / "config.json").read_text())
    assert config["baseline"] == "none"


def test_a_grid_that_cannot_be_written(folder, capsys):
    (folder / "file").write_text("in the way")
    spinup("ppo", *QUICK.split(), "--seed", 1, 2, "--data_dir", folder / "file", expect=2)
    assert capsys.readouterr().err.count("Cannot write to") == 1
    assert (folder / "file").read_text() == "in the way"


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_name_no_folder_can_have(seeds, folder, capsys):
    spinup("ppo", *QUICK.split(), "--exp_name", "x" * 300, "--seed", *seeds, expect=2)
    assert "(File name too long)" in capsys.readouterr().err
    assert not list(folder.glob("data/**/progress.txt"))


def test_a_grid_with_other_settings_is_refused_with_the_difference(folder, capsys):
    spinup("ppo", *QUICK.split())
    before = files(run_folder(folder))
    spinup("ppo", *QUICK.split(), "--seed", 0, 0, "--gamma", 0.9, expect=2)
    assert "gamma is 0.99 there, 0.9 here" in capsys.readouterr().err
    assert files(run_folder(folder)) == before


def test_a_grid_under_mpiexec_says_how_to_do_it():
    from spinup.parts.mpi import mpiexec

    words = f"-m spinup.run ppo {QUICK} --seed 1 2".split()
    ended = subprocess.run(
        [mpiexec(), "-n", "2", sys.executable, *words],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2
    assert ended.stderr.count("num_cpu instead of mpiexec") == 1
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("words", ["--help", "-h", "help", "--seed 1 2 --help"])
def test_help_tells_of_grids(words, capsys):
    spinup("ppo", *words.split())
    shown = capsys.readouterr().out
    for word in ("'--hid[h]' '[32]' '[64,64]'", "--jobs", "--ray", "--ray-address", "--overwrite"):
        assert word in shown
    spinup("help")
    shown = capsys.readouterr().out
    for word in ("spinup ALGO --seed 0 1 2", "--jobs N", "--ray-address HOST:PORT"):
        assert word in shown


def test_argparse_mistakes_end_with_2_as_well(folder, capsys):
    for words in ("resume", "watch x --episodes many", "plot x --band wide"):
        spinup(*words.split(), expect=2)
        assert "Traceback" not in capsys.readouterr().err


def run_folder(folder, name="cmd_ppo_pytorch"):
    return folder / "data" / name / f"{name}_s0"


def files(folder):
    return {p: p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def test_the_same_command_leaves_a_finished_run_alone(folder, capsys):
    spinup("ppo", *QUICK.split())
    before = files(run_folder(folder))
    spinup("ppo", *QUICK.split())
    assert "is finished: 1 epochs are done" in capsys.readouterr().out
    assert files(run_folder(folder)) == before
    spinup("resume", run_folder(folder))
    assert "is finished" in capsys.readouterr().out
    assert files(run_folder(folder)) == before


def test_other_settings_for_the_same_folder_are_refused(folder, capsys):
    spinup("ppo", *QUICK.split())
    before = files(run_folder(folder))
    spinup("ppo", *QUICK.split(), "--gamma", 0.9, "--hid", "[8]", "--num_envs", 2, expect=2)
    error = capsys.readouterr().err
    for difference in ("gamma is 0.99 there, 0.9 here", "hidden_sizes", "num_envs is 1 there"):
        assert difference in error
    spinup("dqn", *QUICK.split()[:6], "--exp_name", "cmd_ppo_pytorch", expect=2)
    assert "algorithm is 'ppo_pytorch' there, 'dqn_pytorch' here" in capsys.readouterr().err
    assert files(run_folder(folder)) == before


def test_overwrite_starts_over(folder, capsys):
    spinup("ppo", *QUICK.split())
    spinup("ppo", *QUICK.split(), "--gamma", 0.9, "--overwrite")
    assert json.loads((run_folder(folder) / "config.json").read_text())["gamma"] == 0.9
    assert (run_folder(folder) / "progress.txt").read_text().count("\n") == 2


def test_a_larger_number_of_epochs_extends_a_run(folder, capsys):
    spinup("ppo", *QUICK.split())
    spinup("resume", run_folder(folder), "--epochs", 3)
    spinup("ppo", *QUICK.replace("--epochs 1", "--epochs 4").split())
    whole = QUICK.replace("--epochs 1", "--epochs 4").split()
    spinup("ppo", *whole, "--exp_name", "whole")
    tables = [
        (run_folder(folder, name) / "progress.txt").read_text().splitlines()
        for name in ("cmd_ppo_pytorch", "whole")
    ]
    time = tables[0][0].split("\t").index("Time")
    extended, unbroken = ([r.split("\t")[:time] for r in table] for table in tables)
    assert extended == unbroken
    assert len(extended) == 5


def test_a_folder_that_cannot_be_written(folder, capsys):
    (folder / "file").write_text("in the way")
    spinup("ppo", *QUICK.split(), "--data_dir", folder / "file", expect=2)
    assert "Cannot write to" in capsys.readouterr().err
    assert (folder / "file").read_text() == "in the way"


def test_a_run_of_another_library_is_not_touched(folder, capsys):
    run_folder(folder).mkdir(parents=True)
    (run_folder(folder) / "progress.txt").write_text("Epoch\tAverageEpRet\n0\t1\n1\t2\n")
    before = files(run_folder(folder))
    spinup("ppo", *QUICK.split(), expect=2)
    assert "no checkpoint" in capsys.readouterr().err
    after = {path: data for path, data in files(run_folder(folder)).items() if path.name != ".lock"}
    assert after == before


def test_a_script_moves_the_older_run_aside(folder, capsys):
    from spinup import ppo_pytorch
    from spinup.parts.make_env import EnvMaker

    settings = dict(steps_per_epoch=64, epochs=1, train_pi_iters=1, train_v_iters=1)
    where = dict(output_dir=str(folder / "run"))
    ppo_pytorch(EnvMaker("CartPole-v1"), logger_kwargs=where, **settings)
    first = (folder / "run" / "progress.txt").read_bytes()
    ppo_pytorch(EnvMaker("CartPole-v1"), logger_kwargs=where, seed=1, **settings)
    assert "older_runs/1" in capsys.readouterr().out
    assert (folder / "run" / "older_runs" / "1" / "progress.txt").read_bytes() == first
    assert (folder / "run" / "progress.txt").read_bytes() != first


def test_two_processes_cannot_train_in_one_folder(folder, capsys):
    spinup("ppo", *QUICK.split())
    where = run_folder(folder)
    hold = f"lock({str(where)!r}); print('held', flush=True); input()"
    hold = f"from spinup.parts.run_lock import lock; {hold}"
    other = subprocess.Popen(
        [sys.executable, "-c", hold],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    assert other.stdout.readline() == b"held\n"
    spinup("resume", where, "--epochs", 2, expect=2)
    other.communicate(b"\n")
    assert "Another process is training" in capsys.readouterr().err


def test_without_mpi_more_processes_say_what_to_install(folder):
    program = (
        "import sys; sys.modules['mpi4py'] = None; from spinup.run import main; "
        f"main('ppo {QUICK} --cpu 2'.split())"
    )
    repository = Path(__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=repository, capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert "pip install mpi4py mpich" in ended.stderr
    one = program.replace(" --cpu 2", f" --data_dir {folder}")
    ended = subprocess.run(
        [sys.executable, "-c", one], cwd=repository, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def test_help_shows_every_setting(capsys):
    import inspect

    from spinup import sac_pytorch

    spinup("sac", "--help")
    shown = capsys.readouterr().out
    for name, parameter in inspect.signature(sac_pytorch).parameters.items():
        if name in ("env_fn", "actor_critic", "logger_kwargs", "resume"):
            continue
        (line,) = [row for row in shown.splitlines() if row.startswith(f"  --{name} ")]
        assert len(line.split()) > 3
        assert parameter.default is None or str(parameter.default) in line
