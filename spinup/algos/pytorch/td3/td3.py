"""Twin Delayed DDPG: DDPG with three remedies against overestimated values.

Read downwards: the losses, the update made of them, the training loop around the update.
Networks are in core.py, the settings of a run in config.json, the theory in README.md.
"""

from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from spinup.algos.pytorch.td3 import core
from spinup.parts import run_setup
from spinup.parts.checkpoint import Checkpoint
from spinup.parts.envs import evaluate
from spinup.parts.pytorch import backend
from spinup.parts.pytorch.bounded_policies import ActionRange, action_limits
from spinup.parts.pytorch.buffers import ReplayBuffer, Transitions
from spinup.parts.pytorch.fast import recorded
from spinup.parts.pytorch.learning import Adam, gradient_step, polyak_average, updates
from spinup.parts.pytorch.tensors import standard_normal, to_tensor

COLUMNS = """Epoch EpRet* TestEpRet* EpLen TestEpLen TotalEnvInteracts Q1Vals* Q2Vals*
    LossPi LossQ Time"""


@dataclass
class Learner:
    """All that the update reads and writes."""

    ac: nn.Module  # policy pi and critics q1, q2
    target: nn.Module  # their target networks
    q_optimizer: Adam
    pi_optimizer: Adam


def compute_loss_q(ac, target, batch: Transitions, *, gamma, target_noise, noise_clip, bounds):
    """Squared TD error of both critics, with target policy smoothing and clipped double-Q."""
    o, a, r, o2, terminated = batch
    with torch.no_grad():
        a2 = target.pi(o2)
        noise = (target_noise * torch.randn_like(a2)).clamp(-noise_clip, noise_clip)
        a2 = bounds.clip(a2 + noise)
        q_targ = core.q_values(target, o2, a2).amin(0)  # the smaller of two
        backup = r + gamma * (1 - terminated) * q_targ
    q = core.q_values(ac, o, a)
    loss = ((q - backup) ** 2).mean(-1).sum()
    return loss, dict(LossQ=loss, Q1Vals=q[0], Q2Vals=q[1])


def compute_loss_pi(ac, batch: Transitions):
    """Minus the value of the policy's actions, by the first critic."""
    loss = -ac.q1(batch.obs, ac.pi(batch.obs)).mean()
    return loss, dict(LossPi=loss)


@recorded
def update(learner, batch, *, gamma, polyak, target_noise, noise_clip, bounds, move_policy):
    """One gradient update: the critics; if it is time, the policy and then the target networks."""
    ac, target = learner.ac, learner.target
    smoothing = dict(target_noise=target_noise, noise_clip=noise_clip, bounds=bounds)
    loss, q_stats = compute_loss_q(ac, target, batch, gamma=gamma, **smoothing)
    gradient_step(learner.q_optimizer, loss)
    if not move_policy:
        return q_stats
    loss, pi_stats = compute_loss_pi(ac, batch)
    gradient_step(learner.pi_optimizer, loss)
    polyak_average(ac, target, polyak)
    return q_stats | pi_stats


def with_noise(act, *, bounds, act_noise):
    """Actions with Gaussian noise, in the units of the action, clipped to each one's bounds."""
    return bounds.clip_numpy(act + act_noise * standard_normal(act.shape))


def make_learner(ac, pi_lr, q_lr):
    q_optimizer, pi_optimizer = Adam(core.q_parameters(ac), q_lr), Adam(ac.pi.parameters(), pi_lr)
    return Learner(ac, deepcopy(ac), q_optimizer, pi_optimizer)


