"""Nothing is written, and nothing is shown around, through a symbolic link in a run folder."""

import json
import shutil

import pytest

from spinup import ppo_pytorch
from spinup.parts.make_env import EnvMaker
from spinup.run import main


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "run"
    ppo_pytorch(
        EnvMaker("CartPole-v1"),
        ac_kwargs=dict(hidden_sizes=[4]),
        steps_per_epoch=50,
        epochs=1,
        train_pi_iters=1,
        train_v_iters=1,
        logger_kwargs=dict(output_dir=str(folder)),
    )
    return folder


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def link(path, target):
    """Put a link in the place of what is there; the target gets what was there, if it is to be."""
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        shutil.move(path, target)
    elif path.exists():
        shutil.copy(path, target)
        path.unlink()
    path.symlink_to(target)


def content(folder):
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "name",
    [".lock", "progress.txt", "config.json", "config.json.new", "checkpoint", "pyt_save",
     "pyt_save/model.pt", "pyt_save/model.pt.new", "checkpoint/latest", "older_runs",
     "checkpoint/epoch2.rank0.npz", "checkpoint/epoch2.rank0.npz.new", "vars.pt", "wandb"],
)  # fmt: skip
def test_training_does_not_write_through_a_link(name, run, tmp_path, capsys):
    outside = tmp_path / "outside"
    outside.mkdir()
    link(run / name, outside / "target")
    before = content(outside)
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(run), "--epochs", "2"])
    assert ended.value.code == 2 and "is a symbolic link" in capsys.readouterr().err
    assert content(outside) == before and len((run / "progress.txt").read_text().split("\n")) == 3


@pytest.mark.parametrize(
    ("command", "name"),
    [("plot", "plot.png"), ("report", "report.html"), ("export", "policy.onnx")],
)
def test_results_do_not_go_through_a_link(command, name, run, tmp_path):
    for end in ("", ".new"):
        (tmp_path / "target").write_text("mine")
        (run / f"{name}{end}").symlink_to(tmp_path / "target")
    main([command, str(run)])
    assert (tmp_path / "target").read_text() == "mine"
    assert (run / name).is_file() and not (run / name).is_symlink()


def test_a_video_does_not_go_through_a_link(run, tmp_path, capsys):
    (tmp_path / "target").write_text("mine")
    link(run / "video.mp4", tmp_path / "target")
    with pytest.raises(SystemExit):
        main(["watch", str(run), "-n", "1", "--video", str(run / "video.mp4")])
    assert "is a symbolic link" in capsys.readouterr().err
    assert (tmp_path / "target").read_text() == "mine"


def test_a_report_shows_nothing_from_elsewhere(run, tmp_path):
    """A page is made to be sent to others; a link must not put the sender's own files into it."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "video.mp4").write_bytes(b"private video")
    (secret / "config.json").write_text(json.dumps(dict(password="hunter2", epochs=1)))
    (secret / "output.txt").write_text("Traceback (most recent call last)\nprivate words")
    (run / "videos").symlink_to(secret)
    (run / "config.json").unlink()
    for name in ("config.json", "output.txt"):
        (run / name).symlink_to(secret / name)
    main(["report", str(run)])
    page = (run / "report.html").read_text()
    assert "hunter2" not in page and "private words" not in page and "video/mp4" not in page
