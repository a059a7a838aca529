"""Hindsight Experience Replay: what was reached by mistake is learned from as if it was meant.

Read downwards: losses (of TD3, DDPG or DQN), update, training loop; new is parts/hindsight.py.
"""

from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from spinup.algos.pytorch.her import core
from spinup.parts import run_setup
from spinup.parts.checkpoint import Checkpoint
from spinup.parts.envs import evaluate
from spinup.parts.hindsight import STRATEGIES, goal_layout
from spinup.parts.pytorch import backend
from spinup.parts.pytorch.buffers import HindsightBuffer, Transitions
from spinup.parts.pytorch.fast import recorded
from spinup.parts.pytorch.learning import Adam, gradient_step, polyak_average
from spinup.parts.pytorch.tensors import to_tensor

COLUMNS = """Epoch EpRet* TestEpRet* EpLen TestEpLen TotalEnvInteracts QVals* LossPi LossQ Time
    SuccessRate TestSuccessRate"""
LIMITS = dict(method=("auto", *core.RECIPES), strategy=STRATEGIES)


@dataclass
class Learner:
    """All that the update reads and writes."""

    ac: nn.Module  # critics q and, for continuous actions, the policy pi
    target: nn.Module  # their target networks
    q_optimizer: Adam
    pi_optimizer: Adam | None  # only for continuous actions


def compute_loss_q(ac, target, batch: Transitions, *, gamma, recipe):
    """Squared TD error of the critics (TD3 has two, DDPG one) against one Bellman backup."""
    o, a, r, o2, terminated = batch
    with torch.no_grad():
        a2, bounds, clip = target.pi(o2), recipe.bounds, recipe.noise_clip
        noise = (recipe.target_noise * torch.randn_like(a2)).clamp(-clip, clip)  # DDPG: none
        q_targ = target.q(o2, bounds.clip(a2 + noise)).amin(0)
        backup = r + gamma * (1 - terminated) * q_targ
    q = ac.q(o, a)
    loss = ((q - backup) ** 2).mean(-1).sum()
    return loss, dict(LossQ=loss, QVals=q)


def compute_loss_q_discrete(ac, target, batch: Transitions, *, gamma):
    """Huber error of the values of the actions taken against their Bellman backup (double DQN)."""
    o, a, r, o2, terminated = batch
    with torch.no_grad():
        a2 = ac.q(o2).argmax(-1, keepdim=True)  # one network chooses, the other evaluates
        backup = r + gamma * (1 - terminated) * target.q(o2).gather(-1, a2).squeeze(-1)
    q = ac.q(o).gather(-1, a[:, None]).squeeze(-1)
    loss = nn.functional.smooth_l1_loss(q, backup)
    return loss, dict(LossQ=loss, QVals=q)


def compute_loss_pi(ac, batch: Transitions):
    """Minus the value of the policy's actions, by the first critic."""
    return -ac.q(batch.obs, ac.pi(batch.obs))[0].mean()


@recorded
def update(learner, batch, *, gamma, polyak, recipe, move_policy=True):
    """One gradient update: the critics; if it is time, the policy and then the target networks."""
    ac, target, discrete = learner.ac, learner.target, learner.pi_optimizer is None
    if discrete:
        loss, stats = compute_loss_q_discrete(ac, target, batch, gamma=gamma)
    else:
        loss, stats = compute_loss_q(ac, target, batch, gamma=gamma, recipe=recipe)
    gradient_step(learner.q_optimizer, loss)
    if move_policy and not discrete:
        stats["LossPi"] = loss = compute_loss_pi(ac, batch)
        gradient_step(learner.pi_optimizer, loss)
    if move_policy:
        polyak_average(ac, target, polyak)
    return stats


def make_learner(ac, lr):
    pi_optimizer = Adam(ac.pi.parameters(), lr) if hasattr(ac, "pi") else None
    return Learner(ac, deepcopy(ac), Adam(ac.q.parameters(), lr), pi_optimizer)


