"""A user's own vanilla policy gradient, built on names that the original library offered."""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch
from torch.optim import Adam

import spinup.algos.pytorch.vpg.core as core
from spinup.utils.logx import EpochLogger
from spinup.utils.mpi_pytorch import mpi_avg_grads, setup_pytorch_for_mpi, sync_params
from spinup.utils.mpi_tools import mpi_avg, mpi_fork, mpi_statistics_scalar, num_procs, proc_id


class VPGBuffer:
    """One epoch of experience; `path_start_idx` is where the present episode begins."""

    def __init__(self, obs_dim, act_dim, size, gamma, lam):
        self.obs_buf = np.zeros(core.combined_shape(size, obs_dim), dtype=np.float32)
        self.act_buf = np.zeros(core.combined_shape(size, act_dim), dtype=np.float32)
        names = ("rew", "val", "logp", "adv", "ret")
        self.numbers = {name: np.zeros(core.combined_shape(size), np.float32) for name in names}
        self.gamma, self.lam, self.ptr, self.path_start_idx = gamma, lam, 0, 0

    def store(self, obs, act, **numbers):
        self.obs_buf[self.ptr], self.act_buf[self.ptr] = obs, act
        for name, number in numbers.items():
            self.numbers[name][self.ptr] = number
        self.ptr += 1

    def finish_path(self, last_val):
        path = slice(self.path_start_idx, self.ptr)
        rews = np.append(self.numbers["rew"][path], last_val)
        vals = np.append(self.numbers["val"][path], last_val)
        deltas = rews[:-1] + self.gamma * vals[1:] - vals[:-1]
        self.numbers["adv"][path] = core.discount_cumsum(deltas, self.gamma * self.lam)
        self.numbers["ret"][path] = core.discount_cumsum(rews, self.gamma)[:-1]
        self.path_start_idx = self.ptr

    def get(self):
        self.ptr = self.path_start_idx = 0
        mean, std = mpi_statistics_scalar(self.numbers["adv"])
        self.numbers["adv"] = (self.numbers["adv"] - mean) / std
        data = dict(self.numbers, obs=self.obs_buf, act=self.act_buf)
        return {name: torch.as_tensor(x, dtype=torch.float32) for name, x in data.items()}


def vpg(
    env_fn,
    actor_critic,
    ac_kwargs,
    logger_kwargs,
    seed=0,
    steps_per_epoch=800,
    epochs=12,
    gamma=0.99,
    pi_lr=1e-2,
    vf_lr=1e-2,
    train_v_iters=20,
    lam=0.97,
    max_ep_len=200,
    save_freq=10,
):
    setup_pytorch_for_mpi()
    logger = EpochLogger(**logger_kwargs)
    logger.save_config(locals())
    torch.manual_seed(seed + 10000 * proc_id())
    np.random.seed(seed + 10000 * proc_id())

    env = env_fn()
    ac = actor_critic(env.observation_space, env.action_space, **ac_kwargs)
    sync_params(ac)
    var_counts = tuple(core.count_vars(module) for module in [ac.pi, ac.v])
    logger.log("Number of parameters: pi {}, v {}".format(*var_counts))
    local_steps = steps_per_epoch // num_procs()
    obs_dim, act_dim = env.observation_space.shape, env.action_space.shape
    buf = VPGBuffer(obs_dim, act_dim, local_steps, gamma, lam)

    def compute_loss_pi(data):
        pi, logp = ac.pi(data["obs"], data["act"])
        loss_pi = -(logp * data["adv"]).mean()
        approx_kl = (data["logp"] - logp).mean().item()
        return loss_pi, dict(kl=approx_kl, ent=pi.entropy().mean().item())

    def compute_loss_v(data):
        return ((ac.v(data["obs"]) - data["ret"]) ** 2).mean()

    pi_optimizer = Adam(ac.pi.parameters(), lr=pi_lr)
    vf_optimizer = Adam(ac.v.parameters(), lr=vf_lr)
    logger.setup_pytorch_saver(ac)

    def update():
        data = buf.get()
        pi_l_old = compute_loss_pi(data)[0].item()
        v_l_old = compute_loss_v(data).item()
        pi_optimizer.zero_grad()
        loss_pi, pi_info = compute_loss_pi(data)
        loss_pi.backward()
        mpi_avg_grads(ac.pi)
        pi_optimizer.step()
        for _ in range(train_v_iters):
            vf_optimizer.zero_grad()
            loss_v = compute_loss_v(data)
            loss_v.backward()
            mpi_avg_grads(ac.v)
            vf_optimizer.step()
        logger.store(LossPi=pi_l_old, LossV=v_l_old, KL=pi_info["kl"], Entropy=pi_info["ent"])
        logger.store(DeltaLossPi=loss_pi.item() - pi_l_old, DeltaLossV=loss_v.item() - v_l_old)

    start_time = time.time()
    (o, _), ep_ret, ep_len = env.reset(seed=seed + proc_id()), 0, 0
    for epoch in range(epochs):
        for t in range(local_steps):
            a, v, logp = ac.step(torch.as_tensor(o, dtype=torch.float32))
            next_o, r, terminated, truncated, _ = env.step(a)
            ep_ret, ep_len = ep_ret + r, ep_len + 1
            buf.store(o, a, rew=r, val=v, logp=logp)
            logger.store(VVals=v)
            o = next_o
            timeout = truncated or ep_len == max_ep_len
            if terminated or timeout or t == local_steps - 1:
                v = 0 if terminated else ac.step(torch.as_tensor(o, dtype=torch.float32))[1]
                buf.finish_path(v)
                if terminated or timeout:
                    logger.store(EpRet=ep_ret, EpLen=ep_len)
                (o, _), ep_ret, ep_len = env.reset(), 0, 0
        if epoch % save_freq == 0 or epoch == epochs - 1:
            logger.save_state({"env": env}, None)
        update()
        logger.log_tabular("Epoch", epoch)
        logger.log_tabular("EpRet", with_min_and_max=True)
        logger.log_tabular("EpLen", average_only=True)
        logger.log_tabular("VVals", with_min_and_max=True)
        logger.log_tabular("TotalEnvInteracts", (epoch + 1) * steps_per_epoch)
        for name in ("LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "Entropy", "KL"):
            logger.log_tabular(name, average_only=True)
        logger.log_tabular("Time", time.time() - start_time)
        logger.dump_tabular()
    return ac


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", type=str, default="CartPole-v1")
    parser.add_argument("--hid", type=int, default=32)
    parser.add_argument("--l", type=int, default=2)
    parser.add_argument("--seed", "-s", type=int, default=0)
    parser.add_argument("--cpu", type=int, default=1)
    parser.add_argument("--exp_name", type=str, default="vpg")
    args = parser.parse_args()
    mpi_fork(args.cpu)  # run parallel code with mpi

    from spinup.utils.run_utils import setup_logger_kwargs

    network = vpg(
        lambda: gym.make(args.env),
        actor_critic=core.MLPActorCritic,
        ac_kwargs=dict(hidden_sizes=[args.hid] * args.l),
        seed=args.seed,
        logger_kwargs=setup_logger_kwargs(args.exp_name, args.seed, data_dir="data"),
    )
    weights = torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy()
    np.save(f"weights{proc_id()}.npy", np.append(weights, mpi_avg(weights.sum())))
