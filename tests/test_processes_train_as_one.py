"""Several processes under MPI train one policy: same weights everywhere, one gradient for all."""

import os
import subprocess
import sys
import time
from pathlib import Path

import killed_runs
import pytest
from mpi_programs import COUNT_EXCHANGES, under_mpiexec

from spinup.parts.checkpoint import read_tree
from spinup.parts.mpi import mpiexec

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.parametrize("n", [2, 3])
def test_tools_agree_with_arithmetic(n):
    program = f"""
import numpy as np, torch
from spinup.parts.mpi import *
from spinup.utils.mpi_pytorch import *
rank, n = proc_id(), num_procs()
assert n == {n}
assert mpi_sum(1.5) == 1.5 * n
assert np.array_equal(mpi_sum(np.arange(3) + rank), n * np.arange(3) + sum(range(n)))
assert mpi_avg(float(rank)) == (n - 1) / 2
assert mpi_max(float(-rank)) == 0
mine = np.arange(10 * (rank + 1), dtype=np.float64) ** 2
everyone = np.concatenate([np.arange(10 * (r + 1), dtype=np.float64) ** 2 for r in range(n)])
mean, std, least, greatest = mpi_statistics_scalar(mine, with_min_and_max=True)
assert np.allclose([mean, std], [everyone.mean(), everyone.std()], rtol=1e-12)
assert (least, greatest) == (everyone.min(), everyone.max())
empty = mpi_statistics_scalar([] if rank else [2.0, 4.0], with_min_and_max=True)
assert empty == (3, 1, 2, 4)
assert np.isnan(mpi_statistics_scalar([])).all()
x = np.full(3, rank); broadcast(x, root=n - 1); assert (x == n - 1).all()
assert broadcast_object(dict(rank=rank)) == dict(rank=0)
total = np.zeros(2)
allreduce(np.full(2, rank + 1.0), total)
assert (total == sum(range(n + 1))).all()

torch.manual_seed(rank)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
sync_params(net)
torch.manual_seed(0)
whole = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
for p, q in zip(net.state_dict().values(), whole.state_dict().values()):
    assert torch.equal(p, q)
net.eval(), whole.eval()
data = torch.randn(6 * n, 4, generator=torch.Generator().manual_seed(5))
whole(data).square().mean().backward()
net(data[6 * rank : 6 * (rank + 1)]).square().mean().backward()
mpi_avg_grads(net)
for p, q in zip(net.parameters(), whole.parameters()):
    assert torch.allclose(p.grad, q.grad, rtol=1e-5, atol=1e-7)
print("agreed")
"""
    ended = under_mpiexec(program, n)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("agreed") == n


def test_one_exchange_for_all_gradients():
    program = """
import torch
from spinup.utils.mpi_pytorch import mpi_avg_grads
net = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(5)])
net(torch.ones(2, 3)).sum().backward()
calls.clear()
mpi_avg_grads(net)
assert calls == ["Allreduce"], calls
"""
    ended = under_mpiexec(COUNT_EXCHANGES + program)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("vpg", dict(train_v_iters=2)),
        ("reinforce", dict(train_v_iters=2, baseline="none")),
        ("reinforce", dict(train_v_iters=2, baseline="average")),
        ("reinforce", dict(train_v_iters=2, baseline="value")),
    ],
)
def test_two_halves_of_a_rollout_are_learned_like_the_whole(algorithm, settings):
    program = f"""
import torch
from gymnasium.spaces import Box, Discrete
from spinup.algos.pytorch.{algorithm} import {algorithm} as module
from spinup.parts.buffers import Rollout
from spinup.parts.pytorch.networks import MLPActorCritic
from spinup.parts.mpi import proc_id
def updated(rollout):
    torch.manual_seed(3)
    ac = MLPActorCritic(Box(-1, 1, (3,)), Discrete(2), hidden_sizes=(8,))
    module.update(module.make_learner(ac, 0.01, 0.01), rollout, **{settings})
    return ac.parameters()
torch.manual_seed(0)
whole = Rollout(*(torch.randn(20, 3), torch.randint(2, (20,)), *torch.randn(3, 20)))
half = slice(10 * proc_id(), 10 * proc_id() + 10)
found = updated(Rollout(*(column[half] for column in whole)))
for p, q in zip(found, updated(whole), strict=True):  # the mean of equal gradients is the same
    assert torch.allclose(p, q, rtol=1e-4, atol=1e-5), (p, q)
print("agreed")
"""
    ended = under_mpiexec(program)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("agreed") == 2


