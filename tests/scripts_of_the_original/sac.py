"""A user's own SAC, built on names that the original library offered."""

import argparse
import itertools
import time
from copy import deepcopy

import gymnasium as gym
import numpy as np
import torch
from torch.optim import Adam

import spinup.algos.pytorch.sac.core as core
from spinup.utils.logx import EpochLogger


class ReplayBuffer:
    """The last transitions, in arrays that are overwritten in turn."""

    def __init__(self, obs_dim, act_dim, size):
        self.obs_buf = np.zeros(core.combined_shape(size, obs_dim), dtype=np.float32)
        self.obs2_buf = np.zeros(core.combined_shape(size, obs_dim), dtype=np.float32)
        self.act_buf = np.zeros(core.combined_shape(size, act_dim), dtype=np.float32)
        self.rew_buf, self.done_buf = np.zeros((2, size), dtype=np.float32)
        self.ptr, self.size, self.max_size = 0, 0, size

    def store(self, obs, act, rew, next_obs, done):
        self.obs_buf[self.ptr], self.obs2_buf[self.ptr] = obs, next_obs
        self.act_buf[self.ptr], self.rew_buf[self.ptr] = act, rew
        self.done_buf[self.ptr] = done
        self.ptr = (self.ptr + 1) % self.max_size
        self.size = min(self.size + 1, self.max_size)

    def sample_batch(self, batch_size=32):
        idxs = np.random.randint(0, self.size, size=batch_size)
        batch = dict(
            obs=self.obs_buf[idxs],
            obs2=self.obs2_buf[idxs],
            act=self.act_buf[idxs],
            rew=self.rew_buf[idxs],
            done=self.done_buf[idxs],
        )
        return {k: torch.as_tensor(v, dtype=torch.float32) for k, v in batch.items()}


