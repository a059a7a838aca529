"""Proximal Policy Optimization: improve the policy on fresh experience, but not too far at once.

The same as algos/pytorch/ppo/ppo.py, as a computation graph. Read downwards: two losses, the update
made of calls into the graph, the graph itself in make_learner, the training loop around the update.
Networks are in core.py, the settings of a run in config.json, a drawing of the graph in README.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from spinup.algos.tf1.ppo import core
from spinup.parts import run_setup
from spinup.parts.buffers import GAEBuffer as PPOBuffer
from spinup.parts.buffers import Rollout
from spinup.parts.checkpoint import Checkpoint
from spinup.parts.envs import VectorEnv
from spinup.parts.tf1 import backend
from spinup.parts.tf1.framework import tf
from spinup.parts.tf1.learning import (
    RecentMean,
    Variables,
    fit_value,
    make_call,
    minibatches,
    new_graph,
    start_session,
    step_if,
)
from spinup.parts.tf1.models import network_kwargs
from spinup.parts.tf1.mpi import MpiAdamOptimizer, mpi_mean
from spinup.parts.tf1.networks import Networks

COLUMNS = """Epoch EpRet* EpLen VVals* TotalEnvInteracts LossPi LossV DeltaLossPi DeltaLossV
    Entropy KL ClipFrac StopIter Time KLNonNegative"""


@dataclass
class Learner:
    """All that the update reads and writes: variables of a session, and calls into its graph."""

    ac: Networks
    variables: Variables  # weights, optimizer slots, places in random streams
    step: Callable  # obs -> act, v, logp
    v: Callable  # obs -> v
    loss_v: Callable  # rollout -> loss
    train_pi: Callable  # rollout, largest KL -> loss, statistics, mean KL, whether it took a step
    train_v: Callable  # rollout -> loss, and a step of the optimizer


def compute_loss_pi(ac, rollout: Rollout, *, clip_ratio, ent_coef=0.0):
    """The clipped surrogate: no reward for moving an action's probability past the clip."""
    log_ratio = ac.logp - rollout.logp
    ratio = tf.exp(log_ratio)
    clipped = tf.clip_by_value(ratio, 1 - clip_ratio, 1 + clip_ratio)
    entropy = ac.mean_entropy(ent_coef)
    surrogate = tf.minimum(ratio * rollout.adv, clipped * rollout.adv)
    loss = -tf.reduce_mean(surrogate) - ent_coef * entropy
    return loss, dict(
        KL=-tf.reduce_mean(log_ratio),
        KLNonNegative=tf.reduce_mean(tf.nn.relu(tf.math.expm1(log_ratio) - log_ratio)),
        Entropy=entropy,
        ClipFrac=tf.reduce_mean(tf.cast(tf.not_equal(ratio, clipped), tf.float32)),
    )


def compute_loss_v(ac, rollout: Rollout):
    """Squared error of the value function against the rewards that followed."""
    return tf.reduce_mean((ac.v - rollout.ret) ** 2)


