"""Scripts that fill, read and change the original's buffers run unchanged with ours."""

import numpy as np
import pytest
import torch

from spinup.algos.pytorch.ddpg.ddpg import ReplayBuffer
from spinup.algos.pytorch.ppo.ppo import PPOBuffer
from spinup.algos.pytorch.trpo.trpo import GAEBuffer
from spinup.algos.pytorch.vpg.vpg import VPGBuffer
from spinup.parts.buffers import NStepReplayBuffer, SegmentBuffer
from spinup.parts.checkpoint import Checkpoint

KEYS = ["obs", "act", "rew", "obs2", "done"]


def filled(count=7, size=10):
    """A replay buffer in which row i holds the number i everywhere."""
    buffer = ReplayBuffer(3, 2, size)
    for i in range(count):
        buffer.store(np.full(3, i), np.full(2, i), i, np.full(3, i + 1), i % 2)
    return buffer


def test_a_batch_answers_as_a_dict_of_tensors():
    batch = filled().sample_batch(32)
    assert list(batch.keys()) == [key for key, _ in batch.items()] == KEYS
    moved = {k: v.to("cpu", torch.float64) for k, v in batch.items()}
    assert all(torch.equal(moved[k], dict(batch)[k].double()) for k in KEYS)
    assert [v.shape for v in batch.values()] == [(32, 3), (32, 2), (32,), (32, 3), (32,)]
    assert "obs" in batch and "done" in batch and "logp" not in batch
    o, a, r, o2, d = batch["obs"], batch["act"], batch["rew"], batch["obs2"], batch["done"]
    assert torch.equal(o2, o + 1) and torch.equal(a[:, 0], r) and torch.equal(d, r % 2)
    with pytest.raises(KeyError, match="reward.*has obs, act, rew, obs2, done"):
        batch["reward"]


def test_a_batch_still_unpacks_into_its_columns():
    batch = filled().sample_batch(32)
    o, a, r, o2, terminated = batch
    assert o is batch.obs is batch["obs"] and terminated is batch["done"] is batch["terminated"]
    assert len(batch) == 5 and batch[1] is a and batch[2:4] == (r, o2)


def test_other_batches_answer_by_name_too():
    n_step = NStepReplayBuffer(3, 2, 10, n_step=2)
    for i in range(5):
        n_step.store(np.zeros(3), np.zeros(2), 1.0, np.zeros(3), False)
    assert list(dict(n_step.sample_batch(4))) == [*KEYS, "discount", "weight", "indices"]
    segments = SegmentBuffer(3, 2, 8, n_steps=4)
    for _ in range(4):
        segments.store(np.zeros(3), 0, 1.0, np.zeros(3), False, False, np.zeros(2))
    assert list(dict(segments.latest())) == [*KEYS, "truncated", "logp"]


def test_the_attributes_of_a_replay_buffer():
    buffer = filled(7)
    assert (buffer.ptr, buffer.size, buffer.max_size) == (7, 7, 10)
    assert buffer.obs_buf.shape == buffer.obs2_buf.shape == (10, 3)
    assert buffer.act_buf.shape == (10, 2) and buffer.rew_buf.shape == buffer.done_buf.shape == (
        10,
    )
    assert buffer.rew_buf[: buffer.size].tolist() == [0, 1, 2, 3, 4, 5, 6]
    full = filled(13)
    assert (full.ptr, full.size, full.max_size) == (3, 10, 10)
    assert full.rew_buf.tolist() == [10, 11, 12, 3, 4, 5, 6, 7, 8, 9]


def test_a_script_changes_what_a_replay_buffer_holds():
    buffer = filled(7)
    buffer.rew_buf *= 10
    buffer.rew_buf[:2] = -1
    buffer.done_buf = np.ones(10)
    batch = buffer.sample_batch(200)
    assert set(batch["rew"].tolist()) == {-1, 20, 30, 40, 50, 60}
    assert (batch["done"] == 1).all()


@pytest.mark.parametrize("size_first", [True, False])
@pytest.mark.parametrize("count", [4, 10])
def test_a_script_loads_data_into_a_replay_buffer(count, size_first):
    buffer = ReplayBuffer(3, 2, 10)
    buffer.obs_buf[:count] = np.arange(count)[:, None]
    names = ["size", "ptr"] if size_first else ["ptr", "size"]
    for name in names:
        setattr(buffer, name, dict(size=count, ptr=count % 10)[name])
    assert (buffer.size, buffer.ptr) == (count, count % 10)
    assert set(buffer.sample_batch(300)["obs"][:, 0].tolist()) == set(range(count))
    buffer.store(np.full(3, 50), np.zeros(2), 0, np.zeros(3), False)
    assert buffer.obs_buf[count % 10, 0] == 50


class OwnStore(ReplayBuffer):
    """What scripts derive from the original's: `store` with its lines."""

    def store(self, obs, act, rew, next_obs, done):
        self.obs_buf[self.ptr] = obs
        self.obs2_buf[self.ptr] = next_obs
        self.act_buf[self.ptr] = act
        self.rew_buf[self.ptr] = 2 * rew
        self.done_buf[self.ptr] = done
        self.ptr = (self.ptr + 1) % self.max_size
        self.size = min(self.size + 1, self.max_size)


def test_a_store_of_the_script_s_own_fills_the_buffer():
    buffer = OwnStore(3, 2, 10)
    for i in range(24):
        assert (buffer.ptr, buffer.size) == (i % 10, min(i, 10))
        buffer.store(np.full(3, i), np.full(2, i), i, np.full(3, i + 1), False)
    assert buffer.rew_buf.tolist() == [40, 42, 44, 46, 28, 30, 32, 34, 36, 38]


