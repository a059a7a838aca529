"""Ctrl-C finishes the epoch, saves, says how to resume; the resumed run equals an unbroken one."""

import signal
import subprocess
import time

import killed_runs
import pytest


@pytest.mark.parametrize("cpu", [1, 2])
def test_interrupted_run_saves_and_resumes(cpu, tmp_path):
    long = ["--steps_per_epoch", "2000", "--epochs", "9"]
    whole = killed_runs.command("ppo", tmp_path / "whole", cpu=cpu)
    broken = killed_runs.command("ppo", tmp_path / "broken", cpu=cpu)
    for words in (whole, broken):
        for flag, value in zip(long[::2], long[1::2]):
            words[words.index(flag) + 1] = value
    process = subprocess.Popen(
        broken, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    for line in process.stdout:
        if "steps," in line:  # the first epoch is through
            break
    process.send_signal(signal.SIGINT)
    output = process.stdout.read()
    assert process.wait(timeout=60) == 130, output
    assert "finishing this epoch" in output
    assert "Traceback" not in output
    assert f"spinup resume {tmp_path / 'broken' / 'run' / 'run_s7'}" in output
    rows = (tmp_path / "broken/run/run_s7/progress.txt").read_text().count("\n") - 1
    assert 1 <= rows < 9

    code, output = killed_runs.run(broken)
    assert code == 0, output
    assert f"Resuming {tmp_path / 'broken/run/run_s7'} after {rows} of 9 epochs" in output
    assert killed_runs.run(whole)[0] == 0
    assert killed_runs.remains(tmp_path / "broken") == killed_runs.remains(tmp_path / "whole")


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    command = killed_runs.command("ppo", tmp_path)
    command[command.index("--steps_per_epoch") + 1] = "2000000"  # an epoch nobody waits for
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    for line in process.stdout:
        if line.startswith("ppo_pytorch on"):
            break
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    for line in process.stdout:
        if "Ctrl-C" in line:
            break
    process.send_signal(signal.SIGINT)
    output = process.stdout.read()
    assert process.wait(timeout=20) == 130
    assert "Stopped at once" in output
    assert "Traceback" not in output