def her(
    env_fn, actor_critic=core.MLPActorCritic, ac_kwargs=None, seed=0, steps_per_epoch=2000,
    epochs=10, replay_size=1_000_000, gamma=0.98, polyak=0.99, lr=1e-3, batch_size=256,
    start_steps=1000, update_after=1000, update_every=50, act_noise=0.1, random_eps=0.2,
    method="auto", strategy="future", k=4, num_test_episodes=20, max_ep_len=1000,
    logger_kwargs=None, save_freq=1, num_envs=1, device="cpu", resume=False,
):  # fmt: skip
    """Train an agent that reaches goals, by hindsight, and give back its networks.

    env_fn: makes a goal environment each time it is called
    actor_critic: the class of the networks; needs `q`, `act` and maybe `pi` as core.py has them
    ac_kwargs: what it is made with, such as hidden_sizes and activation
    seed: where all randomness starts; equal seeds give equal runs
    steps_per_epoch: environment steps in an epoch, over all environments and processes
    epochs: how many epochs
    replay_size: transitions each process keeps before the oldest is overwritten
    gamma: discount factor, what a reward one step later is worth
    polyak: Polyak averaging, the share that the target networks keep of themselves
    lr: learning rate of policy and critics
    batch_size: transitions in a gradient step, over all processes
    start_steps: steps with random actions before the policy acts
    update_after: steps before the first update
    update_every: steps between two blocks of updates; a block has as many updates as steps
    act_noise: standard deviation of the noise on continuous actions, in the units of the action
    random_eps: exploration rate, the probability of an action that is wholly random
    method: the learner: td3, ddpg or dqn; auto is td3, and dqn for discrete actions
    strategy: where a new goal is from: future, final or episode
    k: transitions that get a new goal for each that keeps its own; 0: no hindsight
    num_test_episodes: evaluation episodes of the policy without noise after each epoch
    max_ep_len: steps after which an episode is truncated
    logger_kwargs: where to write, as setup_logger_kwargs makes it
    save_freq: epochs between two saved models
    num_envs: environments stepped together in each process
    device: where the networks live, such as cpu or cuda
    resume: continue from the checkpoint in the run folder, if there is one
    """
    settings = dict(locals())
    seeds, schedule = run_setup.setup(settings, backend, **LIMITS)
    env, test_env = run_setup.make_envs(env_fn, num_envs, seeds, max_ep_len)
    recipe = core.choose_recipe(method, env.action_space, device)
    ac = backend.build_network(actor_critic, env, dict(recipe.networks) | (ac_kwargs or {}), device)
    dims = run_setup.space_dims(env) | dict(size=replay_size, seed=seeds.buffer, device=device)
    buffer = HindsightBuffer(goal_layout(env), **dims, strategy=strategy, k=k)
    learner = make_learner(ac, lr)
    logger = run_setup.open_logger(__name__, settings, env, ac, backend)
    checkpoint = Checkpoint(learner, buffer=buffer, env=env, test_env=test_env, logger=logger)
    fixed = run_setup.settings_for(settings, update) | dict(recipe=recipe)
    noise = run_setup.settings_for(settings, core.explore)
    explore = partial(core.explore, env, recipe.bounds, **noise)

    def policy(obs):
        return ac.act(to_tensor(obs, device))

    def learn(t):
        for number in schedule.updates_due(t, update_after, update_every):
            batch = buffer.sample_batch(schedule.per_process(batch_size))
            yield update(learner, batch, **fixed, move_policy=number % recipe.policy_delay == 0)

    for epoch in checkpoint.epochs(epochs, resume):  # restores; saves after each; closes at last
        for t in logger.progress(schedule.steps(epoch), schedule.total()):
            obs = env.obs
            act = explore(policy(obs)) if t >= start_steps else env.sample_actions()
            step = env.step(act)
            buffer.store(obs, act, step.rew, step.obs2, step.terminated, step.truncated)
            for episode in step.episodes:
                logger.store(EpRet=episode.ret, EpLen=episode.length, SuccessRate=episode.success)
            for stats in learn(t):
                logger.store(**stats)

        for test in evaluate(test_env, policy, schedule.per_process(num_test_episodes)):
            logger.store(TestEpRet=test.ret, TestEpLen=test.length, TestSuccessRate=test.success)
        logger.dump_epoch(COLUMNS, Epoch=epoch + 1, TotalEnvInteracts=schedule.steps(epoch).stop)
        if (epoch + 1) % save_freq == 0 or epoch + 1 == epochs:
            logger.save_state({})
    return ac


if __name__ == "__main__":
    from spinup.cli.train import launch

    launch(her, __file__)  # settings: defaults < config.json beside this file < command line
