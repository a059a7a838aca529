"""How many threads a captured update uses: all it may, or one while others keep the cores busy.

Threads that share a product wait for each other. If another program takes the core of one, all
stand still, and an update takes several times as long as with a single thread. So now and then a
few replays go the other way, and what is quicker is kept. Numbers do not depend on it: a capture
has a choice only if its steps give the same to the last bit, however many threads there are. A
user who has set OMP_NUM_THREADS has chosen already.
"""

import os
import time
from collections import deque
from statistics import median

import torch

# Replays before the first look at the other way, and between two with all threads and with one.
WARMUP, PROBE_EVERY, PROBE_EVERY_OF_ONE = 20, 1000, 200
PROBE_LENGTH, PROBE_WARMUP = 8, 2  # replays of either way in a look; how many do not count
SWITCH_RATIO = 0.85  # of the time: only then is the other way worth a change
SLOWDOWN = 1.5  # times as slow as usual: look at once


def may_choose(threads: int) -> bool:
    return threads > 1 and "OMP_NUM_THREADS" not in os.environ


class Threads:
    """Carries out steps with as many threads as are quickest now, `most` or one."""

    def __init__(self, most: int):
        self.most = self.using = most
        self.until_look, self.usual = WARMUP, float("inf")
        self.lately = deque(maxlen=PROBE_LENGTH - PROBE_WARMUP)
        self.here, self.there = [], []  # seconds of this way and of the other, in a look

    def run(self, steps):
        looking = self.until_look <= 0
        # After the other way the present one once more, for the speed of a machine varies.
        other = looking and len(self.there) < PROBE_LENGTH
        one, threads = (self.using == 1) != other, torch.get_num_threads()
        try:
            if one:
                torch.set_num_threads(1)
            began = time.perf_counter()
            for step in steps:
                step()
            seconds = time.perf_counter() - began
        finally:
            if one:
                torch.set_num_threads(threads)
        if looking:
            (self.there if other else self.here).append(seconds)
            self._decide()
        else:
            self._notice(seconds)

    def _notice(self, seconds):
        self.lately.append(seconds)
        self.until_look -= 1
        if seconds > SLOWDOWN * self.usual and median(self.lately) > SLOWDOWN * self.usual:
            self.until_look = 0

    def _decide(self):
        if len(self.here) < PROBE_LENGTH:
            return
        here, there = median(self.here[PROBE_WARMUP:]), median(self.there[PROBE_WARMUP:])
        change = there < SWITCH_RATIO * min(here, median(self.lately))
        if change:
            self.using = self.most if self.using == 1 else 1
        self.usual = there if change else here
        self.until_look = PROBE_EVERY_OF_ONE if self.using == 1 else PROBE_EVERY
        for seconds in (self.lately, self.here, self.there):
            seconds.clear()
