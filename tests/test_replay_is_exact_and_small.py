"""The replay buffer holds exactly the last transitions, in little memory, and so does its log."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spinup.algos.pytorch.sac import sac as sac_module
from spinup.parts.buffers import ReplayBuffer
from spinup.parts.errors import UserError
from spinup.parts.pytorch import buffers as tensor_buffers
from spinup.parts.replay_log import ReplayLog


def transition(k):
    """Transition number k of a run; all its columns tell k."""
    return [k, k + 0.5], [-k], k, [k + 1, k + 1.5], k % 3 == 0


def store(buffer, first, n):
    """Store transitions first, first + 1, ... as `n` environments do."""
    rows = [transition(k) for k in range(first, first + n)]
    buffer.store(*(np.array(column) for column in zip(*rows)))


def expected(total, size):
    """What a ring of `size` rows holds after `total` transitions, row by row."""
    rows = [transition(0) for _ in range(size)] if total >= size else [None] * size
    for k in range(max(0, total - size), total):
        rows[k % size] = transition(k)
    return rows[: min(total, size)]


def content(buffer):
    columns = [column[: buffer.size].tolist() for column in buffer.ring.columns.values()][:5]
    return [tuple(row) for row in zip(*columns)]


def small(size, seed=0):
    return ReplayBuffer(2, 1, size, seed)


# --- In memory ---


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 12), st.lists(st.integers(1, 30), max_size=8))
def test_the_ring_holds_the_last_transitions(size, stores):
    buffer, total = small(size), 0
    for n in stores:
        store(buffer, total, n)
        total += n
        assert len(buffer) == buffer.size == min(total, size)
        assert content(buffer) == expected(total, size)


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 7), st.integers(1, 20))
def test_one_by_one_equals_many_at_once(size, total):
    one_by_one, at_once = small(size), small(size)
    for k in range(total):
        one_by_one.store(*transition(k))
    store(at_once, 0, total)
    assert content(one_by_one) == content(at_once) == expected(total, size)


def test_single_transitions_as_scripts_for_the_original_store_them():
    buffer = tensor_buffers.ReplayBuffer(obs_dim=(3,), act_dim=2, size=100)
    for k in range(50):
        obs, next_obs = np.full(3, k, np.float64), np.full(3, k + 1, np.float64)
        buffer.store(obs, np.array([k, -k], np.float32), float(k), next_obs, k % 2 == 1)
    batch = buffer.sample_batch(32)
    shapes = {key: tuple(batch[key].shape) for key in ("obs", "obs2", "act", "rew", "done")}
    assert shapes == dict(obs=(32, 3), obs2=(32, 3), act=(32, 2), rew=(32,), done=(32,))
    assert all(batch[key].dtype == torch.float32 for key in shapes)
    k = batch["rew"]
    assert torch.equal(batch["obs"], k[:, None].expand(32, 3))
    assert torch.equal(batch["obs2"], k[:, None].expand(32, 3) + 1)
    assert torch.equal(batch["act"], torch.stack([k, -k], 1))
    assert torch.equal(batch["done"], k % 2)
    assert batch[4] is batch["done"] is batch.terminated
    with pytest.raises(KeyError):
        batch["rwe"]


@pytest.mark.parametrize("module", [sac_module])
def test_the_algorithms_have_a_replay_buffer_of_this_name(module):
    assert module.ReplayBuffer is tensor_buffers.ReplayBuffer


def test_integers_stay_integers():
    buffer = tensor_buffers.ReplayBuffer(1, None, 10, act_dtype=np.int64)
    store_act = [3, 1, 2]
    buffer.store(np.zeros((3, 1)), store_act, np.arange(3), np.zeros((3, 1)), np.zeros(3, bool))
    batch = buffer.sample_batch(50)
    assert batch.act.dtype == torch.int64
    assert batch.act.tolist() == [store_act[int(r)] for r in batch.rew]


@pytest.mark.parametrize("kind", [ReplayBuffer, tensor_buffers.ReplayBuffer])
@pytest.mark.parametrize(("size", "stored"), [(100, 10), (10, 10), (10, 27)])
def test_all_rows_that_are_filled_are_drawn_and_no_others(kind, size, stored):
    buffer = kind(2, 1, size, seed=0)
    store(buffer, 1, stored)
    drawn = {float(r) for r in buffer.sample_batch(2000).rew}
    assert drawn == set(range(max(1, stored - size + 1), stored + 1))


def test_rows_are_drawn_evenly():
    buffer = small(10)
    store(buffer, 0, 10)
    counts = np.bincount(buffer.sample_batch(20_000).rew.astype(int), minlength=10)
    assert (np.abs(counts - 2000) < 5 * np.sqrt(2000 * 0.9)).all()


def test_equal_seeds_draw_the_same_rows_and_others_do_not():
    buffers = [small(50, seed) for seed in (1, 1, 2)]
    for buffer in buffers:
        store(buffer, 0, 50)
    one, two, other = ([b.sample_batch(9).rew.tolist() for _ in range(3)] for b in buffers)
    assert one == two
    assert one != other


def test_a_batch_does_not_change_when_its_rows_are_overwritten():
    for kind in (ReplayBuffer, tensor_buffers.ReplayBuffer):
        buffer = kind(2, 1, 5)
        store(buffer, 0, 5)
        batch = buffer.sample_batch(20)
        before = [column.tolist() for column in batch]
        store(buffer, 100, 5)
        assert [column.tolist() for column in batch] == before


def test_a_million_halfcheetah_transitions_need_at_most_180_megabytes():
    buffer = tensor_buffers.ReplayBuffer((17,), 6, 1_000_000)
    held = [*vars(buffer).values(), *vars(buffer.ring).values()]
    arrays = [part for part in held if isinstance(part, (np.ndarray, torch.Tensor))]
    assert [array is buffer.ring.storage for array in arrays] == [True]
    assert all(np.shares_memory(c, buffer.ring.storage) for c in buffer.ring.columns.values())
    assert 0 < buffer.ring.storage.nbytes <= 180e6


# --- On disk ---


def restored(buffer, folder, size, kind=ReplayBuffer):
    """What a process that starts over has after reading."""
    fresh = kind(2, 1, size, seed=99)
    fresh.load_state_dict(buffer.state_dict())
    fresh.ring.read_log(folder)
    return fresh


class Saved:
    """The state a checkpoint keeps, as a copy that the buffer does not change later."""

    def __init__(self, buffer):
        self.state = buffer.state_dict()

    def state_dict(self):
        return self.state


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    st.integers(1, 20),
    st.lists(
        st.one_of(st.integers(1, 50), st.sampled_from(["save", "killed"])), min_size=1, max_size=12
    ),
)
def test_the_log_gives_back_the_ring_after_any_history(tmp_path_factory, size, history):
    """Numbers: so many transitions are stored. Killed: all since the last save is lost, but for
    what was already appended; the run continues from there with other transitions.
    """
    folder = tmp_path_factory.mktemp("log") / "rows"
    buffer, total = small(size), 0
    saved = None
    for event in history:
        if event == "save":
            buffer.ring.append_log(folder)
            saved = Saved(buffer)
            buffer.ring.log.prune()
            assert content(restored(saved, folder, size)) == expected(total, size)
        elif event == "killed" and saved is not None:
            store(buffer, 1000 + total, 7)  # rows that no checkpoint will ever count
            buffer.ring.append_log(folder)
            buffer = restored(saved, folder, size)
            total = buffer.ring.total
        elif event != "killed":
            store(buffer, total, event)
            total += event
    buffer.ring.append_log(folder)
    again = restored(buffer, folder, size)
    assert content(again) == content(buffer) == expected(total, size)
    assert again.rng.integers(9, size=20).tolist() == buffer.rng.integers(9, size=20).tolist()


def test_a_restored_torch_buffer_draws_the_same_batches(tmp_path):
    buffer = tensor_buffers.ReplayBuffer(2, 1, 8, seed=0)
    store(buffer, 0, 13)
    buffer.ring.append_log(tmp_path)
    fresh = restored(buffer, tmp_path, 8, tensor_buffers.ReplayBuffer)
    for _ in range(3):
        for mine, theirs in zip(fresh.sample_batch(6), buffer.sample_batch(6)):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("torn", [1, 7, 24, 1000])
def test_the_torn_tail_of_a_killed_writer_does_not_matter(tmp_path, torn):
    buffer = small(16)
    store(buffer, 0, 5)
    buffer.ring.append_log(tmp_path)
    saved = Saved(buffer)
    (last,) = [p for p in tmp_path.iterdir() if p.name == "2.rows"]  # rows 4 and 5; 5 is to come
    with open(last, "ab") as file:
        file.write(b"\xff" * torn)
    (tmp_path / "3.rows").write_bytes(b"\xff" * torn)
    resumed = restored(saved, tmp_path, 16)
    assert content(resumed) == expected(5, 16)
    store(resumed, 5, 4)
    resumed.ring.append_log(tmp_path)
    assert content(restored(resumed, tmp_path, 16)) == expected(9, 16)


def appended(buffer, folder, monkeypatch):
    """Which rows a save writes: the number of the first, and how many."""
    seen, append = [], ReplayLog.append

    def watched(log, first, rows):
        seen.append((first, len(rows)))
        append(log, first, rows)

    monkeypatch.setattr(ReplayLog, "append", watched)
    buffer.ring.append_log(folder)
    monkeypatch.undo()
    return seen


def test_saving_writes_only_what_is_new(tmp_path, monkeypatch):
    buffer = small(800)
    store(buffer, 0, 500)
    buffer.ring.append_log(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    store(buffer, 500, 3)
    assert appended(buffer, tmp_path, monkeypatch) == [(500, 3)]
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    row = buffer.ring.log.row.itemsize
    assert sum(map(len, after.values())) - sum(map(len, before.values())) == 3 * row
    for name, old in before.items():
        assert after[name].startswith(old)


def test_saving_writes_only_what_is_new_after_resuming_too(tmp_path, monkeypatch):
    buffer = small(800)
    store(buffer, 0, 500)
    buffer.ring.append_log(tmp_path)
    resumed = restored(buffer, tmp_path, 800)
    store(resumed, 500, 3)
    assert appended(resumed, tmp_path, monkeypatch) == [(500, 3)]


def test_saving_never_writes_more_than_the_ring(tmp_path, monkeypatch):
    buffer = small(10)
    store(buffer, 0, 4)
    buffer.ring.append_log(tmp_path)
    store(buffer, 4, 31)
    assert appended(buffer, tmp_path, monkeypatch) == [(25, 10)]


def test_what_has_left_the_ring_is_removed_and_the_disk_use_stays_bounded(tmp_path):
    size, total = 80, 0
    buffer = small(size)
    sizes = []
    for epoch in range(60):
        store(buffer, total, n := 7 + epoch % 11)
        total += n
        buffer.ring.append_log(tmp_path)
        buffer.ring.log.prune()
        sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
        # Files before the one in which the oldest row of the ring lies are gone.
        first = max(0, total - size) // buffer.ring.log.rows_per_file
        assert min(int(path.stem) for path in tmp_path.iterdir()) == first
    row, spare = buffer.ring.log.row.itemsize, buffer.ring.log.rows_per_file
    assert total > 5 * size
    assert max(sizes) <= (size + spare) * row
    assert content(restored(buffer, tmp_path, size)) == expected(total, size)


def test_nothing_is_removed_before_the_new_checkpoint_is_complete(tmp_path):
    """Between appending and the checkpoint's own file a run may be killed: the old one must do."""
    buffer = small(16)
    store(buffer, 0, 20)
    buffer.ring.append_log(tmp_path)
    buffer.ring.log.prune()
    saved = Saved(buffer)
    store(buffer, 20, 45)
    buffer.ring.append_log(tmp_path)
    assert content(restored(saved, tmp_path, 16)) == expected(20, 16)


