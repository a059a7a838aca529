"""States that earlier versions saved, under the names they used then, load into the buffers."""

import numpy as np
import pytest

from spinup.parts.buffers import NStepReplayBuffer, ReplayBuffer, SegmentBuffer
from spinup.parts.checkpoint import Checkpoint, read_tree, write_tree

EARLIER = dict(
    num_envs="stride", pending="begun", max_priority="greatest", rng_state="random_streams"
)


def as_earlier(state):
    """A saved state with the names of earlier versions."""
    if not isinstance(state, dict):
        return state
    return {EARLIER.get(key, key): as_earlier(value) for key, value in state.items()}


def fill(buffer, rows):
    rng = np.random.default_rng(0)
    for _ in range(rows):
        obs, act, rew = rng.normal(size=(4, 3)), rng.normal(size=(4, 2)), rng.normal(size=4)
        buffer.store(obs, act, rew, obs + 1, np.zeros(4))
    return buffer


KINDS = {
    "uniform": lambda: ReplayBuffer(3, 2, 50),
    "prioritized": lambda: NStepReplayBuffer(3, 2, 50, n_step=3, priority_exponent=0.5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_buffer_continues_with_the_same_batches(kind, tmp_path):
    buffer, resumed = fill(KINDS[kind](), 10), KINDS[kind]()
    if kind == "prioritized":
        buffer.update_priorities(np.arange(5), np.arange(5.0) * 7)
    buffer.ring.append_log(tmp_path)
    state = as_earlier(buffer.state_dict())
    assert "stride" in state and ("greatest" in str(state)) == (kind == "prioritized")
    resumed.load_state_dict(state)
    resumed.ring.read_log(tmp_path)
    for each in (buffer, resumed):
        fill(each, 2)
    for mine, theirs in zip(resumed.sample_batch(20), buffer.sample_batch(20), strict=True):
        assert np.array_equal(mine, theirs)


def test_a_segment_that_had_begun_is_completed():
    buffer, resumed = (SegmentBuffer(1, 2, 16, n_steps=4, num_envs=2) for _ in range(2))
    step = np.zeros((2, 1)), [0, 1], [1.0, 2.0], np.ones((2, 1)), [0, 0], [0, 0], np.zeros((2, 2))
    for _ in range(3):
        buffer.store(*step)
    resumed.load_state_dict(as_earlier(buffer.state_dict()))
    assert resumed.store(*step)
    assert resumed.latest().rew.tolist() == [1.0] * 4 + [2.0] * 4


def test_the_random_streams_of_an_earlier_checkpoint_continue(tmp_path):
    np.random.seed(5)
    Checkpoint(folder=tmp_path, buffer=fill(ReplayBuffer(3, 2, 50), 5)).save(1)
    expected = np.random.rand(3)
    path = tmp_path / "checkpoint" / "epoch1.rank0.npz"
    write_tree(path, as_earlier(read_tree(path)))
    latest = tmp_path / "checkpoint" / "latest"
    latest.write_text('{"epoch": 1, "num_procs": 1}')  # as versions without checksums wrote it
    np.random.seed(9)
    assert Checkpoint(folder=tmp_path, buffer=ReplayBuffer(3, 2, 50)).restore() == 1
    assert np.array_equal(np.random.rand(3), expected)
