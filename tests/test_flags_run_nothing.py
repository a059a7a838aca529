"""What is typed on the command line is read as literals, or answered by a sentence; none runs."""

import json
import math
import sys
from contextlib import contextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import spinup
from spinup.cli import train as cli_train
from spinup.experiments import algorithms, flags
from spinup.parts.errors import UserError
from spinup.parts.jsonio import convert_json
from spinup.parts.pytorch.models import check_ac_kwargs
from spinup.parts.settings import check

ALGORITHMS = [getattr(spinup, f"{name}_pytorch") for name in ("ppo", "sac", "trpo")]
PROGRAMS = [
    "__import__('os').system('touch {0}')", "open('{0}', 'w')", "exec(\"open('{0}','w')\")",
    "(lambda: open('{0}', 'w'))()", "[open('{0}', 'w') for _ in '1']", "f\"{{open('{0}', 'w')}}\"",
    "dict(a=open('{0}', 'w'))", "dict(**open('{0}', 'w'))", "dict.__class__.__call__(dict)",
    "(open('{0}', 'w')).name", "dict(a=open('{0}', 'w').name)", "{{**open('{0}', 'w')}}",
    "print(open('{0}', 'w')) or 1", "1 if open('{0}', 'w') else 2", "(x := open('{0}', 'w'))",
    "$(touch {0})", "`touch {0}`", "; touch {0}", "import os", "torch.load('{0}')",
    "torch.nn.Module",
]  # fmt: skip
SPECIAL = (
    {"exec", "import", "open", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen"}
    | {"pickle.find_class", "socket.connect", "os.remove", "shutil.rmtree"}
)  # fmt: skip
heard = None


def listen(event, args):
    if heard is not None and event in SPECIAL:
        if event == "open" and str(args[0]).startswith(("/proc/meminfo", "/sys/fs/cgroup/")):
            return
        heard.append(event)


sys.addaudithook(listen)  # which Python itself tells of all that could do harm


@contextmanager
def nothing_happens():
    """Nothing but a look at how much memory there is."""
    events = []
    globals()["heard"] = events
    try:
        yield
    finally:
        globals()["heard"] = None
    assert events == []


def all_but_train(algorithm, argv, config=None):
    """What the command line does with flags before it touches an environment."""
    grid, run_options = cli_train.grid_of_flags(algorithm, flags.parse(argv), config or {})
    for variant in grid.variants()[:20]:
        assert isinstance(grid.variant_name(variant), str)
        fitted = cli_train.fit_variant(algorithm, config or {}, variant)
        check({key: value for key, value in fitted.items() if key not in flags.LAUNCHER})
        check_ac_kwargs(algorithms.defaults_of(algorithm)["actor_critic"], fitted.get("ac_kwargs"))
        json.dumps(convert_json(fitted))
    return run_options


def test_the_listener_hears(tmp_path):
    with pytest.raises(AssertionError, match="open"), nothing_happens():
        open(tmp_path / "made", "w").close()


known = [*flags.SUBSTITUTIONS, *flags.LAUNCHER, "gamma", "seed", "epochs", "alpha", "algo"]
known += ["device"]
known += ["ac_kwargs", "ac_kwargs:activation", "env_kwargs:a:b", "target_kl", "batch_size"]
names = st.sampled_from(known) | st.text(max_size=8)
brackets = st.sampled_from(["", "", "[h]", "[]", "[", "]", "[a]b", "[[x]]"]) | st.text(max_size=4)
flag_words = st.builds("--{}{}".format, names, brackets)
numbers = st.integers().map(str) | st.floats().map(repr) | st.sampled_from(["1e999", "-0", "0x1f"])
literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
).map(repr)
programs = st.sampled_from([text.format("made") for text in PROGRAMS])
usual = st.sampled_from(["CartPole-v1", "torch.nn.Tanh", "[64,64]", "True", "none", "auto", "npg"])
word = st.text(max_size=12) | numbers | literals | programs | usual | flag_words
wild = st.lists(st.tuples(flag_words, st.lists(word, max_size=3)), max_size=5)
sensible = st.sampled_from(
    [("gamma", "0.9"), ("seed", "3"), ("epochs", "1e1"), ("target_kl", "none"), ("hid", "[8,8]")]
    + [("act", "torch.nn.ELU"), ("dt", "True"), ("jobs", "2"), ("exp_name", "x"), ("cpu", "auto")]
)
more = st.lists(numbers | literals | programs | usual, max_size=1)
tame = st.lists(
    st.builds(lambda pair, more: (f"--{pair[0]}", [pair[1], *more]), sensible, more),
    max_size=4,
    unique_by=lambda flag: flag[0],
).map(lambda line: [("--env", ["A"]), *line])
lines = wild | tame
few = settings(max_examples=400, deadline=None, derandomize=True, database=None)


@few
@given(st.sampled_from(ALGORITHMS), lines)
@example(ALGORITHMS[0], [("--env", ["A"]), ("--gamma", ["9" * 5000])])
@example(ALGORITHMS[0], [("--env", ["A"]), ("--epochs", ["1" + "0" * 400])])
@example(ALGORITHMS[0], [("--env", ["A"]), ("--hid", ["[" * 500 + "]" * 500])])
@example(ALGORITHMS[0], [("--env", ["A"]), ("--hid", ["-" * 5000 + "1"])])
@example(ALGORITHMS[0], [("--env", ["A"]), ("--ac_kwargs", ["{[]: 1}", "dict(a=1, a=2)"])])
@example(ALGORITHMS[0], [("--env", ["\ud800", "\0"]), ("--exp_name", ["\0"])])
def test_any_words_are_settings_or_a_sentence(algorithm, line):
    argv = [text for first, rest in line for text in (first, *rest)]
    with nothing_happens():
        try:
            all_but_train(algorithm, argv)
        except UserError as error:
            assert str(error)


