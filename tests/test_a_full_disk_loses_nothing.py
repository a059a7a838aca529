"""No room to write: a sentence, exit code 2, no file half written, and nothing good is lost.

The kernel refuses to let the files of a process grow, as a full disk does.
"""

import shutil
from pathlib import Path

import pytest
from forked_command import spinup

TRAIN = [
    "dqn",
    "--env",
    "CartPole-v1",
    "--epochs",
    "1",
    "--steps_per_epoch",
    "48",
    "--hid",
    "[16]",
    "--start_steps",
    "8",
    "--update_after",
    "8",
    "--update_every",
    "8",
    "--batch_size",
    "4",
    "--num_test_episodes",
    "1",
    "--max_ep_len",
    "20",
    "--replay_size",
    "60",
    "--exp_name",
    "run",
    "--save_freq",
    "1",
]


def files(folder) -> dict:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


def table(run: Path) -> list:
    rows = [line.split("\t") for line in (run / "progress.txt").read_text().splitlines()]
    time = rows[0].index("Time")
    return [row[:time] + row[time + 1 :] for row in rows]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of one epoch, and the table of one that did three without a stop."""
    folder = tmp_path_factory.mktemp("trained")
    assert spinup(*TRAIN, cwd=folder).code == 0
    shutil.copytree(folder / "data", folder / "unbroken")
    run = folder / "unbroken" / "run" / "run_s0"
    assert spinup("resume", run, "--epochs", 3, cwd=folder).code == 0
    return folder / "data" / "run" / "run_s0", table(run)


@pytest.fixture
def run(trained, tmp_path):
    return Path(shutil.copytree(trained[0], tmp_path / "run"))


def limits(run: Path) -> dict:
    """For each file that training writes, a size at which just that file has no room."""
    size = {name: len(data) for name, data in files(run).items()}
    checkpoint, model = size["checkpoint/epoch1.rank0.npz"], size["pyt_save/model.pt"]
    assert size["progress.txt"] < size["config.json"] < model < checkpoint
    return {
        "progress.txt": size["progress.txt"] + 40,
        "config.json": size["config.json"] - 100,
        "pyt_save/model.pt": model - 100,
        "checkpoint": checkpoint - 100,
    }


@pytest.mark.parametrize("file", ["config.json", "progress.txt", "pyt_save/model.pt", "checkpoint"])
def test_a_run_that_resumes_into_a_full_disk(file, trained, run, tmp_path):
    before = files(run)
    words = ("resume", run, "--epochs", 3)
    ended = spinup(*words, cwd=tmp_path, largest_file=limits(run)[file])
    assert ended.code == 2, ended
    assert ended.err.startswith("spinup: ") and "(File too large)" in ended.err
    assert str(run) in ended.err and "Traceback" not in ended.err
    assert not list(run.rglob("*.new"))
    after = files(run)
    assert all(
        data.startswith(before[name]) for name, data in after.items() if name.endswith(".txt")
    )
    assert after["progress.txt"].endswith(b"\n")
    again = spinup(*words, cwd=tmp_path)
    assert again.code == 0, again.err
    assert table(run) == trained[1]  # as if the disk had never been full


def test_a_new_run_on_a_full_disk_leaves_no_half_file(tmp_path):
    ended = spinup(*TRAIN, cwd=tmp_path, largest_file=300)
    assert ended.code == 2 and "config.json" in ended.err and "Traceback" not in ended.err
    left = files(tmp_path / "data")
    assert all(not data for data in left.values()), left
    assert spinup(*TRAIN, cwd=tmp_path).code == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("curve.png", ["plot", "RUN", "-o"]),
        ("page.html", ["report", "RUN", "-o"]),
        ("policy.onnx", ["export", "RUN", "-o"]),
        ("play.mp4", ["watch", "RUN", "-n", "1", "--len", "30", "--video"]),
        ("play.gif", ["watch", "RUN", "-n", "1", "--len", "30", "--video"]),
    ],
)
def test_what_a_tool_writes_is_whole_or_as_it_was(name, words, run, tmp_path):
    target, before = tmp_path / name, files(run)
    target.write_bytes(b"the one before")
    words = [str(run) if word == "RUN" else word for word in words]
    ended = spinup(*words, target, cwd=tmp_path, largest_file=1000)
    assert ended.code == 2, ended
    assert ended.err.count("spinup: ") == 1 and name in ended.err and "Traceback" not in ended.err
    assert target.read_bytes() == b"the one before"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "run"])
    assert files(run) == before