def td3(
    env_fn, actor_critic=core.MLPActorCritic, ac_kwargs=None, seed=0, steps_per_epoch=4000,
    epochs=100, replay_size=1_000_000, gamma=0.99, polyak=0.995, pi_lr=1e-3, q_lr=1e-3,
    batch_size=100, start_steps=10_000, update_after=1000, update_every=50, act_noise=0.1,
    target_noise=0.2, noise_clip=0.5, policy_delay=2,
    num_test_episodes=10, max_ep_len=1000, logger_kwargs=None, save_freq=1, num_envs=1,
    device="cpu", resume=False,
):  # fmt: skip
    """Train a TD3 agent and give back its networks.

    env_fn: makes an environment each time it is called
    actor_critic: the class of the networks; needs `pi`, `q1`, `q2` and `act` as core.py has them
    ac_kwargs: what it is made with, such as hidden_sizes and activation
    seed: where all randomness starts; equal seeds give equal runs
    steps_per_epoch: environment steps in an epoch, over all environments and processes
    epochs: how many epochs
    replay_size: transitions each process keeps before the oldest is overwritten
    gamma: discount factor, what a reward one step later is worth
    polyak: Polyak averaging, the share that the target networks keep of themselves
    pi_lr: learning rate of the policy
    q_lr: learning rate of the critics
    batch_size: transitions in a gradient step, over all processes
    start_steps: steps with random actions before the policy acts
    update_after: steps before the first update
    update_every: steps between two blocks of updates; a block has as many updates as steps
    act_noise: standard deviation of the exploration noise, in the units of the action
    target_noise: standard deviation of target policy smoothing, the noise on the next action
    noise_clip: bound of that noise, in the units of the action
    policy_delay: updates of the critics for each one of the policy and the target networks
    num_test_episodes: evaluation episodes of the policy without noise after each epoch
    max_ep_len: steps after which an episode is truncated
    logger_kwargs: where to write, as setup_logger_kwargs makes it
    save_freq: epochs between two saved models
    num_envs: environments stepped together in each process
    device: where the networks live, such as cpu or cuda
    resume: continue from the checkpoint in the run folder, if there is one
    """
    settings = dict(locals())
    seeds, schedule = run_setup.setup(settings, backend)
    env, test_env = run_setup.make_envs(env_fn, num_envs, seeds, max_ep_len)
    ac = backend.build_network(actor_critic, env, ac_kwargs, device)
    bounds = ActionRange(**action_limits(env.action_space)).to(device)
    dims = run_setup.space_dims(env) | dict(size=replay_size, seed=seeds.buffer, device=device)
    buffer = ReplayBuffer(**dims)
    learner = make_learner(ac, pi_lr, q_lr)
    noise = run_setup.settings_for(settings, with_noise)
    explore = partial(with_noise, bounds=bounds, **noise)
    fixed = run_setup.settings_for(settings, update) | dict(bounds=bounds)
    logger = run_setup.open_logger(__name__, settings, env, ac, backend)
    checkpoint = Checkpoint(learner, buffer=buffer, env=env, test_env=test_env, logger=logger)

    def policy(obs):
        return ac.act(to_tensor(obs, device))

    def learn(t):
        due = schedule.updates_due(t, update_after, update_every)
        batches = (buffer.sample_batch(schedule.per_process(batch_size)) for _ in due)
        delayed = [dict(move_policy=number % policy_delay == 0) for number in due]
        return updates(update, learner, batches, delayed, **fixed)

    for epoch in checkpoint.epochs(epochs, resume):  # restores; saves after each; closes at last
        for t in logger.progress(schedule.steps(epoch), schedule.total()):
            obs = env.obs
            act = explore(policy(obs)) if t >= start_steps else env.sample_actions()
            step = env.step(act)
            buffer.store(obs, act, step.rew, step.obs2, step.terminated, step.truncated)
            for episode in step.episodes:
                logger.store(EpRet=episode.ret, EpLen=episode.length)
            for stats in learn(t):
                logger.store(**stats)

        for test in evaluate(test_env, policy, schedule.per_process(num_test_episodes)):
            logger.store(TestEpRet=test.ret, TestEpLen=test.length)
        logger.dump_epoch(COLUMNS, Epoch=epoch + 1, TotalEnvInteracts=schedule.steps(epoch).stop)
        if (epoch + 1) % save_freq == 0 or epoch + 1 == epochs:
            logger.save_state({})
    return ac


if __name__ == "__main__":
    from spinup.cli.train import launch

    launch(td3, __file__)  # settings: defaults < config.json beside this file < command line