def test_a_replay_buffer_starts_over_and_refuses_what_has_no_meaning(tmp_path):
    buffer = filled(7)
    buffer.ptr, buffer.size = 0, 0
    assert (buffer.ptr, buffer.size) == (0, 0)
    for name, value in dict(ptr=10, size=11).items():
        with pytest.raises(ValueError, match=f"{name} must be from 0"):
            setattr(buffer, name, value)
    buffer.size = 3
    with pytest.raises(ValueError, match="ptr is 0 and size 3"):
        buffer.store(np.zeros(3), np.zeros(2), 0.0, np.zeros(3), False)
    saved = filled(7)
    Checkpoint(folder=tmp_path, buffer=saved).save(1)
    with pytest.raises(ValueError, match="Make a new buffer"):
        saved.size = 3


@pytest.mark.parametrize("kind", [PPOBuffer, VPGBuffer, GAEBuffer])
def test_a_rollout_as_the_original_collects_it(kind):
    gamma, lam = 0.9, 0.8
    buf = kind((3,), (2,), 6, gamma, lam)
    rng = np.random.default_rng(0)
    rew, val = rng.normal(size=6), rng.normal(size=6)
    for t in range(6):
        assert buf.ptr == t
        buf.store(np.full(3, t), np.full(2, -t), rew[t], np.float32(val[t]), np.array(0.1 * t))
        if t == 3:
            buf.finish_path(0)
            assert buf.path_start_idx == 4
    buf.finish_path(last_val=np.float32(0.5))
    assert buf.obs_buf.shape == (6, 3) and buf.act_buf.shape == (6, 2) and buf.max_size == 6
    numbers = buf.adv_buf, buf.rew_buf, buf.ret_buf, buf.val_buf, buf.logp_buf
    assert all(column.shape == (6,) for column in numbers)
    delta = rew[5] + gamma * 0.5 - val[5], rew[4] + gamma * val[5] - val[4]
    assert np.allclose(buf.adv_buf[[5, 4]], [delta[0], delta[1] + gamma * lam * delta[0]])
    assert np.allclose(buf.ret_buf[3], rew[3]) and np.allclose(buf.rew_buf, rew)
    raw = buf.adv_buf.copy()
    data = buf.get()
    assert (buf.ptr, buf.path_start_idx) == (0, 0)
    assert sorted(data.keys()) == ["act", "adv", "logp", "obs", "ret"]
    obs, act, adv, logp_old = data["obs"], data["act"], data["adv"], data["logp"]
    assert all(torch.is_tensor(v) and v.dtype == torch.float32 for k, v in data.items())
    assert torch.equal(obs[:, 0], -act[:, 0]) and obs.shape == (6, 3)
    assert np.allclose(adv, (raw - raw.mean()) / raw.std(), atol=1e-5)
    assert np.allclose(logp_old, 0.1 * np.arange(6)) and "ret" in data and "rew" not in data


def test_a_script_changes_a_rollout_before_it_is_used():
    buf = PPOBuffer(3, (), 4)  # a Discrete space has the shape ()
    for t in range(4):
        buf.store(np.zeros(3), t, 1.0, 0.0, 0.0)
    buf.rew_buf *= [1, 2, 3, 4]
    buf.finish_path()
    buf.ret_buf[0] = 100
    buf.logp_buf = np.arange(4)
    data = buf.get()
    assert data["ret"][0] == 100 and data["ret"][3] == 4
    assert data["act"].tolist() == data["logp"].tolist() == [0, 1, 2, 3]


def test_a_rollout_of_several_environments_keeps_an_axis_for_them():
    buf = PPOBuffer(3, 2, 4, num_envs=2)
    assert buf.obs_buf.shape == (4, 2, 3) and buf.path_start_idx == [0, 0]


class FilledByTheScript(ReplayBuffer):
    """With the original's own `store`."""

    def store(self, obs, act, rew, next_obs, done):
        columns = dict(obs=obs, obs2=next_obs, act=act, rew=rew, done=done)
        for name, value in columns.items():
            getattr(self, f"{name}_buf")[self.ptr] = value
        self.ptr = (self.ptr + 1) % self.max_size
        self.size = min(self.size + 1, self.max_size)


@pytest.mark.parametrize("saved_after", [[30, 55], [13, 20], [4, 7], [10, 11, 40]])
def test_what_a_script_has_filled_itself_is_saved_whole(saved_after, tmp_path):
    buffer = FilledByTheScript(2, 1, 10)
    for first, until in zip([0, *saved_after], saved_after):
        for k in range(first, until):
            buffer.store([k, k], k, k, [k + 1, k + 1], False)
        Checkpoint(folder=tmp_path, buffer=buffer).save(until)
    restored = FilledByTheScript(2, 1, 10)
    assert Checkpoint(folder=tmp_path, buffer=restored).restore() == saved_after[-1]
    assert restored.ring.storage.tobytes() == buffer.ring.storage.tobytes()
    assert (restored.ptr, restored.size) == (buffer.ptr, buffer.size)


def test_a_batch_can_be_asked_with_get_and_not_be_changed():
    buffer = ReplayBuffer(2, 1, 4)
    buffer.store([1, 2], 0, 5, [2, 3], True)
    batch = buffer.sample_batch(2)
    assert batch.get("rew") is batch.rew and batch.get("done") is batch.terminated
    assert batch.get("missing") is None and batch.get("missing", 3) == 3
    with pytest.raises(TypeError, match=r"batch._replace\(rew=…\)"):
        batch["rew"] = 0
