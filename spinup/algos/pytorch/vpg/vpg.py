"""Vanilla Policy Gradient: make what turned out better than expected more probable, step by step.

Read downwards: two losses, the update made of them, the training loop around the update.
Networks are in core.py, the settings of a run in config.json, the theory in README.md.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from spinup.algos.pytorch.vpg import core
from spinup.parts import run_setup
from spinup.parts.buffers import Rollout
from spinup.parts.checkpoint import Checkpoint
from spinup.parts.envs import VectorEnv
from spinup.parts.pytorch import backend
from spinup.parts.pytorch.learning import Adam, gradient_step, minimize
from spinup.parts.pytorch.learning import GAEBuffer as VPGBuffer
from spinup.parts.pytorch.tensors import to_tensor

COLUMNS = """Epoch EpRet* EpLen VVals* TotalEnvInteracts LossPi LossV DeltaLossPi DeltaLossV
    Entropy KL Time KLNonNegative"""


@dataclass
class Learner:
    """All that the update reads and writes."""

    ac: nn.Module  # policy pi and value function v
    pi_optimizer: Adam
    vf_optimizer: Adam


def compute_loss_pi(ac, rollout: Rollout):
    """Its slope is the policy gradient; the number itself says nothing about the policy."""
    pi, logp = ac.pi(rollout.obs, rollout.act)
    log_ratio = logp - rollout.logp
    loss = -(logp * rollout.adv).mean()
    return loss, dict(
        KL=-log_ratio.mean(),
        KLNonNegative=(torch.expm1(log_ratio) - log_ratio).clamp(min=0).mean(),  # but for rounding
        Entropy=pi.entropy().mean(),
    )


def compute_loss_v(ac, rollout: Rollout):
    """Squared error of the value function against the rewards that followed."""
    return ((ac.v(rollout.obs) - rollout.ret) ** 2).mean()


def update(learner, rollout, *, train_v_iters):
    """One policy step on one rollout, then value steps."""
    v_losses = []
    loss_pi, _ = compute_loss_pi(learner.ac, rollout)
    gradient_step(learner.pi_optimizer, loss_pi)
    for _ in range(train_v_iters):
        v_losses.append(minimize(learner.vf_optimizer, compute_loss_v, learner.ac, rollout))
    v_losses = v_losses or [compute_loss_v(learner.ac, rollout).detach()]  # for no value steps
    with torch.no_grad():  # again, to tell how far the step went
        new_loss_pi, stats = compute_loss_pi(learner.ac, rollout)
    return stats | dict(
        LossPi=loss_pi, DeltaLossPi=new_loss_pi - loss_pi,
        LossV=v_losses[0], DeltaLossV=v_losses[-1] - v_losses[0],
    )  # fmt: skip


def make_learner(ac, pi_lr, vf_lr):
    return Learner(ac, Adam(ac.pi.parameters(), pi_lr), Adam(ac.v.parameters(), vf_lr))


def vpg(
    env_fn, actor_critic=core.MLPActorCritic, ac_kwargs=None, seed=0, steps_per_epoch=4000,
    epochs=50, gamma=0.99, pi_lr=3e-4, vf_lr=1e-3, train_v_iters=80, lam=0.97, max_ep_len=1000,
    logger_kwargs=None, save_freq=10, num_envs=1, device="cpu", resume=False,
):  # fmt: skip
    """Train a VPG agent and give back its networks.

    env_fn: makes an environment each time it is called
    actor_critic: the class of the networks; needs `pi`, `v`, `step` and `act` as core.py has them
    ac_kwargs: what it is made with, such as hidden_sizes and activation
    seed: where all randomness starts; equal seeds give equal runs
    steps_per_epoch: environment steps between two updates, over all environments and processes
    epochs: how many updates
    gamma: what a reward one step later is worth
    pi_lr: step size of the policy
    vf_lr: step size of the value function
    train_v_iters: value passes over an epoch's experience
    lam: trust in rewards seen (1) against values guessed (0) when an action is judged
    max_ep_len: steps after which an episode is cut off
    logger_kwargs: where to write, as setup_logger_kwargs makes it
    save_freq: epochs between two saved models
    num_envs: environments stepped together in each process
    device: where the networks live, such as cpu or cuda
    resume: go on from the checkpoint in the run folder, if there is one
    """
    settings = dict(locals())
    seeds, schedule = run_setup.setup(settings, backend)
    env = VectorEnv(env_fn, num_envs, seeds.env, max_ep_len)
    ac = backend.build_network(actor_critic, env, ac_kwargs, device)
    dims = run_setup.space_dims(env) | dict(num_envs=num_envs, device=device)
    buffer = VPGBuffer(**dims, size=schedule.steps_per_env, gamma=gamma, lam=lam)
    learner = make_learner(ac, pi_lr, vf_lr)
    learn = partial(update, learner, train_v_iters=train_v_iters)
    logger = run_setup.open_logger(__name__, settings, env, ac, backend)
    checkpoint = Checkpoint(logger.output_dir, learner, env=env, logger=logger)

    @torch.no_grad()
    def value_of(obs):
        return ac.v(to_tensor(obs, device)).cpu().numpy()

    for epoch in checkpoint.epochs(epochs, resume):
        for _ in logger.progress(schedule.steps(epoch), schedule.total()):
            obs = env.obs
            act, val, logp = ac.step(to_tensor(obs, device))
            step = env.step(act)
            buffer.store(obs, act, step.rew, val, logp)
            logger.store(VVals=val)
            for i, episode in zip(step.ended, step.episodes):
                logger.store(EpRet=episode.ret, EpLen=episode.length)
                v = 0 if step.terminated[i] else value_of(step.obs2[i : i + 1])[0]
                buffer.finish_path(v, i)
        for i, v in enumerate(value_of(env.obs)):
            buffer.finish_path(v, i)  # cut by the epoch, not by the task
        rollout = buffer.get()
        logger.store(**learn(rollout))
        core.update_normalizers(ac, rollout.obs)  # only now: the rollout was seen with the old ones
        logger.dump_epoch(COLUMNS, Epoch=epoch, TotalEnvInteracts=schedule.steps(epoch).stop)
        if epoch % save_freq == 0 or epoch + 1 == epochs:
            logger.save_state({})
    return ac


if __name__ == "__main__":
    from spinup.cli.train import launch

    launch(vpg, __file__)  # settings: defaults < config.json beside this file < command line
