"""A run killed with SIGKILL at any instant and resumed equals one never killed, bit for bit.

`benchmarks/stress_kills.py` does the same at random instants as often as one likes.
"""

import killing
import pytest

# While collecting, with a half-written file, updating, between the renames that complete a
# checkpoint, and syncing; counted from each start of the process.
INSTANTS = ["step:50", "torn:3", "gradient_step:20", "replace:4", "fsync:8"]
EVERYWHERE = [(1, 1), (4, 1), (1, 2), (4, 2)]
CASES = [(name, *where) for name in ("ppo", "sac", "dqn") for where in EVERYWHERE]
CASES += [(name, 4, 2) for name in killing.SETTINGS if name not in ("ppo", "sac", "dqn")]


@pytest.mark.parametrize(("algorithm", "num_envs", "cpu"), CASES)
def test_killed_and_resumed_equals_unbroken(algorithm, num_envs, cpu, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert killing.run_until_done(killing.command(algorithm, whole, num_envs, cpu), []) == 0
    # Two instants each, one in the run and one while writing, so that all have their turn.
    turn = CASES.index((algorithm, num_envs, cpu))
    instants = [INSTANTS[0::2][turn % 3 - 1], INSTANTS[1::2][turn % 2]]
    command = killing.command(algorithm, broken, num_envs, cpu)
    assert killing.run_until_done(command, instants) == len(instants)
    expected, found = killing.remains(whole), killing.remains(broken)
    assert found.keys() == expected.keys()
    assert [key for key in expected if found[key] != expected[key]] == []


# Of a graph in the same way; a call of it is what takes a gradient step.
GRAPH_INSTANTS = ["step:50", "torn:3", "session_run:150", "replace:4"]


@pytest.mark.parametrize(("algorithm", "num_envs", "cpu"), [(name, 4, 2) for name in killing.TF1])
def test_graphs_killed_and_resumed_equal_unbroken(algorithm, num_envs, cpu, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert killing.run_until_done(killing.command(algorithm, whole, num_envs, cpu), []) == 0
    first = list(killing.TF1).index(algorithm) % 2
    command = killing.command(algorithm, broken, num_envs, cpu)
    assert killing.run_until_done(command, GRAPH_INSTANTS[first::2]) == 2
    expected, found = killing.remains(whole), killing.remains(broken)
    assert found.keys() == expected.keys()
    assert [key for key in expected if found[key] != expected[key]] == []


def test_the_comparison_sees_a_difference(tmp_path):
    """Another seed must not pass for the same run, or the test above would prove nothing."""
    one, other = (killing.command("dqn", tmp_path / name) for name in ("one", "other"))
    killing.run_until_done(one, [])
    at = other.index("--seed") + 1
    killing.run_until_done([*other[:at], "8", *other[at + 1 :]], [])
    (tmp_path / "other" / "run" / "run_s8").rename(tmp_path / "other" / "run" / "run_s7")
    a, b = killing.remains(tmp_path / "one"), killing.remains(tmp_path / "other")
    assert any("rows" in key for key in a if a[key] != b[key])
    assert a["progress.txt"] != b["progress.txt"]
    assert a["model.pt"] != b["model.pt"]
