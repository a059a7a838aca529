"""Deep Q-Network: learn what each action is worth, and take the greedy one most of the time.

Read downwards: the loss, the update made of it, the training loop around the update.
The network is in core.py, the settings of a run in config.json, the theory in README.md.
"""

from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from spinup.algos.pytorch.dqn import core
from spinup.parts import run_setup
from spinup.parts.checkpoint import Checkpoint
from spinup.parts.envs import evaluate
from spinup.parts.pytorch import backend
from spinup.parts.pytorch.buffers import NStepReplayBuffer, NStepTransitions
from spinup.parts.pytorch.fast import recorded
from spinup.parts.pytorch.learning import Adam, gradient_step, polyak_average
from spinup.parts.pytorch.tensors import to_tensor, uniform

COLUMNS = """Epoch EpRet* TestEpRet* EpLen TestEpLen TotalEnvInteracts QVals* LossQ Epsilon Time
    TDError"""


@dataclass
class Learner:
    """All that the update reads and writes."""

    ac: nn.Module  # q, the value of every action
    target: nn.Module  # target network
    q_optimizer: Adam


def compute_loss_q(ac, target, batch: NStepTransitions, *, double_q=True):
    """Huber error of the values of the actions taken against their n-step Bellman backup."""
    o, a, r, o2, terminated, discount, weight, _ = batch
    with torch.no_grad():
        q_targ = target.q(o2)
        # Double Q-learning: one network chooses the next action, the other evaluates it; the
        # maximum of noisy values would be an overestimate.
        a2 = (ac.q(o2) if double_q else q_targ).argmax(-1, keepdim=True)
        backup = r + discount * (1 - terminated) * q_targ.gather(-1, a2).squeeze(-1)
    q = ac.q(o).gather(-1, a[:, None]).squeeze(-1)
    loss = weight @ F.smooth_l1_loss(q, backup, reduction="none")
    return loss, dict(LossQ=loss, QVals=q, TDError=(backup - q.detach()).abs())


@recorded
def update(learner, batch, *, double_q, polyak, move_target, max_grad_norm=None):
    """One gradient update of the network; then its target network follows, if it is time."""
    ac, target = learner.ac, learner.target
    loss, stats = compute_loss_q(ac, target, batch, double_q=double_q)
    gradient_step(learner.q_optimizer, loss, max_grad_norm)
    if move_target:
        polyak_average(ac, target, polyak)
    return stats


def linear_schedule(t, *, start, end, steps):
    """A number that goes from `start` to `end` on a straight line of `steps` steps, then stays."""
    return start + (end - start) * (min(1.0, t / steps) if steps else 1.0)


def make_learner(ac, lr):
    return Learner(ac, deepcopy(ac), Adam(ac.parameters(), lr))