@pytest.mark.parametrize("algorithm", killed_runs.SETTINGS)
def test_weights_are_equal_on_all_ranks_after_every_epoch(algorithm, tmp_path):
    """All that learns is compared whenever checkpoints are in place; environments differ."""
    words = killed_runs.command(algorithm, tmp_path, num_envs=2)[2:]
    program = f"""
import os
import numpy as np
from mpi4py import MPI
from spinup.run import main
from spinup.parts.checkpoint import read_tree
NOT_LEARNED = ("env", "test_env", "logger", "buffer", "rng_state")
replace = os.replace
def leaves(tree):
    if isinstance(tree, dict):
        return [(key, leaves(value)) for key, value in tree.items()]
    if isinstance(tree, (list, tuple)):
        return list(map(leaves, tree))
    return tree.tobytes() if isinstance(tree, np.ndarray) else repr(tree)
def compared(source, target, **options):
    replace(source, target, **options)
    if not str(target).endswith(f".rank{{MPI.COMM_WORLD.Get_rank()}}.npz"):
        return
    tree = read_tree(target)
    learned = {{k: v for k, v in tree.items() if k not in NOT_LEARNED}}
    mine = len(learned), leaves(learned), tree["env"]["obs"]
    one, other = MPI.COMM_WORLD.allgather(mine)
    assert str(one[1]).count("b'") > 6 and one[:2] == other[:2]
    assert (one[2] != other[2]).any()  # each process has environments of its own
    if MPI.COMM_WORLD.Get_rank() == 0:
        print("the same weights")
os.replace = compared
main({words!r})
"""
    ended = under_mpiexec(program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("the same weights") == 5


def test_a_run_started_by_mpiexec_equals_one_that_forks(tmp_path):
    forked = killed_runs.command("dqn", tmp_path / "forked", cpu=2)
    assert killed_runs.run(forked)[0] == 0
    launched = killed_runs.command("dqn", tmp_path / "launched", cpu=1)
    at = launched.index("--cpu")
    code, output = killed_runs.run([mpiexec(), "-n", "2", *launched[:at], *launched[at + 2 :]])
    assert code == 0, output
    assert killed_runs.remains(tmp_path / "forked") == killed_runs.remains(tmp_path / "launched")


def test_gradient_steps_per_environment_step_stay_one(tmp_path):
    """Two processes share the steps of an epoch, but each takes every gradient step."""
    counts = {}
    for cpu in (1, 2):
        command = killed_runs.command("dqn", tmp_path / str(cpu), num_envs=2, cpu=cpu)
        assert killed_runs.run(command)[0] == 0
        (rank0,) = (tmp_path / str(cpu) / "run/run_s7/checkpoint").glob("*.rank0.npz")
        state = read_tree(rank0)
        counts[cpu] = int(state["q_optimizer"]["counts"][0])
        assert state["buffer"]["ring"]["total"] == 5 * 240 // cpu
    assert counts[1] == counts[2] == 5 * 240 - 100


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failing_rank_ends_the_job_with_its_traceback(failing):
    program = f"""
from spinup.parts.mpi import proc_id, barrier
if proc_id() == {failing}:
    raise RuntimeError("the wheels came off")
barrier()
"""
    began = time.time()
    ended = under_mpiexec(program, timeout=60)
    assert ended.returncode != 0
    assert "RuntimeError: the wheels came off" in ended.stderr
    assert time.time() - began < 50  # it did not hang


def test_a_mistake_of_the_user_is_told_once(tmp_path):
    command = killed_runs.command("ppo", tmp_path, cpu=2)
    code, output = killed_runs.run([*command, "--ac_kwargs:width", "3"])
    assert code == 2
    assert output.count("no setting 'width'") == 1
    assert "Traceback" not in output


def test_call_experiment_with_two_processes(tmp_path):
    """A function of the script itself travels to processes of its own."""
    program = f"""
from spinup import ppo_pytorch
from spinup.utils.run_utils import call_experiment
def thunk(**kwargs):
    ppo_pytorch(**kwargs)
if __name__ == "__main__":
    call_experiment("called", thunk, seed=3, num_cpu=2, data_dir={str(tmp_path)!r},
        env_name="CartPole-v1", epochs=1, steps_per_epoch=100, train_pi_iters=1, train_v_iters=1)
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    script = tmp_path / "script.py"
    script.write_text(program)
    ended = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    folder = tmp_path / "called" / "called_s3"
    assert len(list(folder.glob("checkpoint/epoch1.rank*.npz"))) == 2
    assert (folder / "progress.txt").read_text().count("\n") == 2
