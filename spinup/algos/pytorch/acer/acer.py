"""Actor-Critic with Experience Replay: replayed segments, truncated importance weights, Retrace.

Read downwards: the losses, the update made of them, what they need, the training loop.
Networks are in core.py, the settings of a run in config.json, the theory in README.md.
"""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from spinup.algos.pytorch.acer import core
from spinup.parts import run_setup
from spinup.parts.checkpoint import Checkpoint
from spinup.parts.envs import evaluate
from spinup.parts.pytorch import backend
from spinup.parts.pytorch.buffers import SegmentBuffer, Segments
from spinup.parts.pytorch.fast import recorded
from spinup.parts.pytorch.learning import Adam, gradient_step, polyak_average
from spinup.parts.pytorch.tensors import to_tensor

COLUMNS = """Epoch EpRet* TestEpRet* EpLen TestEpLen TotalEnvInteracts QVals* LossPi LossQ Entropy
    KL TruncFrac TrustFrac Replays Time"""
LIMITS = dict(alpha=(0, 1))


@dataclass
class Learner:
    """All that the update reads and writes."""

    ac: nn.Module  # policy pi and the value q of every action
    average: nn.Module  # average policy network, from which pi must not stray far at once
    pi_optimizer: Adam
    q_optimizer: Adam


def compute_loss_q(ac, batch: Segments, *, gamma, n_steps):
    """Squared TD error of the values of the actions taken against their Retrace targets."""
    q = ac.q(batch.obs)
    q_a = of_action(q, batch.act)
    with torch.no_grad():
        rho = of_action(ac.pi(batch.obs).log_softmax(-1) - batch.logp, batch.act).exp()
        v2 = (ac.pi(batch.obs2).softmax(-1) * ac.q(batch.obs2)).sum(-1)
        q_ret = retrace(batch, rho, q_a, v2, gamma=gamma, n_steps=n_steps)
    return ((q_a - q_ret) ** 2).mean(), q.detach(), q_ret


def compute_loss_pi(ac, average, batch: Segments, q, q_ret, *, c, delta, ent_coef=0.0):
    """A loss whose gradient is the policy gradient, kept within the trust region.

    q, q_ret: the value of every action, and the Retrace target of the one taken
    """
    phi, a = ac.pi(batch.obs), batch.act[:, None]  # phi: the policy's statistics, its logits
    with torch.no_grad():
        logp, logp_average = phi.log_softmax(-1), average(batch.obs).log_softmax(-1)
        pi, rho = logp.exp(), (logp - batch.logp).exp()
        v = (pi * q).sum(-1, keepdim=True)
        # The weight of each action's log probability: for the one taken, the return seen, with
        # its importance weight truncated at c; for all, the critic's bias correction.
        weight = (1 - c / rho).clamp(min=0) * pi * (q - v)
        weight.scatter_add_(-1, a, rho.gather(-1, a).clamp(max=c) * (q_ret[:, None] - v))
        entropy = -(pi * logp).sum(-1, keepdim=True)
        # As gradients in the logits, where that of log pi(a) is 1 at a, less pi everywhere.
        g = weight - pi * weight.sum(-1, keepdim=True) - ent_coef * pi * (logp + entropy)
        k = pi - logp_average.exp()  # of KL(average || pi)
        z = project(g, k, delta)
    loss = -(z * phi).sum(-1).mean()
    return loss, dict(
        LossPi=loss,
        Entropy=entropy,
        KL=(logp_average.exp() * (logp_average - logp)).sum(-1),
        TruncFrac=(rho.gather(-1, a) > c).float(),
        TrustFrac=(z != g).any(-1).float(),
    )


@recorded
def update(learner, batch, *, gamma, n_steps, c, delta, alpha, ent_coef, max_grad_norm=None):
    """One gradient update of policy and values from some segments; then the average follows."""
    ac, average = learner.ac, learner.average
    loss_q, q, q_ret = compute_loss_q(ac, batch, gamma=gamma, n_steps=n_steps)
    loss_pi, stats = compute_loss_pi(
        ac, average, batch, q, q_ret, c=c, delta=delta, ent_coef=ent_coef
    )
    gradient_step(learner.q_optimizer, loss_q, max_grad_norm)
    gradient_step(learner.pi_optimizer, loss_pi, max_grad_norm)
    polyak_average(ac.pi, average, alpha)
    return stats | dict(LossQ=loss_q, QVals=of_action(q, batch.act))


def of_action(table, a):
    """From a row of numbers for each action, the number of the action taken."""
    return table.gather(-1, a[:, None]).squeeze(-1)


def retrace(batch: Segments, rho, q_a, v2, *, gamma, n_steps):
    """The Retrace target of every step, from the last step of each segment to the first.

    rho: importance weight of the action taken
    q_a, v2: the critic's value of the action taken, and of the observation after it
    """
    follows = gamma * (1 - batch.terminated)
    td_target, continues = batch.rew + follows * v2, follows * (1 - batch.truncated)
    columns = [td_target, continues, rho.clamp(max=1), q_a]
    columns = [column.reshape(-1, n_steps).unbind(1) for column in columns]
    targets, error = [], torch.zeros_like(columns[0][0])  # of later steps, truncated and summed
    for target, continues, trace, q in reversed(list(zip(*columns))):
        targets.append(target + continues * error)
        error = trace * (targets[-1] - q)
    return torch.stack(targets[::-1], 1).reshape(-1)


