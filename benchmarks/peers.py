"""One function per library that trains a case until its clock has run; all do the same work.

    PYTHON benchmarks/peers.py LIBRARY CASE SECONDS

is one turn, in a process of its own, by a Python that has the library; it prints what it found.
Everybody gets the same environment, network sizes, batch, number of updates and of target updates,
and all threads of the machine; nobody evaluates, renders or stops early.
"""

import json
import os
import platform
import sys
import tempfile
from contextlib import redirect_stdout, suppress
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace

from cases import REPLAY, Case, Measured, clock_for, make_env
from limits import limit

FOREVER = 10**9  # steps; the clock stops sooner


def ours(case: Case, env_fn):
    import spinup

    settings = dict(ac_kwargs=dict(hidden_sizes=case.hidden), num_envs=case.num_envs)
    if case.algorithm in REPLAY:
        settings |= dict(
            batch_size=case.batch,
            update_every=case.every,
            start_steps=case.begin,
            update_after=case.begin,
            num_test_episodes=0,
        )
    else:
        settings |= dict(steps_per_epoch=case.every, train_v_iters=case.passes)
    if case.algorithm == "ppo":
        settings |= dict(train_pi_iters=case.passes, target_kl=None)
        if case.batch < case.every:
            settings |= dict(minibatch_size=case.batch, max_grad_norm=0.5)
    if case.algorithm == "dqn":
        settings |= dict(epsilon_start=0.05, double_q=False)
    train = getattr(spinup, f"{case.algorithm}_pytorch")
    epochs = FOREVER // settings.get("steps_per_epoch", 4000)
    with tempfile.TemporaryDirectory() as folder:
        train(env_fn, epochs=epochs, logger_kwargs=dict(output_dir=folder), **settings)


def stable_baselines3(case: Case, env_fn):
    import stable_baselines3

    if case.algorithm != "trpo":
        return like_stable_baselines3(stable_baselines3, case, env_fn)
    import sb3_contrib

    return like_stable_baselines3(sb3_contrib, case, env_fn)


def sbx(case: Case, env_fn):
    import sbx

    return like_stable_baselines3(sbx, case, env_fn)


