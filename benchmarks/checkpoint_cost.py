"""What a checkpoint costs: SAC on HalfCheetah with 300 000 transitions stored, three epochs.

    python benchmarks/checkpoint_cost.py

The first checkpoint writes all of the replay buffer; from the second on, only what is new.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from spinup import sac_pytorch
from spinup.parts import checkpoint, learning
from spinup.parts.envs import EnvMaker

STORED = 300_000


def main():
    saves, begun = [], []
    save, epochs, make = (
        checkpoint.Checkpoint.save,
        checkpoint.Checkpoint.epochs,
        learning.ReplayBuffer,
    )

    def timed_save(self, epoch):
        began = time.perf_counter()
        save(self, epoch)
        saves.append(time.perf_counter() - began)

    def timed_epochs(self, *args):
        for epoch in epochs(self, *args):
            begun.append(time.perf_counter())
            yield epoch
        begun.append(time.perf_counter())

    def full(self, *args, **kwargs):
        original(self, *args, **kwargs)
        columns = self.ring.columns
        columns["obs"][:STORED] = self.rng.standard_normal((STORED, 17))
        columns["obs2"][:STORED] = columns["obs"][:STORED]
        self.ring.total = STORED

    original, make.__init__ = make.__init__, full
    checkpoint.Checkpoint.save, checkpoint.Checkpoint.epochs = timed_save, timed_epochs
    with tempfile.TemporaryDirectory() as folder:
        sac_pytorch(
            EnvMaker("HalfCheetah-v5"), epochs=3, start_steps=0, update_after=0,
            num_test_episodes=0, logger_kwargs=dict(output_dir=folder),
        )  # fmt: skip
    for i, seconds in enumerate(saves):
        epoch = begun[i + 1] - begun[i]
        print(
            f"epoch {i + 1}: {epoch:.1f} s, of which its checkpoint {seconds * 1e3:.1f} ms, ",
            end="",
        )
        print(f"{100 * seconds / epoch:.2f} %")


if __name__ == "__main__":
    main()