def project(g, k, delta):
    """The vector nearest to g, row by row, whose product with k is at most delta."""
    excess = ((k * g).sum(-1, keepdim=True) - delta).clamp(min=0)
    return g - excess / k.square().sum(-1, keepdim=True).clamp(min=1e-12) * k


def replays_due(t, *, replay_start, replay_ratio, seed):
    """How many replays follow after step `t`: a Poisson number, the same in every process."""
    # Sampled from seed and step alone, so that there is no stream to share or to save.
    return np.random.default_rng((seed, t)).poisson(replay_ratio) if t >= replay_start else 0


def make_learner(ac, pi_lr, q_lr):
    pi_optimizer, q_optimizer = Adam(ac.pi.parameters(), pi_lr), Adam(ac.q.parameters(), q_lr)
    return Learner(ac, deepcopy(ac.pi), pi_optimizer, q_optimizer)


def acer(
    env_fn, actor_critic=core.MLPActorCritic, ac_kwargs=None, seed=0, steps_per_epoch=4000,
    epochs=50, replay_size=50_000, gamma=0.99, pi_lr=3e-4, q_lr=1e-3, n_steps=20, replay_ratio=4.0,
    replay_start=1000, c=10.0, delta=1.0, alpha=0.99, ent_coef=0.001, max_grad_norm=40.0,
    num_test_episodes=10, max_ep_len=1000, logger_kwargs=None, save_freq=1, num_envs=1,
    device="cpu", resume=False,
):  # fmt: skip
    """Train an ACER agent and give back its networks.

    env_fn: makes an environment each time it is called
    actor_critic: the class of the networks; needs `pi`, `q`, `step` and `act` as core.py has them
    ac_kwargs: what it is made with, such as hidden_sizes and activation
    seed: where all randomness starts; equal seeds give equal runs
    steps_per_epoch: environment steps in an epoch, over all environments and processes
    epochs: how many epochs
    replay_size: steps each process keeps before the oldest segment is overwritten
    gamma: discount factor, what a reward one step later is worth
    pi_lr: learning rate of the policy
    q_lr: learning rate of the critic
    n_steps: steps of each environment between two updates, which make a segment
    replay_ratio: updates from replayed segments for each on-policy update, on average
    replay_start: steps before the first replayed update
    c: threshold at which importance weights are truncated; the critic corrects the bias
    delta: size of the trust region around the average policy, as a linearized KL divergence
    alpha: Polyak averaging, the share that the average policy network keeps of itself
    ent_coef: entropy coefficient, the weight of the entropy in the loss
    max_grad_norm: gradient-norm clipping, the largest norm of a gradient; none: no clipping
    num_test_episodes: evaluation episodes of the deterministic policy after each epoch
    max_ep_len: steps after which an episode is truncated
    logger_kwargs: where to write, as setup_logger_kwargs makes it
    save_freq: epochs between two saved models
    num_envs: environments stepped together in each process, and segments in an update
    device: where the networks live, such as cpu or cuda
    resume: continue from the checkpoint in the run folder, if there is one
    """
    settings = dict(locals())
    seeds, schedule = run_setup.setup(settings, backend, **LIMITS)
    env, test_env = run_setup.make_envs(env_fn, num_envs, seeds, max_ep_len)
    ac = backend.build_network(actor_critic, env, ac_kwargs, device)
    sizes = env.observation_space.shape, int(env.action_space.n), int(replay_size)
    steps = dict(n_steps=n_steps, num_envs=num_envs, seed=seeds.buffer, obs_dtype=env.obs_dtype)
    buffer = SegmentBuffer(*sizes, **steps, device=device)
    learner = make_learner(ac, pi_lr, q_lr)
    fixed = run_setup.settings_for(settings, update)
    replays_at = run_setup.settings_for(settings, replays_due)
    logger = run_setup.open_logger(__name__, settings, env, ac, backend, rows=n_steps * num_envs)
    checkpoint = Checkpoint(learner, buffer=buffer, env=env, test_env=test_env, logger=logger)

    def greedy(obs):
        return ac.act(to_tensor(obs, device), deterministic=True)

    def learn(t):
        replays = replays_due(t, **replays_at)
        yield update(learner, buffer.latest(), **fixed) | dict(Replays=replays)
        for _ in range(replays):
            yield update(learner, buffer.sample_batch(num_envs), **fixed)

    for epoch in checkpoint.epochs(epochs, resume):  # restores; saves after each; closes at last
        for t in logger.progress(schedule.steps(epoch), schedule.total()):
            obs = env.obs
            act, logp = ac.step(to_tensor(obs, device))
            step = env.step(act)
            over = step.terminated, step.truncated
            completed = buffer.store(obs, act, step.rew, step.obs2, *over, logp)
            for episode in step.episodes:
                logger.store(EpRet=episode.ret, EpLen=episode.length)
            for stats in learn(t) if completed else ():
                logger.store(**stats)

        for test in evaluate(test_env, greedy, schedule.per_process(num_test_episodes)):
            logger.store(TestEpRet=test.ret, TestEpLen=test.length)
        logger.dump_epoch(COLUMNS, Epoch=epoch + 1, TotalEnvInteracts=schedule.steps(epoch).stop)
        if (epoch + 1) % save_freq == 0 or epoch + 1 == epochs:
            logger.save_state({})
    return ac


if __name__ == "__main__":
    from spinup.cli.train import launch

    launch(acer, __file__)  # settings: defaults < config.json beside this file < command line
