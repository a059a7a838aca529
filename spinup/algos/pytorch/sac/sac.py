"""Soft Actor-Critic: two critics, and a policy that maximizes reward and entropy.

Read downwards: the losses, the update made of them, the training loop around the update.
Networks are in core.py, the settings of a run in config.json, the theory in README.md.
"""

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import nn

from spinup.algos.pytorch.sac import core
from spinup.parts import run_setup
from spinup.parts.checkpoint import Checkpoint
from spinup.parts.envs import evaluate
from spinup.parts.pytorch import backend
from spinup.parts.pytorch.buffers import ReplayBuffer, Transitions
from spinup.parts.pytorch.fast import recorded
from spinup.parts.pytorch.learning import Adam, gradient_step, polyak_average, updates
from spinup.parts.pytorch.tensors import to_tensor

COLUMNS = """Epoch EpRet* TestEpRet* EpLen TestEpLen TotalEnvInteracts Q1Vals* Q2Vals* LogPi*
    LossPi LossQ Time Alpha"""
LIMITS = dict(alpha=(0, None, "auto"))


@dataclass
class Learner:
    """All that the update reads and writes."""

    ac: nn.Module  # policy pi and critics q1, q2
    target: nn.Module  # target network; only its critics are used
    temperature: core.Temperature  # alpha, the weight of entropy
    q_optimizer: Adam
    pi_optimizer: Adam
    alpha_optimizer: Adam | None  # only where alpha is learned


def compute_loss_q(ac, target, batch: Transitions, *, gamma, alpha):
    """Squared TD error of both critics against one entropy-regularized Bellman backup."""
    o, a, r, o2, terminated = batch
    with torch.no_grad():
        a2, logp_a2 = core.sample(ac.pi, o2)  # of the *current* policy
        q2 = core.q_values(target, o2, a2).amin(0)  # the smaller of two
        backup = r + gamma * (1 - terminated) * core.expectation(a2, q2 - alpha * logp_a2)
    q = core.q_values(ac, o, a)
    loss = ((q - backup) ** 2).mean(-1).sum()
    return loss, dict(LossQ=loss, Q1Vals=q[0], Q2Vals=q[1])


def compute_loss_pi(ac, batch: Transitions, *, alpha):
    """The policy maximizes the smaller of the two critics plus its entropy."""
    a, logp_a = core.sample(ac.pi, batch.obs)  # reparameterized: differentiable in pi
    q = core.q_values(ac, batch.obs, a).amin(0)
    loss = core.expectation(a, alpha * logp_a - q).mean()
    return loss, dict(LossPi=loss, LogPi=core.expectation(a, logp_a))


def compute_loss_alpha(temperature, logp, *, target_entropy):
    """Alpha grows while the policy has less entropy than the target, else it shrinks."""
    return -temperature.log_alpha * (logp.detach().mean() + target_entropy)


@recorded
def update(learner, batch, *, gamma, polyak, target_entropy):
    """One gradient update: the critics, the policy, the temperature, then the target network."""
    ac, target, alpha = learner.ac, learner.target, learner.temperature()
    loss, q_stats = compute_loss_q(ac, target, batch, gamma=gamma, alpha=alpha)
    gradient_step(learner.q_optimizer, loss)
    loss, pi_stats = compute_loss_pi(ac, batch, alpha=alpha)
    gradient_step(learner.pi_optimizer, loss)
    if learner.alpha_optimizer is not None:
        logp = pi_stats["LogPi"]
        loss = compute_loss_alpha(learner.temperature, logp, target_entropy=target_entropy)
        gradient_step(learner.alpha_optimizer, loss)
    polyak_average(core.q_parameters(ac), core.q_parameters(target), polyak)
    return q_stats | pi_stats | dict(Alpha=alpha)


def make_learner(ac, lr, alpha):
    temperature = core.Temperature(alpha).to(next(ac.parameters()).device)
    q_optimizer, pi_optimizer = Adam(core.q_parameters(ac), lr), Adam(ac.pi.parameters(), lr)
    alpha_optimizer = Adam(temperature.parameters(), lr) if temperature.learned else None
    return Learner(ac, deepcopy(ac), temperature, q_optimizer, pi_optimizer, alpha_optimizer)


def sac(
    env_fn, actor_critic=core.MLPActorCritic, ac_kwargs=None, seed=0, steps_per_epoch=4000,
    epochs=100, replay_size=1_000_000, gamma=0.99, polyak=0.995, lr=1e-3, alpha=0.2,
    batch_size=100, start_steps=10_000, update_after=1000, update_every=50, num_test_episodes=10,
    max_ep_len=1000, logger_kwargs=None, save_freq=1, num_envs=1, device="cpu", resume=False,
):  # fmt: skip
    """Train a Soft Actor-Critic agent and give back its networks.

    env_fn: makes an environment each time it is called
    actor_critic: the class of the networks; needs `pi`, `q1`, `q2` and `act` as core.py has them
    ac_kwargs: what it is made with, such as hidden_sizes and activation
    seed: where all randomness starts; equal seeds give equal runs
    steps_per_epoch: environment steps in an epoch, over all environments and processes
    epochs: how many epochs
    replay_size: transitions each process keeps before the oldest is overwritten
    gamma: discount factor, what a reward one step later is worth
    polyak: Polyak averaging, the share that the target network keeps of itself
    lr: learning rate of policy, critics and, where it is learned, alpha
    alpha: temperature, what a nat of entropy is worth in reward; 'auto' learns it
    batch_size: transitions in a gradient step, over all processes
    start_steps: steps with random actions before the policy acts
    update_after: steps before the first update
    update_every: steps between two blocks of updates; a block has as many updates as steps
    num_test_episodes: evaluation episodes of the deterministic policy after each epoch
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
    ac = backend.build_network(actor_critic, env, ac_kwargs, device)
    dims = run_setup.space_dims(env) | dict(size=replay_size, seed=seeds.buffer, device=device)
    buffer = ReplayBuffer(**dims)
    learner = make_learner(ac, lr, alpha)
    target_entropy = core.target_entropy(env.action_space)
    fixed = run_setup.settings_for(settings, update) | dict(target_entropy=target_entropy)
    logger = run_setup.open_logger(__name__, settings, env, ac, backend)
    checkpoint = Checkpoint(learner, buffer=buffer, env=env, test_env=test_env, logger=logger)

    def policy(obs, deterministic=True):
        return ac.act(to_tensor(obs, device), deterministic)

    def learn(t):
        due = schedule.updates_due(t, update_after, update_every)
        batches = (buffer.sample_batch(schedule.per_process(batch_size)) for _ in due)
        return updates(update, learner, batches, **fixed)

    for epoch in checkpoint.epochs(epochs, resume):  # restores; saves after each; closes at last
        for t in logger.progress(schedule.steps(epoch), schedule.total()):
            obs = env.obs
            act = policy(obs, deterministic=False) if t >= start_steps else env.sample_actions()
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

    launch(sac, __file__)  # settings: defaults < config.json beside this file < command line
