"""The limit: how fast a case would be if only its matrix products and its simulator took time.

An update of a network of sizes (i, h, o) on a batch of B rows has, for each layer, one product
forward and two backward: for the gradient of the weights, and for that of the layer's input, which
the first layer is spared unless somebody asks for it. `forward` and `backward` list their shapes;
one function per algorithm says which of them its update is made of. Everything else an update does
(activations, losses, optimizers, moving targets, sampling batches) counts as nothing, and so does
acting.

The products are done by PyTorch into memory that is already there, each on tensors of its own, with
one thread and with all; the faster counts. The simulator is Gymnasium's environment without its
wrappers, given random actions.
"""

import time
from typing import NamedTuple

from cases import Case


class Product(NamedTuple):
    """`copies` times (rows x inner) by (inner x columns), in one batched product."""

    copies: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        return 2 * self.copies * self.rows * self.inner * self.columns


def forward(sizes, rows, copies=1) -> list[Product]:
    """What a network's output takes."""
    return [Product(copies, rows, i, o) for i, o in zip(sizes, sizes[1:])]


def backward(sizes, rows, copies=1) -> list[Product]:
    """What the gradient of a network's weights takes."""
    weights = [Product(copies, i, rows, o) for i, o in zip(sizes, sizes[1:])]
    return weights + [Product(copies, rows, o, i) for i, o in zip(sizes[1:], sizes[2:])]


def backward_to_input(sizes, rows, wanted, copies=1) -> list[Product]:
    """What the gradient of the last `wanted` inputs takes, the weights being left alone."""
    sizes = (wanted, *sizes[1:])
    return [Product(copies, rows, o, i) for i, o in zip(sizes, sizes[1:])]


def sac(case: Case, obs: int, act: int) -> list[Product]:
    """The policy gives mean and deviation in one product; both critics go in a batched one."""
    pi, q, rows = (obs, *case.hidden, 2 * act), (obs + act, *case.hidden, 1), case.batch
    return [
        *forward(pi, rows),  # the next action
        *forward(q, rows, 2),  # what the slow critics say of it
        *forward(q, rows, 2),  # the critics' loss
        *backward(q, rows, 2),
        *forward(pi, rows),  # the policy's loss
        *forward(q, rows, 2),
        *backward_to_input(q, rows, act, 2),
        *backward(pi, rows),
    ]


def td3(case: Case, obs: int, act: int) -> list[Product]:
    """Two updates, of which one moves the policy."""
    pi, q, rows = (obs, *case.hidden, act), (obs + act, *case.hidden, 1), case.batch
    critics = [*forward(pi, rows), *forward(q, rows, 2), *forward(q, rows, 2)]
    critics += backward(q, rows, 2)
    policy = [*forward(pi, rows), *forward(q, rows), *backward_to_input(q, rows, act)]
    return critics + critics + policy + backward(pi, rows)


def ddpg(case: Case, obs: int, act: int) -> list[Product]:
    pi, q, rows = (obs, *case.hidden, act), (obs + act, *case.hidden, 1), case.batch
    critic = [*forward(pi, rows), *forward(q, rows), *forward(q, rows), *backward(q, rows)]
    policy = [*forward(pi, rows), *forward(q, rows), *backward_to_input(q, rows, act)]
    return critic + policy + backward(pi, rows)


def dqn(case: Case, obs: int, act: int) -> list[Product]:
    q, rows = (obs, *case.hidden, act), case.batch
    return [*forward(q, rows), *forward(q, rows), *backward(q, rows)]


def ppo(case: Case, obs: int, act: int) -> list[Product]:
    """One gradient step of the policy and one of the value function."""
    pi, v, rows = (obs, *case.hidden, act), (obs, *case.hidden, 1), case.batch
    return [*forward(pi, rows), *backward(pi, rows), *forward(v, rows), *backward(v, rows)]


