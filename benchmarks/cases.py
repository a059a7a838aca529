"""What is trained to measure speed, and the clock that is looked at meanwhile.

Every library trains the same case; the clock sits inside the environment, so it sees the same of
all of them: the steps, and what happens between the steps.
"""

import time
from dataclasses import dataclass

REPLAY = {"sac", "td3", "ddpg", "dqn"}  # those that learn from old transitions


@dataclass(frozen=True)
class Case:
    """One training: the work that every library is given alike."""

    algorithm: str
    env: str
    hidden: tuple[int, ...]
    batch: int  # rows of one gradient step; of the whole rollout: full batch
    every: int  # environment steps between two blocks of updates; or those of one rollout
    passes: int = 0  # passes over a rollout, of the policy and of the value function
    num_envs: int = 1
    quick: bool = False  # also measured with --quick

    @property
    def name(self) -> str:
        words = [self.algorithm.upper(), self.env.partition("-")[0]]
        if self.algorithm in REPLAY:
            words.append(f"batch {self.batch}")
        elif self.batch < self.every:
            words.append(f"minibatches of {self.batch}")
        if self.algorithm not in REPLAY:
            words.append(f"{self.num_envs} environment{'s' * (self.num_envs > 1)}")
        return ", ".join([" ".join(words[:2]), *words[2:]])

    @property
    def warm(self) -> int:
        """Steps before the clock starts: some updates of every shape, and all compiling."""
        return self.begin + max(2 * self.every, 100) if self.algorithm in REPLAY else self.every

    @property
    def begin(self) -> int:
        """Steps at random before the first update of one that learns from old transitions."""
        return -(-1000 // self.every) * self.every


CHEETAH, CARTPOLE = "HalfCheetah-v5", "CartPole-v1"
CASES = [
    Case("sac", CHEETAH, (256, 256), 100, every=50, quick=True),
    Case("td3", CHEETAH, (256, 256), 100, every=50),
    Case("ddpg", CHEETAH, (256, 256), 100, every=50),
    Case("sac", CHEETAH, (256, 256), 256, every=50),
    Case("td3", CHEETAH, (256, 256), 256, every=50),
    Case("ddpg", CHEETAH, (256, 256), 256, every=50),
    Case("ppo", CHEETAH, (64, 64), 4000, every=4000, passes=80, quick=True),
    Case("ppo", CHEETAH, (64, 64), 4000, every=4000, passes=80, num_envs=8),
    # The setting that Stable-Baselines3 comes with.
    Case("ppo", CHEETAH, (64, 64), 64, every=2048, passes=10),
    Case("ppo", CHEETAH, (64, 64), 64, every=2048, passes=10, num_envs=8),
    Case("vpg", CHEETAH, (64, 64), 4000, every=4000, passes=80),
    Case("trpo", CHEETAH, (64, 64), 4000, every=4000, passes=80),
    Case("dqn", CARTPOLE, (64, 64), 64, every=1, quick=True),
    Case("ppo", CARTPOLE, (64, 64), 4000, every=4000, passes=80),
    Case("ppo", CARTPOLE, (64, 64), 4000, every=4000, passes=80, num_envs=8),
]


class Measured(Exception):
    """The clock has run long enough; nothing is to be trained any more."""


@dataclass
class Clock:
    """Counts the steps of all environments of a process and tells how long they took.

    It starts with the first step after the warm-up and stops with the first step of a later block,
    as soon as `least` seconds have gone by: so every step counted has had its updates.
    """

    warm: int
    block: int
    least: float
    steps: int = 0
    began: float = 0.0
    seconds: float = 0.0  # until the last beginning of a block

    @property
    def timed(self) -> int:
        return self.steps - self.warm

    def tick(self):
        """Note that a step is about to be taken."""
        if self.steps >= self.warm and (self.steps - self.warm) % self.block == 0:
            now = time.perf_counter()
            self.began = self.began or now
            self.seconds = now - self.began
            if self.seconds >= self.least:
                raise Measured
        self.steps += 1


def clock_for(case: Case, least: float) -> Clock:
    block = max(case.every, 50)  # one step is too short to look at the clock
    return Clock(case.warm, block, least)


def make_env(env_name: str, clock: Clock):
    """An environment as Gymnasium makes it, with the clock inside, below every wrapper."""
    import gymnasium as gym

    env = gym.make(env_name, disable_env_checker=True)
    bare = env.unwrapped
    step = bare.step

    def counted(action):
        clock.tick()
        return step(action)

    bare.step = counted
    return env
