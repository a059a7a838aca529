"""Loading a run folder runs no code, whatever its files were replaced by."""

import io
import json
import os
import pickle

import numpy as np
import pytest
import torch

from spinup import ppo_pytorch
from spinup.parts.errors import UserError
from spinup.parts.make_env import EnvMaker
from spinup.results.playback import load_policy_and_env
from spinup.run import main


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def run(tmp_path):
    settings = dict(steps_per_epoch=100, epochs=1, train_pi_iters=1, train_v_iters=1)
    where = dict(output_dir=str(tmp_path / "run"), exp_name="run")
    ppo_pytorch(EnvMaker("CartPole-v1"), logger_kwargs=where, **settings)
    return tmp_path / "run"


def bombs(mark):
    """The ways a pickle may be dressed up."""
    plain = pickle.dumps(Bomb(mark))
    saved, inner = io.BytesIO(), io.BytesIO()
    torch.save(dict(architecture="{}", weights=Bomb(mark)), saved)
    arrays = io.BytesIO()
    np.savez(arrays, outline=np.array([Bomb(mark)], dtype=object))
    torch.save(Bomb(mark), inner, _use_new_zipfile_serialization=False)
    return [plain, saved.getvalue(), inner.getvalue(), arrays.getvalue(), b"", b"\x80\x04."]


def test_the_bomb_is_live(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("kind", range(6))
def test_model_replaced_by_a_pickle(kind, run, tmp_path, capsys):
    (run / "pyt_save" / "model.pt").write_bytes(bombs(tmp_path / "mark")[kind])
    with pytest.raises(UserError, match="is not a model saved by spinup|holds no model"):
        load_policy_and_env(run)
    with pytest.raises(SystemExit) as ended:
        main(["watch", str(run), "--norender"])
    assert ended.value.code == 2
    assert not (tmp_path / "mark").exists()
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", range(6))
@pytest.mark.parametrize("file", ["epoch1.rank0.npz", "latest"])
def test_checkpoint_replaced_by_a_pickle(kind, file, run, tmp_path, capsys):
    (run / "checkpoint" / file).write_bytes(bombs(tmp_path / "mark")[kind])
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(run), "--epochs", "2"])
    assert ended.value.code == 2
    assert str(run / "checkpoint") in capsys.readouterr().err
    assert not (tmp_path / "mark").exists()
    assert len((run / "progress.txt").read_text().splitlines()) == 2  # nothing lost


@pytest.mark.parametrize(
    "change",
    [
        dict(id="os:system", kwargs=dict(command="touch mark")),
        dict(id="evil:Env-v0"),
        dict(id="CartPole-v1", entry_point="evil:boom"),
        dict(id="CartPole-v1", wrappers=[dict(name="evil:Boom", kwargs={})]),
        dict(id=7),
    ],
)
def test_config_naming_other_code(change, run, tmp_path, monkeypatch):
    """config.json may name modules; none is imported unless the user names it too."""
    (tmp_path / "evil.py").write_text(
        "import pathlib; pathlib.Path('mark').touch()\nboom = Boom = print"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = json.loads((run / "config.json").read_text())
    config["environment"] |= change
    config["env_fn"]["env_name"] = change["id"]
    (run / "config.json").write_text(json.dumps(config))
    for command in (
        ["watch", str(run), "--norender", "-n", "1"],
        ["resume", str(run), "--epochs", "2"],
    ):
        try:
            main(command)
        except SystemExit as ended:
            assert ended.code == 2
    assert not (tmp_path / "mark").exists()


def test_architecture_naming_other_code(run, tmp_path):
    path = run / "pyt_save" / "model.pt"
    content = torch.load(path, weights_only=True)
    own = "spinup.algos.pytorch"
    for name in ("os.system", "evil.Net", f"{own}.ppo.core.torch", f"{own}...os.core.x"):
        architecture = json.loads(content["architecture"]) | dict(network=name)
        torch.save(dict(content, architecture=json.dumps(architecture)), path)
        with pytest.raises(UserError, match="a class of your own"):
            load_policy_and_env(run)
    architecture = json.loads(content["architecture"])
    architecture["ac_kwargs"]["activation"] = "os.system"
    torch.save(dict(content, architecture=json.dumps(architecture)), path)
    with pytest.raises(UserError, match="not an activation"):
        load_policy_and_env(run)