@pytest.mark.parametrize("damage", ["missing", "short", "empty"])
def test_a_damaged_log_gets_a_sentence(tmp_path, damage):
    buffer = small(16)
    store(buffer, 0, 16)
    buffer.ring.append_log(tmp_path)
    victim = tmp_path / "3.rows"
    if damage == "missing":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-1] if damage == "short" else b"")
    with pytest.raises(UserError, match=r"3\.rows lacks"):
        restored(buffer, tmp_path, 16)


def test_a_ring_of_another_size_is_refused():
    with pytest.raises(UserError, match="replay_size 16, not 17"):
        small(17).load_state_dict(small(16).state_dict())


def test_a_log_of_a_huge_ring_has_few_files(tmp_path):
    log = ReplayLog(tmp_path, small(1).ring.storage.dtype, 1_000_000)
    assert 1_000_000 <= log.rows_per_file * ReplayLog.FILES_PER_RING < 1_001_000


def test_sac_resumed_has_the_replay_it_had(tmp_path, monkeypatch):
    """The training function hands the same transitions to its first update after resuming."""
    batches = []
    monkeypatch.setattr(
        sac_module, "update", lambda learner, batch, **_: batches.append(batch) or {}
    )

    def train(folder, epochs, resume):
        batches.clear()
        sac_module.sac(
            lambda: gym.make("Pendulum-v1"),
            steps_per_epoch=20,
            epochs=epochs,
            replay_size=30,
            batch_size=16,
            update_after=0,
            update_every=5,
            num_test_episodes=0,
            resume=resume,
            ac_kwargs=dict(hidden_sizes=(4,)),
            logger_kwargs=dict(output_dir=tmp_path / folder),
        )
        return [torch.cat([c.reshape(-1) for c in batch]).tolist() for batch in batches]

    whole = train("whole", 4, resume=False)
    train("parts", 2, resume=False)
    assert train("parts", 4, resume=True) == whole[40:]