def sac(
    env_fn,
    actor_critic,
    ac_kwargs,
    logger_kwargs,
    seed=0,
    steps_per_epoch=200,
    epochs=2,
    replay_size=int(1e4),
    gamma=0.9,
    polyak=0.98,
    lr=3e-3,
    alpha=0.1,
    batch_size=32,
    start_steps=100,
    update_after=100,
    update_every=50,
    num_test_episodes=5,
    max_ep_len=20,
    save_freq=1,
):
    logger = EpochLogger(**logger_kwargs)
    logger.save_config(locals())
    torch.manual_seed(seed)
    np.random.seed(seed)

    env, test_env = env_fn(), env_fn()
    obs_dim = env.observation_space.shape
    act_dim = env.action_space.shape[0]
    act_limit = env.action_space.high[0]
    env.action_space.seed(seed)
    ac = actor_critic(env.observation_space, env.action_space, **ac_kwargs)
    assert ac.pi.act_limit == act_limit
    ac_targ = deepcopy(ac)
    for p in ac_targ.parameters():
        p.requires_grad = False
    q_params = itertools.chain(ac.q1.parameters(), ac.q2.parameters())
    replay_buffer = ReplayBuffer(obs_dim=obs_dim, act_dim=act_dim, size=replay_size)
    var_counts = tuple(core.count_vars(module) for module in [ac.pi, ac.q1, ac.q2])
    logger.log("Number of parameters: pi {}, q1 {}, q2 {}".format(*var_counts))

    def compute_loss_q(data):
        q1, q2 = ac.q1(data["obs"], data["act"]), ac.q2(data["obs"], data["act"])
        with torch.no_grad():
            a2, logp_a2 = ac.pi(data["obs2"])
            q_pi_targ = torch.min(ac_targ.q1(data["obs2"], a2), ac_targ.q2(data["obs2"], a2))
            backup = data["rew"] + gamma * (1 - data["done"]) * (q_pi_targ - alpha * logp_a2)
        loss_q = ((q1 - backup) ** 2).mean() + ((q2 - backup) ** 2).mean()
        return loss_q, dict(Q1Vals=q1.detach().numpy(), Q2Vals=q2.detach().numpy())

    def compute_loss_pi(data):
        pi, logp_pi = ac.pi(data["obs"])
        q_pi = torch.min(ac.q1(data["obs"], pi), ac.q2(data["obs"], pi))
        return (alpha * logp_pi - q_pi).mean(), dict(LogPi=logp_pi.detach().numpy())

    pi_optimizer = Adam(ac.pi.parameters(), lr=lr)
    q_optimizer = Adam(q_params, lr=lr)
    critics = [*ac.q1.parameters(), *ac.q2.parameters()]  # a chain can be read once only
    logger.setup_pytorch_saver(ac)

    def update(data):
        q_optimizer.zero_grad()
        loss_q, loss_info = compute_loss_q(data)
        loss_q.backward()
        q_optimizer.step()

        logger.store(LossQ=loss_q.item(), **loss_info)
        for p in critics:
            p.requires_grad = False
        before = [p.clone() for p in critics]
        pi_optimizer.zero_grad()
        loss_pi, pi_info = compute_loss_pi(data)
        loss_pi.backward()
        pi_optimizer.step()
        assert all(torch.equal(p, old) for p, old in zip(critics, before))
        for p in critics:
            p.requires_grad = True

        logger.store(LossPi=loss_pi.item(), **pi_info)
        with torch.no_grad():
            for p, p_targ in zip(ac.parameters(), ac_targ.parameters()):
                p_targ.data.mul_(polyak)
                p_targ.data.add_((1 - polyak) * p.data)

    def get_action(o, deterministic=False):
        return ac.act(torch.as_tensor(o, dtype=torch.float32), deterministic)

    def test_agent():
        for _ in range(num_test_episodes):
            (o, _), d, ep_ret, ep_len = test_env.reset(), False, 0, 0
            while not (d or ep_len == max_ep_len):
                o, r, terminated, truncated, _ = test_env.step(get_action(o, True))
                d, ep_ret, ep_len = terminated or truncated, ep_ret + r, ep_len + 1
            logger.store(TestEpRet=ep_ret, TestEpLen=ep_len)

    start_time = time.time()
    total_steps = steps_per_epoch * epochs
    (o, _), ep_ret, ep_len = env.reset(seed=seed), 0, 0
    for t in range(total_steps):
        a = get_action(o) if t > start_steps else env.action_space.sample()
        o2, r, terminated, truncated, _ = env.step(a)
        ep_ret, ep_len = ep_ret + r, ep_len + 1
        replay_buffer.store(o, a, r, o2, terminated)
        o = o2
        if terminated or truncated or ep_len == max_ep_len:
            logger.store(EpRet=ep_ret, EpLen=ep_len)
            (o, _), ep_ret, ep_len = env.reset(), 0, 0
        if t >= update_after and t % update_every == 0:
            for _ in range(update_every):
                update(data=replay_buffer.sample_batch(batch_size))
        if (t + 1) % steps_per_epoch == 0:
            epoch = (t + 1) // steps_per_epoch
            if epoch % save_freq == 0 or epoch == epochs:
                logger.save_state({"env": env}, None)
            test_agent()
            logger.log_tabular("Epoch", epoch)
            logger.log_tabular("EpRet", with_min_and_max=True)
            logger.log_tabular("TestEpRet", with_min_and_max=True)
            logger.log_tabular("EpLen", average_only=True)
            logger.log_tabular("TestEpLen", average_only=True)
            logger.log_tabular("TotalEnvInteracts", t)
            logger.log_tabular("Q1Vals", with_min_and_max=True)
            logger.log_tabular("Q2Vals", with_min_and_max=True)
            logger.log_tabular("LogPi", with_min_and_max=True)
            logger.log_tabular("LossPi", average_only=True)
            logger.log_tabular("LossQ", average_only=True)
            logger.log_tabular("Time", time.time() - start_time)
            logger.dump_tabular()
    return ac


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", type=str, default="point:Point-v0")
    parser.add_argument("--hid", type=int, default=32)
    parser.add_argument("--l", type=int, default=2)
    parser.add_argument("--seed", "-s", type=int, default=0)
    parser.add_argument("--exp_name", type=str, default="sac")
    args = parser.parse_args()

    from spinup.utils.run_utils import setup_logger_kwargs

    network = sac(
        lambda: gym.make(args.env),
        actor_critic=core.MLPActorCritic,
        ac_kwargs=dict(hidden_sizes=[args.hid] * args.l),
        seed=args.seed,
        logger_kwargs=setup_logger_kwargs(args.exp_name, args.seed, data_dir="data"),
    )
    weights = torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy()
    np.save("weights0.npy", weights)
