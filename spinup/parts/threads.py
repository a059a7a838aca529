"""How many threads a recorded update uses: all it may, or one while others keep the cores busy.

Threads that share a product wait for each other. If another program takes the core of one, all
stand still, and an update takes several times as long as with a single thread. So now and then a
few replays go the other way, and what is quicker is kept. Numbers do not depend on it: a recording
has a choice only if its steps give the same to the last bit, however many threads there are. A
user who has set OMP_NUM_THREADS has chosen already.
"""

import os
import time
from collections import deque
from statistics import median

import torch

FIRST, EVERY = 20, 1000  # replays before the first look at the other way, and between two
TRIED = 6  # replays that a look takes; the first of them is not counted, for threads must wake up
CLEARLY = 0.9  # of the time: only then is the other way worth a change
ALARM = 1.5  # times as slow as usual: look again at once, and not after `EVERY`


def may_choose(threads: int) -> bool:
    return threads > 1 and "OMP_NUM_THREADS" not in os.environ


class Threads:
    """Carries out steps with as many threads as are quickest now, `most` or one."""

    def __init__(self, most: int):
        self.most = self.using = most
        self.lately, self.tried = deque(maxlen=TRIED - 1), []
        self.usual, self.until_look, self.looking = float("inf"), FIRST, False

    def run(self, steps):
        one, threads = (self.using == 1) != self.looking, torch.get_num_threads()
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
        if self.looking:
            self._looked(seconds)
        else:
            self._worked(seconds)

    def _worked(self, seconds):
        self.lately.append(seconds)
        self.until_look -= 1
        if seconds > ALARM * self.usual and median(self.lately) > ALARM * self.usual:
            self.until_look = 0
        self.looking = self.until_look <= 0

    def _looked(self, seconds):
        self.tried.append(seconds)
        if len(self.tried) < TRIED:
            return
        here, there = median(self.lately), median(self.tried[1:])
        if there < CLEARLY * here:
            self.using = self.most if self.using == 1 else 1
        self.usual = min(there, here)
        self.lately.clear()
        self.tried.clear()
        self.until_look, self.looking = EVERY, False