@few
@given(lines)
def test_the_command_line_ends_in_a_sentence_or_in_help(line):
    """The whole of it, with an algorithm whose environment is never there."""
    argv = ["ppo", *(text for first, rest in line for text in (first, *rest))]
    argv = [word for word in argv if not word.startswith(("--env", "--dt", "--data"))]
    try:
        spinup_main([*argv, "--env", "Nothing-v0"])
    except SystemExit as ended:
        assert ended.code == 2


def spinup_main(argv):
    from spinup.parts.report_errors import report_errors

    report_errors(lambda: cli_train.train_from_flags(lambda: ALGORITHMS[0], argv[1:]))


@pytest.mark.parametrize("flag", ["gamma", "seed", "hid", "act", "ac_kwargs:normalize", "exp_name"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_is_run(flag, program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with nothing_happens():
        try:
            all_but_train(ALGORITHMS[0], ["--env", "A", f"--{flag}", program.format("made")])
        except UserError:
            assert flag != "exp_name"
    assert list(tmp_path.iterdir()) == []


@few
@given(st.text(max_size=20) | numbers | literals | programs)
def test_a_text_is_its_literal_or_itself(text):
    with nothing_happens():
        found = flags.literal(text)
    if isinstance(found, float) and math.isnan(found):
        return
    assert found == text or text.strip().startswith("dict(") or isinstance(found, type(read(text)))


def read(text):
    import ast

    text = text.capitalize() if text.lower() in ("true", "false", "none") else text
    return ast.literal_eval(text.strip())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("-1", -1), ("[64,64]", [64, 64]), ("(32,)", (32,)), ("true", True),
        ("NONE", None), ("CartPole-v1", "CartPole-v1"), ("torch.nn.ELU", "torch.nn.ELU"),
        ("'1'", "1"), ("{'a': [1]}", {"a": [1]}), ("dict(a=dict(b='x'))", {"a": {"b": "x"}}),
        ("dict(activation=torch.nn.ELU)", {"activation": "torch.nn.ELU"}),
        ("dict(1)", "dict(1)"), ("list(1)", "list(1)"), ("set(a=1)", "set(a=1)"),
        ("1+1", "1+1"), ("", ""), ("nan", "nan"),
    ],
)  # fmt: skip
def test_literals(text, value):
    assert flags.literal(text) == value
    assert type(flags.literal(text)) is type(value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", dict(num_cpu=1, data_dir=None, datestamp=False, jobs=1, ray_address=None)),
        ("--cpu auto --dt --jobs 3", dict(num_cpu="auto", datestamp=True, jobs=3)),
        ("--num_cpu 2 --datestamp --data_dir 7", dict(num_cpu=2, datestamp=True, data_dir="7")),
        ("--ray", dict(ray_address="local")),
        ("--ray-address 10.0.0.1:6379", dict(ray_address="10.0.0.1:6379")),
        ("--ray --ray_address host:1 --overwrite", dict(ray_address="host:1", overwrite=True)),
    ],
)
def test_what_is_said_once_holds_for_all_runs(line, expected):
    run_options = all_but_train(ALGORITHMS[0], ["--env", "A", "--seed", "0", "1", *line.split()])
    assert expected.items() <= run_options.items()


@pytest.mark.parametrize(
    ("typed", "apart"),
    [
        ("--gamma=0.9", "--gamma 0.9"),
        ("--hid[h]=[8,8] [4]", "--hid[h] [8,8] [4]"),
        ("--exp_name=a=b", "--exp_name a=b"),
        ("--env_kwargs:gravity=9.8", "--env_kwargs:gravity 9.8"),
        ("--seed=1 2 --dt", "--seed 1 2 --dt"),
    ],
)
def test_a_value_may_stand_behind_an_equals_sign(typed, apart):
    assert flags.parse(typed.split()) == flags.parse(apart.split())


def test_flags_are_over_a_config():
    config = dict(env_name="A", gamma=0.5, exp_name="of_file", num_cpu=3, ac_kwargs=dict(x=1, y=2))
    given = flags.parse(["--gamma", "0.7", "0.8", "--ac_kwargs:y", "3"])
    grid, run_options = cli_train.grid_of_flags(ALGORITHMS[0], given, config)
    names = [grid.variant_name(variant) for variant in grid.variants()]
    assert names == ["of_file_gam0-7", "of_file_gam0-8"] and run_options["num_cpu"] == 3
    fitted = [cli_train.fit_variant(ALGORITHMS[0], config, v) for v in grid.variants()]
    rest = dict(env_name="A", ac_kwargs=dict(x=1, y=3))
    assert fitted == [rest | dict(gamma=0.7), rest | dict(gamma=0.8)]


@pytest.mark.parametrize("typed", ["True", "1.50", "0x10", "{'A': 1}"])
def test_what_is_no_string_is_not_made_one(typed):
    """Else `--tag 1.50` would be the tag 1.5."""

    def tagged(env_fn, tag="Abc"): ...

    with pytest.raises(UserError, match="--tag must be a string; put it in quotes twice"):
        flags.fit(tagged, dict(tag=flags.literal(typed)))
    assert flags.fit(tagged, dict(tag=flags.literal(repr(typed)))) == dict(tag=typed)


def test_an_infinite_time_limit_is_a_number():
    assert flags.fit(spinup.ppo_pytorch, dict(max_ep_len="inf")) == dict(max_ep_len=math.inf)