def update(learner, rollout, *, target_kl, train_pi_iters, train_v_iters, minibatch_size=None):
    """Policy steps on one rollout until the policy has moved far enough, and value steps."""
    largest_kl = np.inf if target_kl is None else 1.5 * target_kl
    largest_kl = largest_kl if train_pi_iters else -np.inf  # no steps: the loss as it is
    kl = RecentMean(1 if minibatch_size is None else -(-len(rollout.ret) // minibatch_size))
    losses = []
    for i, batch in minibatches(rollout, max(train_pi_iters, 1), minibatch_size):
        # The graph takes the step unless the mean over a pass would be beyond largest_kl.
        loss, stats, mean_kl, stepped = learner.train_pi(*batch, kl.largest_next(largest_kl))
        losses.append(loss)
        kl.add(mean_kl)
        if not stepped:
            break
    stats |= dict(LossPi=losses[0], DeltaLossPi=losses[-1] - losses[0], StopIter=i)
    return stats | fit_value(learner, rollout, train_v_iters, minibatch_size)


def make_learner(
    actor_critic, env, ac_kwargs, device, pi_lr, vf_lr, max_grad_norm=None, **loss_settings
):
    """Build the graph: placeholders, networks, losses, training ops; and one session to run it."""
    kwargs = network_kwargs(actor_critic, env, ac_kwargs)
    with new_graph(device):
        # Placeholders: where a rollout goes in
        obs = core.placeholder_from_space(env.observation_space)
        act = core.action_placeholder(env.action_space)
        ret, adv, logp_old = core.placeholders(None, None, None)
        rollout = Rollout(obs=obs, act=act, ret=ret, adv=adv, logp=logp_old)

        # Networks
        ac = core.ActorCritic.of(actor_critic(obs, act, **kwargs))

        # Losses
        loss_pi, stats = compute_loss_pi(ac, rollout, **loss_settings)
        loss_v = compute_loss_v(ac, rollout)

        # Training ops: one step each, that of the policy only where KL allows it
        largest_kl, mean_kl = tf.placeholder(tf.float32, ()), mpi_mean(stats["KL"])
        pi_optimizer, vf_optimizer = (
            MpiAdamOptimizer(lr, max_grad_norm=max_grad_norm) for lr in (pi_lr, vf_lr)
        )
        with tf.control_dependencies([mean_kl, *stats.values()]):  # these first, of the old policy
            gradients = pi_optimizer.compute_gradients(loss_pi)
            train_pi = step_if(mean_kl <= largest_kl, pi_optimizer, gradients)
        train_v = vf_optimizer.minimize(loss_v)

        # One session, in which all of it runs
        session = start_session()
        call = partial(make_call, session)
        return Learner(
            ac=Networks(session, dict(x=obs, a=act), ac.outputs()),
            variables=Variables(session),
            step=call([obs], (ac.pi, ac.v, ac.logp_pi)),
            v=call([obs], ac.v),
            loss_v=call(rollout, loss_v),
            train_pi=call([*rollout, largest_kl], (loss_pi, stats, mean_kl, train_pi)),
            train_v=call(rollout, (loss_v, train_v)),
        )


def ppo(
    env_fn, actor_critic=core.mlp_actor_critic, ac_kwargs=None, seed=0, steps_per_epoch=4000,
    epochs=50, gamma=0.99, clip_ratio=0.2, pi_lr=3e-4, vf_lr=1e-3, train_pi_iters=80,
    train_v_iters=80, lam=0.97, max_ep_len=1000, target_kl=0.01, logger_kwargs=None,
    save_freq=10, num_envs=1, device="cpu", resume=False, minibatch_size=None, ent_coef=0.0,
    max_grad_norm=None,
):  # fmt: skip
    """Train a PPO agent and give back its networks.

    env_fn: makes an environment each time it is called
    actor_critic: makes the networks of two placeholders, as mlp_actor_critic of core.py does
    ac_kwargs: what it is called with, such as hidden_sizes and activation
    seed: where all randomness starts; equal seeds give equal runs
    steps_per_epoch: environment steps between two updates, over all environments and processes
    epochs: how many updates
    gamma: discount factor, what a reward one step later is worth
    clip_ratio: how far the probability ratio of an action may move from 1 and still be rewarded
    pi_lr: learning rate of the policy
    vf_lr: learning rate of the value function
    train_pi_iters: policy passes over an epoch's experience, at most
    train_v_iters: value passes over an epoch's experience
    lam: GAE lambda of the advantages: 1 is Monte Carlo, 0 is the one-step TD error
    max_ep_len: steps after which an episode is truncated
    target_kl: early stopping of an epoch's policy steps, at a KL of 1.5 times this; none: never
    logger_kwargs: where to write, as setup_logger_kwargs makes it
    save_freq: epochs between two saved models
    num_envs: environments stepped together in each process
    device: where the networks live, such as cpu or cuda
    resume: continue from the checkpoint in the run folder, if there is one
    minibatch_size: rows per gradient step in each process; none: the whole rollout at once
    ent_coef: entropy coefficient, the weight of the entropy per action dimension in the loss
    max_grad_norm: gradient-norm clipping, the largest norm of a gradient; none: no clipping
    """
    settings = dict(locals())
    seeds, schedule = run_setup.setup(settings, backend)
    env = VectorEnv(env_fn, num_envs, seeds.env, max_ep_len)
    dims = run_setup.space_dims(env) | dict(num_envs=num_envs)
    buffer = PPOBuffer(**dims, size=schedule.steps_per_env, gamma=gamma, lam=lam)
    loss_settings = run_setup.settings_for(settings, compute_loss_pi)
    learner = make_learner(
        actor_critic, env, ac_kwargs, device, pi_lr, vf_lr, max_grad_norm, **loss_settings
    )
    learn = partial(update, learner, **run_setup.settings_for(settings, update))
    logger = run_setup.open_logger(__name__, settings, env, learner.ac, backend)
    checkpoint = Checkpoint(networks=learner.variables, env=env, logger=logger)

    for epoch in checkpoint.epochs(epochs, resume):  # restores; saves after each; closes at last
        for _ in logger.progress(schedule.steps(epoch), schedule.total()):
            obs = env.obs
            act, val, logp = learner.step(obs)
            step = env.step(act)
            buffer.store(obs, act, step.rew, val, logp)
            logger.store(VVals=val)
            for i, episode in zip(step.ended, step.episodes):
                logger.store(EpRet=episode.ret, EpLen=episode.length)
                v = 0 if step.terminated[i] else learner.v(step.obs2[i : i + 1])[0]
                buffer.finish_path(v, i)
        for i, v in enumerate(learner.v(env.obs)):
            buffer.finish_path(v, i)  # cut by the epoch, not by the task
        logger.store(**learn(buffer.get()))
        logger.dump_epoch(COLUMNS, Epoch=epoch, TotalEnvInteracts=schedule.steps(epoch).stop)
        if epoch % save_freq == 0 or epoch + 1 == epochs:
            logger.save_state({})
    return learner.ac


if __name__ == "__main__":
    from spinup.cli.train import launch

    launch(ppo, __file__)  # settings: defaults < config.json beside this file < command line