def vpg(case: Case, obs: int, act: int) -> list[Product]:
    """One step of the policy, and the value function's passes."""
    pi, v, rows = (obs, *case.hidden, act), (obs, *case.hidden, 1), case.batch
    value = [*forward(v, rows), *backward(v, rows)]
    return [*forward(pi, rows), *backward(pi, rows), *value * case.passes]


def trpo(case: Case, obs: int, act: int, iterations=10) -> list[Product]:
    """A gradient, ten products with the Fisher matrix, one try of the step, and value passes.

    A product with the Fisher matrix is a derivative forward, in which every layer but the first
    has two products, and a gradient backward.
    """
    pi, v, rows = (obs, *case.hidden, act), (obs, *case.hidden, 1), case.batch
    fisher = [*forward(pi, rows), *forward(pi, rows)[1:], *backward(pi, rows)]
    value = [*forward(v, rows), *backward(v, rows)]
    step = [*forward(pi, rows), *backward(pi, rows), *fisher * iterations, *forward(pi, rows)]
    return step + value * case.passes


# The list of an algorithm's products, and for how many environment steps it stands.
UPDATES = dict(
    sac=(sac, lambda case: 1),
    td3=(td3, lambda case: 2),
    ddpg=(ddpg, lambda case: 1),
    dqn=(dqn, lambda case: 1),
    ppo=(ppo, lambda case: case.batch / case.passes),
    vpg=(vpg, lambda case: case.every),
    trpo=(trpo, lambda case: case.every),
)


def time_of_products(products: list[Product], least: float) -> float:
    """Seconds that the products take one after the other; the faster of one thread and all."""
    import torch

    made = []
    for copies, rows, inner, columns in products:
        shapes = (rows, inner), (inner, columns), (rows, columns)
        if copies > 1:
            shapes = tuple((copies, *shape) for shape in shapes)
        made.append([torch.randn(shape) for shape in shapes])
    multiply = [torch.bmm if product.copies > 1 else torch.mm for product in products]
    work = [(f, a, b, out) for f, (a, b, out) in zip(multiply, made)]

    def once():
        for f, a, b, out in work:
            f(a, b, out=out)

    def threads(n):
        torch.set_num_threads(n)
        return best_time(once, least / 2)

    return min(threads(n) for n in {1, torch.get_num_threads()})


def time_of_step(env_name: str, least: float) -> float:
    """Seconds that a step of the simulator takes, with its share of resets."""
    import gymnasium as gym

    env = gym.make(env_name)
    limit, bare = env.spec.max_episode_steps, env.unwrapped
    bare.action_space.seed(0)
    actions = [bare.action_space.sample() for _ in range(1000)]
    bare.reset(seed=0)
    length = 0

    def thousand():
        nonlocal length
        for action in actions:
            _, _, terminated, _, _ = bare.step(action)
            length += 1
            if terminated or length == limit:
                bare.reset()
                length = 0

    return best_time(thousand, least) / len(actions)


def best_time(work, least: float, parts=5) -> float:
    """Seconds of one call, in the best of several parts of the time."""
    work()
    best, end = float("inf"), time.perf_counter() + least
    while time.perf_counter() < end:
        began, calls = time.perf_counter(), 0
        while (now := time.perf_counter()) < began + least / parts:
            work()
            calls += 1
        best = min(best, (now - began) / max(calls, 1))
    return best


def limit(case: Case, least: float) -> dict:
    """What one environment step of a case takes at the least, in seconds."""
    import gymnasium as gym

    env = gym.make(case.env)
    obs, actions = env.observation_space.shape[0], env.action_space
    act = int(getattr(actions, "n", 0)) or actions.shape[0]
    count, steps = UPDATES[case.algorithm]
    products = count(case, obs, act)
    share = steps(case)
    update = time_of_products(products, least / 2) / share
    step = time_of_step(case.env, least / 2)
    flops = sum(product.flops for product in products) / share
    return dict(steps_per_second=1 / (update + step), update=update, step=step, flops=flops)
