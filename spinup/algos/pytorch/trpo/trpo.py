"""Trust Region Policy Optimization: the best step within a small KL divergence.

Read downwards: two losses, the update, the tools it is made of, the training loop around it.
Networks and the solver are in core.py, a run's settings in config.json, the theory in README.md.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from spinup.algos.pytorch.trpo import core
from spinup.parts import run_setup
from spinup.parts.checkpoint import Checkpoint
from spinup.parts.envs import VectorEnv
from spinup.parts.pytorch import backend
from spinup.parts.pytorch.buffers import GAEBuffer, Rollout
from spinup.parts.pytorch.learning import Adam, Minibatches, fit_value
from spinup.parts.pytorch.tensors import to_tensor

COLUMNS = """Epoch EpRet* EpLen VVals* TotalEnvInteracts LossPi LossV DeltaLossPi DeltaLossV
    KL BacktrackIters Time"""
LIMITS = dict(algo=("trpo", "npg"))


@dataclass
class Learner:
    """All that the update reads and writes."""

    ac: nn.Module  # policy pi and value function v
    vf_optimizer: Adam  # the policy needs none: the length of its step is computed


def compute_loss_pi(ac, rollout: Rollout, old_pi):
    """The surrogate: minus the expected advantage, by importance sampling; and the mean KL."""
    pi, logp = ac.pi(rollout.obs, rollout.act)
    ratio = torch.exp(logp - rollout.logp)
    kl = core.kl_divergence(old_pi, pi)  # one row per state, perhaps a number per dimension
    return -(ratio * rollout.adv).mean(), kl.sum() / len(kl)


def compute_loss_v(ac, rollout: Rollout):
    """Squared error of the value function against the rewards that followed."""
    return ((ac.v(rollout.obs) - rollout.ret) ** 2).mean()


def update(learner, rollout, *, delta, damping_coeff, cg_iters, train_v_iters, **search):
    """One policy step to the edge of the trust region, then value steps, all on one rollout."""
    ac, params = learner.ac, core.trainable(learner.ac.pi)
    with torch.no_grad():
        old_pi, _ = ac.pi(rollout.obs, rollout.act)
    loss, kl = compute_loss_pi(ac, rollout, old_pi)
    g = core.average(core.flat_grad(loss, params, retain_graph=True))
    H = core.hessian_vector_product(kl, params, damping_coeff)  # the Fisher matrix, as v -> Hv
    x = core.conjugate_gradient(H, g, cg_iters)  # the direction: Hx = g
    xHx = (x @ H(x)).item()
    step = (2 * delta / xHx) ** 0.5 * x if 0 < xHx < torch.inf else torch.zeros_like(x)
    stats = line_search(ac, rollout, old_pi, step, delta, **search)
    v_batches = Minibatches(rollout, train_v_iters)
    return stats | fit_value(learner, compute_loss_v, v_batches)


@torch.no_grad()
def line_search(
    ac, rollout, old_pi, step, delta, *, backtrack_iters, backtrack_coeff, algo="trpo", log=print
):
    """Shorten the step until the policy is better yet near; if it never is, keep the old one."""
    params, now = core.trainable(ac.pi), partial(compute_loss_pi, ac, rollout, old_pi)
    old_params = core.flat_concat(params)
    old_loss, _ = core.average(core.flat_concat(now())).tolist()
    for i in range(backtrack_iters):
        core.assign_params_from_flat(old_params - backtrack_coeff**i * step, params)
        loss, kl = core.average(core.flat_concat(now())).tolist()  # all processes decide alike
        if algo == "npg" or (loss < old_loss and kl <= delta):
            break
    else:
        core.assign_params_from_flat(old_params, params)
        i, loss, kl = backtrack_iters, old_loss, 0
        log("The line search found no step that is better and near; the old policy stays.")
    return dict(LossPi=old_loss, DeltaLossPi=loss - old_loss, KL=kl, BacktrackIters=i)


def make_learner(ac, vf_lr):
    return Learner(ac, Adam(ac.v.parameters(), vf_lr))


def trpo(
    env_fn, actor_critic=core.MLPActorCritic, ac_kwargs=None, seed=0, steps_per_epoch=4000,
    epochs=50, gamma=0.99, delta=0.01, vf_lr=1e-3, train_v_iters=80, damping_coeff=0.1,
    cg_iters=10, backtrack_iters=10, backtrack_coeff=0.8, lam=0.97, max_ep_len=1000,
    logger_kwargs=None, save_freq=10, algo="trpo", num_envs=1, device="cpu", resume=False,
):  # fmt: skip
    """Train a TRPO agent and give back its networks.

    env_fn: makes an environment each time it is called
    actor_critic: the class of the networks; needs `pi`, `v`, `step` and `act` as core.py has them
    ac_kwargs: what it is made with, such as hidden_sizes and activation
    seed: where all randomness starts; equal seeds give equal runs
    steps_per_epoch: environment steps between two updates, over all environments and processes
    epochs: how many updates
    gamma: discount factor, what a reward one step later is worth
    delta: size of the trust region, the mean KL divergence that an update may reach
    vf_lr: learning rate of the value function
    train_v_iters: value passes over an epoch's experience
    damping_coeff: added to the diagonal of the Fisher matrix, which may be nearly singular
    cg_iters: iterations of conjugate gradient, at most
    backtrack_iters: attempts of the backtracking line search, at most
    backtrack_coeff: factor of the step's length at each further attempt
    lam: GAE lambda of the advantages: 1 is Monte Carlo, 0 is the one-step TD error
    max_ep_len: steps after which an episode is truncated
    logger_kwargs: where to write, as setup_logger_kwargs makes it
    save_freq: epochs between two saved models
    algo: trpo, or npg for the natural policy gradient, which has no line search
    num_envs: environments stepped together in each process
    device: where the networks live, such as cpu or cuda
    resume: continue from the checkpoint in the run folder, if there is one
    """
    settings = dict(locals())
    seeds, schedule = run_setup.setup(settings, backend, **LIMITS)
    env = VectorEnv(env_fn, num_envs, seeds.env, max_ep_len)
    ac = backend.build_network(actor_critic, env, ac_kwargs, device)
    dims = run_setup.space_dims(env) | dict(num_envs=num_envs, device=device)
    buffer = GAEBuffer(size=schedule.steps_per_env, gamma=gamma, lam=lam, **dims)
    learner = make_learner(ac, vf_lr)
    logger = run_setup.open_logger(__name__, settings, env, ac, backend)
    fixed = run_setup.settings_for(settings, update, line_search)
    learn = partial(update, learner, log=logger.log, **fixed)
    checkpoint = Checkpoint(learner, env=env, logger=logger)

    @torch.no_grad()
    def value_of(obs):
        return ac.v(to_tensor(obs, device)).cpu().numpy()

    for epoch in checkpoint.epochs(epochs, resume):  # restores; saves after each; closes at last
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

    launch(trpo, __file__)  # settings: defaults < config.json beside this file < command line
