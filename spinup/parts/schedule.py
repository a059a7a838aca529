"""The schedule of a run: its epochs, the steps in each, and when gradient steps are due."""

from typing import NamedTuple

from spinup.parts.errors import UserError
from spinup.parts.mpi import num_procs


class Schedule(NamedTuple):
    """The steps of a run, over all environments of all processes together, in epochs."""

    steps_per_env: int  # steps that each environment takes in an epoch
    total_envs: int  # environments that step together, over all processes
    epochs: int

    def steps(self, epoch: int) -> range:
        """The number of steps done before each joint step of an epoch."""
        length = self.steps_per_env * self.total_envs
        return range(epoch * length, (epoch + 1) * length, self.total_envs)

    def total(self) -> int:
        return self.epochs * self.steps_per_env * self.total_envs

    def updates_due(self, t: int, update_after: int, update_every: int) -> range:
        """The numbers of the gradient steps that are due after the joint step that began at `t`.

        They come in blocks of `update_every`; over a run there is one for each environment step,
        and it has that step's number. What happens every so many updates therefore never starts
        counting again.
        """
        now, update_every = t + self.total_envs, int(update_every)  # for it may be 1e3
        due = range(t // update_every * update_every, now // update_every * update_every)
        return due if now > update_after else range(0)

    @staticmethod
    def per_process(count: int) -> int:
        """What this process does of `count` things that all processes do together."""
        return -(-int(count) // num_procs())


def make_schedule(steps_per_epoch: int, num_envs: int, epochs: int) -> Schedule:
    """Divide the steps of an epoch among the environments."""
    total_envs = int(num_envs) * num_procs()
    if steps_per_epoch < total_envs:
        raise UserError(
            f"steps_per_epoch is {steps_per_epoch}, but one step of every environment is already "
            f"{total_envs}. Make it at least that, or use fewer environments."
        )
    return Schedule(int(steps_per_epoch) // total_envs, total_envs, int(epochs))
