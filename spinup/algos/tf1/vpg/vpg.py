"""Vanilla Policy Gradient: make what turned out better than expected more probable, step by step.

The same as algos/pytorch/vpg/vpg.py, as a computation graph. Read downwards: two losses, the update
made of calls into the graph, the graph itself in make_learner, the training loop around the update.
Networks are in core.py, the settings of a run in config.json, a drawing of the graph in README.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from spinup.algos.tf1.vpg import core
from spinup.parts import run_setup
from spinup.parts.buffers import GAEBuffer as VPGBuffer
from spinup.parts.buffers import Rollout
from spinup.parts.checkpoint import Checkpoint
from spinup.parts.envs import VectorEnv
from spinup.parts.tf1 import backend
from spinup.parts.tf1.framework import tf
from spinup.parts.tf1.learning import Variables, fit_value, make_call, new_graph, start_session
from spinup.parts.tf1.models import network_kwargs
from spinup.parts.tf1.mpi import MpiAdamOptimizer
from spinup.parts.tf1.networks import Networks

COLUMNS = """Epoch EpRet* EpLen VVals* TotalEnvInteracts LossPi LossV DeltaLossPi DeltaLossV
    Entropy KL Time KLNonNegative"""


@dataclass
class Learner:
    """All that the update reads and writes: variables of a session, and calls into its graph."""

    ac: Networks
    variables: Variables  # weights, optimizer slots, places in random streams
    step: Callable  # obs -> act, v, logp
    v: Callable  # obs -> v
    loss_pi: Callable  # each of these: rollout -> loss, and statistics of the policy
    loss_v: Callable
    train_pi: Callable  # the same, and a step of the optimizer
    train_v: Callable


def compute_loss_pi(ac, rollout: Rollout):
    """Its gradient is the policy gradient; its value says nothing about the policy."""
    log_ratio = ac.logp - rollout.logp
    loss = -tf.reduce_mean(ac.logp * rollout.adv)
    return loss, dict(
        KL=-tf.reduce_mean(log_ratio),
        KLNonNegative=tf.reduce_mean(tf.nn.relu(tf.math.expm1(log_ratio) - log_ratio)),
        Entropy=ac.mean_entropy(),
    )


def compute_loss_v(ac, rollout: Rollout):
    """Squared error of the value function against the rewards that followed."""
    return tf.reduce_mean((ac.v - rollout.ret) ** 2)


def update(learner, rollout, *, train_v_iters):
    """One policy step on one rollout, and value steps."""
    loss, _, _ = learner.train_pi(*rollout)
    new_loss, stats = learner.loss_pi(*rollout)  # again, to tell how far the step went
    stats |= dict(LossPi=loss, DeltaLossPi=new_loss - loss)
    return stats | fit_value(learner, rollout, train_v_iters)


def make_learner(actor_critic, env, ac_kwargs, device, pi_lr, vf_lr):
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
        loss_pi, stats = compute_loss_pi(ac, rollout)
        loss_v = compute_loss_v(ac, rollout)

        # Training ops: one step each, after everything else has been computed
        with tf.control_dependencies([loss_pi, *stats.values()]):
            train_pi = MpiAdamOptimizer(pi_lr).minimize(loss_pi)
        train_v = MpiAdamOptimizer(vf_lr).minimize(loss_v)

        # One session, in which all of it runs
        session = start_session()
        call = partial(make_call, session)
        return Learner(
            ac=Networks(session, dict(x=obs, a=act), ac.outputs()),
            variables=Variables(session),
            step=call([obs], (ac.pi, ac.v, ac.logp_pi)),
            v=call([obs], ac.v),
            loss_pi=call(rollout, (loss_pi, stats)),
            loss_v=call(rollout, loss_v),
            train_pi=call(rollout, (loss_pi, stats, train_pi)),
            train_v=call(rollout, (loss_v, train_v)),
        )


def vpg(
    env_fn, actor_critic=core.mlp_actor_critic, ac_kwargs=None, seed=0, steps_per_epoch=4000,
    epochs=50, gamma=0.99, pi_lr=3e-4, vf_lr=1e-3, train_v_iters=80, lam=0.97, max_ep_len=1000,
    logger_kwargs=None, save_freq=10, num_envs=1, device="cpu", resume=False,
):  # fmt: skip
    """Train a VPG agent and give back its networks.

    env_fn: makes an environment each time it is called
    actor_critic: makes the networks of two placeholders, as mlp_actor_critic of core.py does
    ac_kwargs: what it is called with, such as hidden_sizes and activation
    seed: where all randomness starts; equal seeds give equal runs
    steps_per_epoch: environment steps between two updates, over all environments and processes
    epochs: how many updates
    gamma: discount factor, what a reward one step later is worth
    pi_lr: learning rate of the policy
    vf_lr: learning rate of the value function
    train_v_iters: value passes over an epoch's experience
    lam: GAE lambda of the advantages: 1 is Monte Carlo, 0 is the one-step TD error
    max_ep_len: steps after which an episode is truncated
    logger_kwargs: where to write, as setup_logger_kwargs makes it
    save_freq: epochs between two saved models
    num_envs: environments stepped together in each process
    device: where the networks live, such as cpu or cuda
    resume: continue from the checkpoint in the run folder, if there is one
    """
    settings = dict(locals())
    seeds, schedule = run_setup.setup(settings, backend)
    env = VectorEnv(env_fn, num_envs, seeds.env, max_ep_len)
    dims = run_setup.space_dims(env) | dict(num_envs=num_envs)
    buffer = VPGBuffer(**dims, size=schedule.steps_per_env, gamma=gamma, lam=lam)
    learner = make_learner(actor_critic, env, ac_kwargs, device, pi_lr, vf_lr)
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

    launch(vpg, __file__)  # settings: defaults < config.json beside this file < command line