def like_stable_baselines3(library, case: Case, env_fn):
    """Stable-Baselines3 and SBX, which take the same arguments."""
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = DummyVecEnv([env_fn] * case.num_envs) if case.num_envs > 1 else env_fn()
    settings = dict(batch_size=case.batch, policy_kwargs=dict(net_arch=list(case.hidden)))
    if case.algorithm in REPLAY:
        settings |= dict(
            learning_rate=1e-3,
            train_freq=case.every,
            gradient_steps=case.every,
            learning_starts=case.begin,
            tau=0.005,
        )
    else:
        settings |= dict(n_steps=case.every // case.num_envs)
    if case.algorithm == "sac":
        settings |= dict(ent_coef=0.2)
    if case.algorithm in ("td3", "ddpg"):
        shape = env.action_space.shape
        settings |= dict(action_noise=NormalActionNoise(np.zeros(shape), np.full(shape, 0.1)))
    if case.algorithm == "dqn":
        settings |= dict(
            target_update_interval=1,
            buffer_size=100_000,
            exploration_initial_eps=0.05,
            exploration_final_eps=0.05,
        )
    if case.algorithm == "ppo":
        settings |= dict(n_epochs=case.passes)
    if case.algorithm == "trpo":
        settings |= dict(n_critic_updates=case.passes, cg_max_steps=10)
    model = getattr(library, case.algorithm.upper())("MlpPolicy", env, **settings)
    model.learn(FOREVER)


def tianshou(case: Case, env_fn):
    from tianshou.data import Collector, ReplayBuffer, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams

    envs = DummyVectorEnv([env_fn] * case.num_envs)
    algorithm = tianshou_algorithm(case, envs.action_space[0], envs.observation_space[0])
    off_policy = case.algorithm in REPLAY
    size = case.every
    if off_policy:
        size = 100_000 if case.algorithm == "dqn" else 1_000_000
    buffer = ReplayBuffer(size) if case.num_envs == 1 else VectorReplayBuffer(size, case.num_envs)
    collector = Collector(algorithm, envs, buffer, exploration_noise=off_policy)
    collector.reset()
    common = dict(
        training_collector=collector,
        collection_step_num_env_steps=case.every,
        verbose=False,
        show_progress=False,
        max_epochs=FOREVER // 4000,
        epoch_num_steps=4000,
    )
    if off_policy:
        collector.collect(n_step=case.begin, random=True)
        return algorithm.run_training(OffPolicyTrainerParams(batch_size=case.batch, **common))
    batch = case.batch if case.batch < case.every else None
    passes = 1 if case.algorithm == "trpo" else case.passes  # its critic has passes of its own
    return algorithm.run_training(
        OnPolicyTrainerParams(batch_size=batch, update_step_num_repetitions=passes, **common)
    )


def tianshou_algorithm(case: Case, actions, observations):
    """Tianshou's algorithm of a case with its networks."""
    import torch
    from tianshou.utils.net import common

    on_policy = case.algorithm in ("ppo", "trpo")
    spaces = dict(action_space=actions, observation_space=observations)
    activation = torch.nn.Tanh if on_policy else torch.nn.ReLU

    def net(**settings):
        sizes = dict(state_shape=observations.shape, hidden_sizes=list(case.hidden))
        return common.Net(**sizes, activation=activation, **settings)

    if case.algorithm == "dqn":
        return tianshou_dqn(net, spaces)
    build = tianshou_on_policy if on_policy else tianshou_actor_critic
    return build(case, net, spaces)


def tianshou_adam():
    from tianshou.algorithm.optim import AdamOptimizerFactory

    return AdamOptimizerFactory(lr=1e-3)


def tianshou_dqn(net, spaces):
    from tianshou.algorithm.modelfree import dqn

    model = net(action_shape=int(spaces["action_space"].n))
    policy = dqn.DiscreteQLearningPolicy(model=model, eps_training=0.05, **spaces)
    return dqn.DQN(policy=policy, optim=tianshou_adam(), target_update_freq=1, is_double=False)


def tianshou_on_policy(case, net, spaces):
    """PPO and TRPO."""
    import torch
    from tianshou.algorithm.modelfree import ppo, trpo
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.utils.net import continuous, discrete

    shape = spaces["action_space"].shape
    if shape:
        actor = continuous.ContinuousActorProbabilistic(
            preprocess_net=net(), action_shape=shape, unbounded=True
        )
        critic = continuous.ContinuousCritic(preprocess_net=net())

        def distribution(parameters):
            return torch.distributions.Independent(torch.distributions.Normal(*parameters), 1)
    else:
        count = int(spaces["action_space"].n)
        actor = discrete.DiscreteActor(
            preprocess_net=net(), action_shape=count, softmax_output=False
        )
        critic = discrete.DiscreteCritic(preprocess_net=net())

        def distribution(logits):
            return torch.distributions.Categorical(logits=logits)

    bounds = dict(action_scaling=False, action_bound_method="clip" if shape else None)
    policy = ProbabilisticActorPolicy(actor=actor, dist_fn=distribution, **bounds, **spaces)
    settings = dict(policy=policy, critic=critic, optim=tianshou_adam(), max_batchsize=case.every)
    if case.algorithm == "trpo":
        return trpo.TRPO(optim_critic_iters=case.passes, **settings)
    return ppo.PPO(ent_coef=0.0, max_grad_norm=0.5, **settings)


def tianshou_actor_critic(case, net, spaces):
    """SAC, TD3 and DDPG."""
    from tianshou.algorithm.modelfree import ddpg, sac, td3
    from tianshou.exploration import GaussianNoise
    from tianshou.utils.net import continuous

    shape = spaces["action_space"].shape
    critic = continuous.ContinuousCritic(preprocess_net=net(action_shape=shape, concat=True))
    adam = tianshou_adam()
    optimizers = dict(policy_optim=adam, critic=critic, critic_optim=adam)
    if case.algorithm == "sac":
        actor = continuous.ContinuousActorProbabilistic(
            preprocess_net=net(), action_shape=shape, unbounded=True, conditioned_sigma=True
        )
        policy = sac.SACPolicy(actor=actor, **spaces)
        return sac.SAC(policy=policy, alpha=0.2, **optimizers)
    actor = continuous.ContinuousActorDeterministic(preprocess_net=net(), action_shape=shape)
    noise = GaussianNoise(sigma=0.1)
    policy = ddpg.ContinuousDeterministicPolicy(actor=actor, exploration_noise=noise, **spaces)
    algorithm = td3.TD3 if case.algorithm == "td3" else ddpg.DDPG
    return algorithm(policy=policy, **optimizers)


# Each library: how it is called, the package that must be there, and what it has.
EVERYTHING = {"sac", "td3", "ddpg", "dqn", "ppo", "vpg", "trpo"}
LIBRARIES = dict(
    ours=SimpleNamespace(title="spinup", package="spinup", train=ours, has=EVERYTHING),
    sb3=SimpleNamespace(
        title="Stable-Baselines3",
        package="stable_baselines3",
        train=stable_baselines3,
        has=EVERYTHING - {"vpg"},
    ),
    sbx=SimpleNamespace(title="SBX", package="sbx", train=sbx, has=EVERYTHING - {"vpg", "trpo"}),
    tianshou=SimpleNamespace(
        title="Tianshou", package="tianshou", train=tianshou, has=EVERYTHING - {"vpg"}
    ),
    limit=SimpleNamespace(title="limit", package="torch", has=EVERYTHING),
)


def turn(library: str, case: Case, least: float) -> dict:
    """Train a case until the clock has run for `least` seconds."""
    if library == "limit":
        return limit(case, least)
    clock = clock_for(case, least)
    with redirect_stdout(sys.stderr), suppress(Measured):
        LIBRARIES[library].train(case, lambda: make_env(case.env, clock))
    if clock.seconds < least:
        raise SystemExit(f"{library} stopped after {clock.steps} steps, before the clock did.")
    return dict(
        steps_per_second=clock.timed / clock.seconds, steps=clock.timed, seconds=clock.seconds
    )


def versions() -> dict:
    packages = (
        "torch",
        "numpy",
        "gymnasium",
        "mujoco",
        "stable-baselines3",
        "sb3-contrib",
        "sbx-rl",
        "jax",
        "tianshou",
    )
    found = dict(python=platform.python_version())
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def main(library, case, least):
    fields = json.loads(case)
    case = Case(**fields | dict(hidden=tuple(fields["hidden"])))
    result = turn(library, case, float(least))
    threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    result |= dict(threads=threads, versions=versions())
    print(json.dumps(result), flush=True)
    os._exit(0)  # what a library would still tidy up is of no interest


if __name__ == "__main__":
    main(*sys.argv[1:])
