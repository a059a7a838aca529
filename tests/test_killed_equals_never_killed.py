"""A run killed with SIGKILL at any instant and resumed equals one never killed, bit for bit.

`benchmarks/stress_kills.py` does the same at random instants as often as one likes.
"""

import killing
import pytest

# While collecting, updating, syncing, with a half-written file, and between the renames that
# complete a checkpoint; counted from each start of the process.
INSTANTS = ["step:150", "torn:3", "gradient_step:20", "replace:4", "fsync:8"]


CASES = [
    (algorithm, num_envs, cpu)
    for algorithm in killing.SETTINGS
    for num_envs, cpu in [(1, 1), (4, 1), (1, 2), (4, 2)]
    if " " not in algorithm or (num_envs, cpu) == (4, 2)  # of mere kinds, the hardest case
]


@pytest.mark.parametrize(("algorithm", "num_envs", "cpu"), CASES)
def test_killed_and_resumed_equals_unbroken(algorithm, num_envs, cpu, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert killing.run_until_done(killing.command(algorithm, whole, num_envs, cpu), []) == 0
    instants = INSTANTS if (num_envs, cpu) in ((1, 1), (4, 2)) else INSTANTS[1:3]
    command = killing.command(algorithm, broken, num_envs, cpu)
    assert killing.run_until_done(command, instants) >= len(instants) - 1
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
