"""The logger writes exact tables and statistics, loses nothing, and takes any settings."""

import dataclasses
import enum
import functools
import json
import math
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spinup.parts.errors import UserError
from spinup.parts.jsonio import convert_json, read_json, write_json
from spinup.parts.logger import EpochLogger, Logger, colorize
from spinup.parts.mpi import mpi_statistics_scalar

# --- The table ---


def table(logger):
    return (Path(logger.output_dir) / logger.output_fname).read_bytes()


def test_the_table_byte_for_byte(tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    for epoch, returns in enumerate([(1, 2, 3, 6), (5.5,)]):
        for value in returns:
            logger.store(EpRet=value, EpLen=2 * value)
        logger.log_tabular("Epoch", epoch)
        logger.log_tabular("EpRet", with_min_and_max=True)
        logger.log_tabular("EpLen", average_only=True)
        logger.log_tabular("Note", "as is")
        logger.dump_tabular()
    # Mean 3, squared deviations 4 + 1 + 0 + 9 = 14, divided by 4.
    assert table(logger) == (
        b"Epoch\tAverageEpRet\tStdEpRet\tMaxEpRet\tMinEpRet\tEpLen\tNote\n"
        + f"0\t3.0\t{math.sqrt(3.5)}\t6.0\t1.0\t6.0\tas is\n".encode()
        + b"1\t5.5\t0.0\t5.5\t5.5\t11.0\tas is\n"
    )


def test_a_row_named_by_its_columns_is_the_same_row(tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    logger.store(R=1.0, L=4)
    logger.store(R=2.0, L=5)
    logger.dump_epoch("Epoch R* L Time", Epoch=7, Time=0.25)
    assert table(logger) == (
        b"Epoch\tAverageR\tStdR\tMaxR\tMinR\tL\tTime\n7\t1.5\t0.5\t2.0\t1.0\t4.5\t0.25\n"
    )


def test_mean_and_deviation_without_the_extremes(tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    logger.store(R=[1.0, 3.0])
    logger.log_tabular("R")
    logger.dump_tabular()
    assert table(logger) == b"AverageR\tStdR\n2.0\t1.0\n"


def test_each_row_counts_only_its_own_epoch(tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    for values in ([1.0, 2.0], [], [10.0]):
        for value in values:
            logger.store(R=value)
        logger.dump_epoch("R")
    assert table(logger) == b"R\n1.5\nnan\n10.0\n"


def test_nothing_stored_is_not_a_number(tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    logger.dump_epoch("R* L")
    assert table(logger).splitlines()[1] == b"nan\tnan\tnan\tnan\tnan"
    assert all(math.isnan(value) for value in logger.get_stats("R"))


def test_a_value_that_was_forgotten_leaves_its_place_empty(tmp_path):
    logger = Logger(output_dir=tmp_path)
    for row in (dict(a=1, b=2), dict(b=3), dict(a=4, b=5)):
        for key, value in row.items():
            logger.log_tabular(key, value)
        logger.dump_tabular()
    assert table(logger) == b"a\tb\n1\t2\n\t3\n4\t5\n"


def test_falsy_values_are_values(tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    logger.store(a=5)
    logger.log_tabular("a", 0)
    logger.log_tabular("b", False)
    logger.dump_tabular()
    assert table(logger) == b"a\tb\n0\tFalse\n"


@pytest.mark.parametrize("kind", [Logger, EpochLogger])
def test_a_new_column_after_the_first_row_is_refused_by_name(kind, tmp_path):
    logger = kind(output_dir=tmp_path)
    logger.log_tabular("Epoch", 0)
    logger.dump_tabular()
    with pytest.raises(UserError, match="'Surprise'"):
        logger.log_tabular("Surprise", 1)


@pytest.mark.parametrize("kind", [Logger, EpochLogger])
@pytest.mark.parametrize("rows_before", [0, 1])
def test_the_same_column_twice_in_a_row_is_refused_by_name(kind, rows_before, tmp_path):
    logger = kind(output_dir=tmp_path)
    for _ in range(rows_before):
        logger.log_tabular("Epoch", 0)
        logger.dump_tabular()
    logger.log_tabular("Epoch", 1)
    with pytest.raises(UserError, match="'Epoch'"):
        logger.log_tabular("Epoch", 2)
    logger.dump_tabular()  # what was refused has left nothing behind
    assert table(logger) == b"Epoch\n" + b"0\n" * rows_before + b"1\n"


# --- Statistics ---

VALUES = [[1.0, 2.0], [3.0], [6.0, 0.5, 4.0]]


def as_floats(values):
    return [x for part in values for x in part]


KINDS = {
    "floats": as_floats,
    "numpy scalars": lambda values: [np.float32(x) for x in as_floats(values)],
    "lists": lambda values: values,
    "arrays": lambda values: [np.array(part) for part in values],
    "columns": lambda values: [np.array(part)[:, None] for part in values],
    "tensors": lambda values: [torch.tensor(part) for part in values],
    "tensors with gradients": lambda values: [
        torch.tensor(part, requires_grad=True) * 1 for part in values
    ],
    "numbers as tensors": lambda values: [torch.tensor(x) for x in as_floats(values)],
    "tensors after a float": lambda values: [*values[0], *map(torch.tensor, values[1:])],
    "floats after a tensor": lambda values: [torch.tensor(values[0]), *as_floats(values[1:])],
    "arrays after a tensor": lambda values: [torch.tensor(values[0]), *map(np.array, values[1:])],
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_values_have_the_same_statistics(kind, tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    for value in KINDS[kind](VALUES):
        logger.store(R=value)
    flat = np.array(as_floats(VALUES))
    expected = flat.mean(), flat.std(), flat.min(), flat.max()
    assert logger.get_stats("R", with_min_and_max=True) == pytest.approx(expected, rel=1e-6)
    logger.dump_epoch("R*")
    row = [float(x) for x in table(logger).splitlines()[1].split(b"\t")]
    mean, std, least, greatest = expected
    assert row == pytest.approx([mean, std, greatest, least], rel=1e-6)


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_statistics_equal_those_of_numpy(values):
    mean, std, least, greatest = mpi_statistics_scalar(np.array(values), with_min_and_max=True)
    assert mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
    assert std == pytest.approx(np.std(values), rel=1e-6, abs=1e-6)
    assert (least, greatest) == (min(values), max(values))
    assert mpi_statistics_scalar(np.array(values)) == (mean, std)


def test_large_values_keep_their_small_deviation():
    assert mpi_statistics_scalar(np.array([1e8, 1e8 + 2], np.float64)) == (1e8 + 1, 1.0)


def test_a_tensor_that_is_stored_does_not_keep_its_graph_in_memory(tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    x = torch.ones(3, requires_grad=True)
    in_memory = weakref.ref(x)
    logger.store(Loss=(x * 2).sum())
    del x
    assert in_memory() is None
    assert logger.get_stats("Loss") == (6, 0)


# --- The terminal ---


def test_no_colour_codes_where_there_is_no_terminal(tmp_path, capsys):
    logger = EpochLogger(output_dir=tmp_path)
    logger.log("hello", color="red")
    logger.dump_epoch("Epoch", Epoch=3)
    out = capsys.readouterr().out
    assert "hello\n" in out
    assert "\x1b" not in out
    assert [line.split() for line in out.splitlines() if "Epoch" in line] == [
        ["|", "Epoch", "|", "3", "|"]
    ]


def test_colours_on_a_terminal(tmp_path, capsys, monkeypatch):
    logger = Logger(output_dir=tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    logger.log("hello", color="red")
    assert capsys.readouterr().out == "\x1b[31;1mhello\x1b[0m\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (dict(color="green"), "\x1b[32mx\x1b[0m"),
        (dict(color="green", bold=True), "\x1b[32;1mx\x1b[0m"),
        (dict(color="blue", highlight=True), "\x1b[44mx\x1b[0m"),
    ],
)
def test_colorize(arguments, code):
    assert colorize("x", **arguments) == code


# --- The folder ---


def test_config_json(tmp_path):
    logger = Logger(output_dir=tmp_path / "new" / "folder", exp_name="mine")
    logger.save_config(
        dict(seed=np.int64(3), hid=(64, 64), act=torch.nn.Tanh, env_fn=len, nested={1: {2.5: None}})
    )
    written = (tmp_path / "new" / "folder" / "config.json").read_text()
    assert json.loads(written) == dict(
        seed=3, hid=[64, 64], act="Tanh", env_fn="len", nested={"1": {"2.5": None}}, exp_name="mine"
    )


def write_run(folder, word):
    """A run that leaves every kind of file."""
    logger = EpochLogger(output_dir=folder, exp_name=word)
    logger.save_config(dict(word=word))
    logger.setup_pytorch_saver(torch.nn.Linear(1, 1))
    logger.save_state({"word": word})
    logger.save_state({"word": word}, itr=3)
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "latest").write_text(word)
    logger.log_tabular("Word", word)
    logger.dump_tabular()
    logger.output_file.close()


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "older_runs" not in path.relative_to(folder).parts
    }


def test_an_older_run_is_moved_aside_and_nothing_is_lost(tmp_path, capsys):
    held = []
    for number, word in enumerate(["first", "second", "third"]):
        write_run(tmp_path, word)
        said = capsys.readouterr().out
        assert ("older run" in said) == (number > 0)
        if number:
            assert str(tmp_path / "older_runs" / str(number)) in said
        held.append(files(tmp_path))
        assert held[-1]["progress.txt"] == f"Word\n{word}\n".encode()
    for number, run in enumerate(held[:-1], 1):
        assert files(tmp_path / "older_runs" / str(number)) == run


def test_files_of_the_user_stay_where_they_are(tmp_path):
    write_run(tmp_path, "first")
    (tmp_path / "notes.txt").write_text("mine")
    EpochLogger(output_dir=tmp_path).dump_epoch("Epoch", Epoch=1)
    assert files(tmp_path) == {"notes.txt": b"mine", "progress.txt": b"Epoch\n1\n"}


def test_a_table_of_another_name_is_moved_too(tmp_path):
    for value in (1, 2):
        logger = Logger(output_dir=tmp_path, output_fname="other.txt")
        logger.log_tabular("A", value)
        logger.dump_tabular()
    assert (tmp_path / "other.txt").read_text() == "A\n2\n"
    assert (tmp_path / "older_runs" / "1" / "other.txt").read_text() == "A\n1\n"


def test_a_run_without_an_epoch_is_overwritten_silently(tmp_path, capsys):
    Logger(output_dir=tmp_path).save_config(dict(a=1))
    Logger(output_dir=tmp_path).save_config(dict(a=2))
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "older_runs").exists()
    assert read_json(tmp_path / "config.json") == dict(a=2)


def test_without_a_folder_a_new_one_is_made():
    one, two = Logger(), Logger()
    assert Path(one.output_dir).is_dir()
    assert one.output_dir != two.output_dir


def test_a_folder_that_cannot_be_written_gets_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write to .*file"):
        Logger(output_dir=tmp_path / "file" / "run")


def dump(logger, **row):
    for key, value in row.items():
        logger.log_tabular(key, value)
    logger.dump_tabular()


def test_resuming_keeps_what_the_checkpoint_knows_and_makes_the_rest_again(tmp_path, capsys):
    logger = EpochLogger(output_dir=tmp_path)
    dump(logger, Epoch=0, Loss="0.5")
    state = logger.state_dict()
    dump(logger, Epoch=1, Loss="lost when it was killed, and longer than what follows")
    logger.output_file.close()
    capsys.readouterr()

    resumed = EpochLogger(output_dir=tmp_path, resume=True)
    assert (tmp_path / "progress.txt").stat().st_size > state["table_bytes"]
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert table(resumed) == b"Epoch\tLoss\n0\t0.5\n"
    dump(resumed, Epoch=1, Loss="0.25")
    assert table(resumed) == b"Epoch\tLoss\n0\t0.5\n1\t0.25\n"
    with pytest.raises(UserError, match="'New'"):
        resumed.log_tabular("New", 1)
    assert not (tmp_path / "older_runs").exists()


def test_resuming_before_the_first_row_writes_the_header(tmp_path):
    state = EpochLogger(output_dir=tmp_path).state_dict()
    resumed = EpochLogger(output_dir=tmp_path, resume=True)
    resumed.load_state_dict(state)
    dump(resumed, A=1)
    dump(resumed, A=2)
    assert table(resumed) == b"A\n1\n2\n"


def test_time_continues_where_it_was(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("spinup.parts.logger.time.time", lambda: now[0])
    logger = EpochLogger(output_dir=tmp_path)
    now[0] += 60
    state = logger.state_dict()
    now[0] += 5000  # nobody was training
    resumed = EpochLogger(output_dir=tmp_path, resume=True)
    resumed.load_state_dict(state)
    now[0] += 30
    resumed.dump_epoch("Time")
    assert table(resumed) == b"Time\n90.0\n"


def test_a_table_shorter_than_the_checkpoint_knows_gets_a_sentence(tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    dump(logger, Epoch=0)
    state = logger.state_dict()
    (tmp_path / "progress.txt").write_text("Epoch\n")
    with pytest.raises(UserError, match=r"progress\.txt is shorter"):
        EpochLogger(output_dir=tmp_path, resume=True).load_state_dict(state)


def test_only_networks_can_be_saved_as_networks(tmp_path):
    with pytest.raises(UserError, match="not a dict"):
        Logger(output_dir=tmp_path).setup_pytorch_saver({})


# --- Anything as JSON ---


class Silent:
    def __str__(self):
        raise RuntimeError("I will not be read")

    __repr__ = __str__


class Nameless:
    """An object that can be called and whose name cannot be asked for."""

    def __call__(self): ...

    @property
    def __name__(self):
        raise RuntimeError("I have no name")


class NamedByNumber:
    __name__ = 5

    def __call__(self): ...


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Word(str):
    def __str__(self):
        raise RuntimeError


class Items(dict):
    def items(self):
        raise RuntimeError


class Half(float): ...


@dataclasses.dataclass
class Unfinished:
    given: int
    missing: int = dataclasses.field(init=False)


def recursive_list():
    x = [1]
    x.append({"again": x})
    return x


def recursive_array():
    x = np.empty(2, object)
    x[:] = [x, 1]
    return x


ODDITIES = dict(
    silent=Silent(),
    silent_in_list=[Silent()],
    silent_key={Silent(): 1},
    nameless=Nameless(),
    named_by_number=NamedByNumber(),
    enumeration=Colour.RED,
    level=Level.LOW,
    word=Word("x"),
    items=Items(a=1),
    half=Half(0.5),
    unfinished=Unfinished(3),
    recursive_list=recursive_list(),
    recursive_array=recursive_array(),
    function=lambda: 0,
    builtin=len,
    kind=Silent,
    module=torch.nn,
    instance=torch.nn.Linear(1, 1),
    partial=functools.partial(len, []),
    tensor=torch.ones(2),
    data=b"\xff",
    text="\ud800",
    complex=1j,
    huge=10**5000,
    wide_float=np.longdouble(1.5),
    wide_array=np.ones(2, np.longdouble),
    wide_complex=np.clongdouble(1),
    time=np.datetime64("2020-01-01"),
    no_time=np.datetime64("NaT"),
    duration=np.timedelta64(3, "s"),
    record=np.zeros(2, [("a", int), ("b", float)]),
    void=np.void(b"ab"),
    number=np.array(3),
    texts=np.array(["a", "b"]),
    bool=np.bool_(True),
    infinite=math.inf,
    not_a_number=math.nan,
    generator=(i for i in range(3)),
    ellipsis=...,
    slice=slice(3),
    range=range(3),
    tuple_key={(1, 2): 3},
    none_key={None: 1},
    deep_set={(1, (2,))},
    mixed_set={1, "a", None, 2.5},
    path=Path("a/b"),
    dtype=np.dtype("f4"),
    type=np.float32,
)


@pytest.mark.parametrize("name", ODDITIES)
def test_any_object_becomes_something_json_can_hold(name, tmp_path):
    converted = convert_json(ODDITIES[name])
    json.loads(json.dumps(converted, sort_keys=True))
    write_json(tmp_path / "config.json", dict(oddity=ODDITIES[name]))
    assert set(read_json(tmp_path / "config.json")) == {"oddity"}


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        ((1, (2, 3)), "[1, [2, 3]]"),
        ({3, 1, 2}, "[1, 2, 3]"),
        (np.arange(4).reshape(2, 2), "[[0, 1], [2, 3]]"),
        (np.float32(0.5), "0.5"),
        (np.int64(7), "7"),
        (np.bool_(True), "true"),
        (torch.nn.ReLU, '"ReLU"'),
        (as_floats, '"as_floats"'),
        ({"a": {1: None}}, '{"a": {"1": null}}'),
        (Level.LOW, "1"),
        ([True, None, "x", 1e-3], '[true, null, "x", 0.001]'),
    ],
)
def test_what_has_a_plain_form_gets_it(obj, text):
    assert json.dumps(convert_json(obj)) == text


def test_what_holds_itself_ends():
    converted = convert_json(recursive_list())
    assert converted == [1, {"again": "..."}]


def test_what_is_there_twice_is_written_twice():
    shared = [1, 2]
    assert convert_json([shared, {"b": shared}]) == [[1, 2], {"b": [1, 2]}]


def test_an_object_becomes_readable_text():
    assert "in_features=1" in convert_json(torch.nn.Linear(1, 1))
    assert convert_json(Silent()) == "<Silent>"


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
strange = ["silent", "named_by_number", "enumeration", "word", "recursive_list", "recursive_array"]
strange += ["function", "kind", "instance", "partial"]
# By their numbers, for hypothesis shows what it chooses from, and not all of these can be shown.
odd = st.integers(0, len(strange) - 1).map(lambda i: ODDITIES[strange[i]])
numpy_values = st.sampled_from(
    [np.float32("nan"), np.int8(3), np.arange(3), np.array([[1.5]]), np.array([None, "a"], object)]
)
hashable = plain | st.tuples(plain, plain) | st.frozensets(plain, max_size=3)
junk = st.recursive(
    plain | numpy_values | odd | st.binary(max_size=3) | st.sets(hashable, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(hashable, inner, max_size=4)
    ),
    max_leaves=12,
)


def holds_only_json(x):
    if isinstance(x, dict):
        return all(type(k) is str and holds_only_json(v) for k, v in x.items())
    if isinstance(x, list):
        return all(map(holds_only_json, x))
    return x is None or type(x) in (bool, int, float, str)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(junk)
def test_nested_junk_becomes_something_json_can_hold(obj):
    converted = convert_json(obj)
    assert holds_only_json(converted)
    text = json.dumps(converted, sort_keys=True)
    json.loads(text)
    assert json.dumps(convert_json(converted), sort_keys=True) == text  # it is in its plain form


def test_what_no_column_asks_for_does_not_fill_the_memory(tmp_path):
    logger = EpochLogger(output_dir=tmp_path)
    for epoch in range(3):
        unasked = np.zeros(1000)
        in_memory = weakref.ref(unasked)
        logger.store(EpRet=1.0, Unasked=unasked)
        del unasked
        logger.dump_epoch("Epoch EpRet* Time", Epoch=epoch)
        assert in_memory() is None
