"""Sizes no machine has memory for: the setting is named before anything is allocated."""

import resource

import pytest
from forked_command import spinup

QUICK = "--epochs 1 --steps_per_epoch 32 --exp_name run"
CARTPOLE, PENDULUM = f"--env CartPole-v1 {QUICK}", f"--env Pendulum-v1 {QUICK}"
ABSURD = {
    f"sac {PENDULUM} --replay_size 1e30": "replay_size 1000000000000000019884624838656 asks for",
    f"td3 {PENDULUM} --replay_size 1000000000000000": "replay_size 1000000000000000 asks for",
    f"dqn {CARTPOLE} --replay_size 1e12 --prioritized": "replay_size 1000000000000 asks for",
    f"acer {CARTPOLE} --replay_size 1000000000000": "replay_size ",
    f"ppo {CARTPOLE} --hid [100000,100000]": "hidden_sizes [100000, 100000] asks for 320 GB",
    f"ppo {CARTPOLE} --hid [100000,100000] [4]": "hidden_sizes [100000, 100000] asks for 320 GB",
    f"ppo {CARTPOLE} --hid {'9' * 400}": "hidden_sizes [999",
    f"ppo {CARTPOLE} --cpu 1000000000": "num_cpu 1000000000 asks for",
    f"ppo {CARTPOLE} --num_envs 1000000000": "num_envs must be an integer from 1 to 100000",
    f"ppo {CARTPOLE} --epochs {'9' * 400}": "is too large to compute with",
    f"vpg {CARTPOLE} --pi_lr {'9' * 400}": "is too large to compute with",
    f"ppo {CARTPOLE} --device meta": "There is no device 'meta' here",
    "ppo --env CartPole-v1 --steps_per_epoch 1000000000000 --exp_name run": "steps_per_epoch of",
}


@pytest.mark.parametrize("words", ABSURD, ids=lambda words: words[:60].replace("/", " "))
def test_the_setting_is_named(words, tmp_path):
    given = words.split()
    if given.count("--epochs") == 2:
        at = given.index("--epochs")
        del given[at : at + 2]
    ended = spinup(*given, cwd=tmp_path)
    assert ended.code == 2, ended
    assert ended.err.startswith("spinup: ") and ABSURD[words] in ended.err
    assert "Traceback" not in ended.err and len(ended.err) < 500
    assert not list(tmp_path.rglob("progress.txt"))


@pytest.mark.parametrize("algorithm", ["sac", "dqn"])
def test_memory_that_runs_out_while_training(algorithm, tmp_path):
    """What only shows in training names the settings to make smaller, and only the run's own."""
    name, value = "batch_size", "1000000000000"
    env = "Pendulum-v1" if algorithm == "sac" else "CartPole-v1"
    words = f"{algorithm} --env {env} {QUICK} --start_steps 4 --update_after 4 --update_every 4"
    ended = spinup(*words.split(), f"--{name}", value, "--replay_size", "50", cwd=tmp_path)
    assert ended.code == 2, ended
    assert "There is not enough memory" in ended.err and f"{name} {value}" in ended.err
    assert "replay_size 50" in ended.err and "n_steps" not in ended.err
    assert "Traceback" not in ended.err


def test_ppo_is_not_told_of_a_replay_buffer(tmp_path):
    words = f"ppo {CARTPOLE} --hid [100000,100000]"
    assert "replay_size" not in spinup(*words.split(), cwd=tmp_path).err


def test_a_limit_of_the_process_counts(tmp_path):
    """Where a user or a cluster limits a process, that limit is what there is."""
    from spinup.parts.memory import total_memory

    whole = total_memory()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (whole // 2, before[1]))
    try:
        assert total_memory() == whole // 2
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