def dqn(
    env_fn, actor_critic=core.MLPQNetwork, ac_kwargs=None, seed=0, steps_per_epoch=4000,
    epochs=25, replay_size=100_000, gamma=0.99, polyak=0.995, target_every=1, lr=1e-3,
    batch_size=64, start_steps=1000, update_after=1000, update_every=1, epsilon_start=1.0,
    epsilon_end=0.05, epsilon_steps=10_000, double_q=True, n_step=1, prioritized=False,
    priority_exponent=0.6, importance_exponent=0.4, max_grad_norm=10.0, num_test_episodes=10,
    max_ep_len=1000, logger_kwargs=None, save_freq=1, num_envs=1, device="cpu", resume=False,
):  # fmt: skip
    """Train a DQN agent and give back its network.

    env_fn: makes an environment each time it is called
    actor_critic: the class of the network; needs `q` and `act` as core.py has them
    ac_kwargs: what it is made with, such as hidden_sizes and activation
    seed: where all randomness starts; equal seeds give equal runs
    steps_per_epoch: environment steps in an epoch, over all environments and processes
    epochs: how many epochs
    replay_size: transitions each process keeps before the oldest is overwritten
    gamma: discount factor, what a reward one step later is worth
    polyak: Polyak averaging, the share that the target network keeps of itself; 0: a copy
    target_every: updates between two moves of the target network
    lr: learning rate
    batch_size: transitions in a gradient step, over all processes
    start_steps: steps with random actions before the network acts
    update_after: steps before the first update
    update_every: steps between two blocks of updates; a block has as many updates as steps
    epsilon_start: exploration rate at first, the probability of a random action
    epsilon_end: exploration rate in the end
    epsilon_steps: steps from the first rate to the last, on a straight line
    double_q: let the network choose the next action and the target network evaluate it
    n_step: rewards summed before the target bootstraps from the network
    prioritized: sample transitions of large TD error more often
    priority_exponent: how much more often: 0 is uniform, 1 in proportion to the TD error
    importance_exponent: exponent of the importance-sampling weights at first; 1 in the end
    max_grad_norm: gradient-norm clipping, the largest norm of a gradient; none: no clipping
    num_test_episodes: evaluation episodes of the greedy policy after each epoch
    max_ep_len: steps after which an episode is truncated
    logger_kwargs: where to write, as setup_logger_kwargs makes it
    save_freq: epochs between two saved models
    num_envs: environments stepped together in each process
    device: where the network lives, such as cpu or cuda
    resume: continue from the checkpoint in the run folder, if there is one
    """
    settings = dict(locals())
    seeds, schedule = run_setup.setup(settings, backend)
    env, test_env = run_setup.make_envs(env_fn, num_envs, seeds, max_ep_len)
    ac = backend.build_network(actor_critic, env, ac_kwargs, device)
    planned = schedule._replace(epochs=run_setup.planned_epochs(settings))  # when beta reaches 1
    dims = run_setup.space_dims(env) | dict(size=replay_size, seed=seeds.buffer, device=device)
    exponent = priority_exponent if prioritized else None
    buffer = NStepReplayBuffer(**dims, n_step=n_step, gamma=gamma, priority_exponent=exponent)
    learner = make_learner(ac, lr)
    fixed = run_setup.settings_for(settings, update)
    logger = run_setup.open_logger(__name__, settings, env, ac, backend)
    checkpoint = Checkpoint(learner, buffer=buffer, env=env, test_env=test_env, logger=logger)
    epsilon_at = partial(linear_schedule, start=epsilon_start, end=epsilon_end, steps=epsilon_steps)
    beta_at = partial(linear_schedule, start=importance_exponent, end=1.0, steps=planned.total())

    def policy(obs, epsilon=0.0):
        act = ac.act(to_tensor(obs, device))
        explore = uniform((len(obs),)) < epsilon
        return np.where(explore, env.sample_actions(), act) if any(explore) else act

    def learn(t):
        for number in schedule.updates_due(t, update_after, update_every):
            batch = buffer.sample_batch(schedule.per_process(batch_size), beta_at(t))
            stats = update(learner, batch, **fixed, move_target=number % target_every == 0)
            if prioritized:
                buffer.update_priorities(batch.indices.cpu(), stats["TDError"].cpu())
            yield stats

    for epoch in checkpoint.epochs(epochs, resume):  # restores; saves after each; closes at last
        for t in logger.progress(schedule.steps(epoch), schedule.total()):
            obs = env.obs
            act = policy(obs, epsilon_at(t)) if t >= start_steps else env.sample_actions()
            step = env.step(act)
            buffer.store(obs, act, step.rew, step.obs2, step.terminated, step.truncated)
            for episode in step.episodes:
                logger.store(EpRet=episode.ret, EpLen=episode.length)
            for stats in learn(t):
                logger.store(**stats)

        for test in evaluate(test_env, policy, schedule.per_process(num_test_episodes)):
            logger.store(TestEpRet=test.ret, TestEpLen=test.length)
        end = schedule.steps(epoch).stop
        logger.dump_epoch(COLUMNS, Epoch=epoch + 1, TotalEnvInteracts=end, Epsilon=epsilon_at(end))
        if (epoch + 1) % save_freq == 0 or epoch + 1 == epochs:
            logger.save_state({})
    return ac


if __name__ == "__main__":
    from spinup.cli.train import launch

    launch(dqn, __file__)  # settings: defaults < config.json beside this file < command line
