"""The decorator `recorded`: which capture answers a call of an update, or why none does.

Each learner has captures of its own, one for every shape of batch, settings and state that it met.
`reports` says how the updates of this process were answered.
"""

import threading
import weakref
from dataclasses import dataclass
from functools import wraps

from spinup.parts.pytorch.fast import private, switch
from spinup.parts.pytorch.fast.capture import Capture
from spinup.parts.pytorch.fast.concurrency import exclusive, note_call, turn
from spinup.parts.pytorch.fast.context import is_capturing
from spinup.parts.pytorch.fast.trusted import NotCapturable

MAX_CAPTURES = 8  # of one update and learner; an update that needs more changes at every call


@dataclass
class Report:
    """How the calls of an update with one learner were answered."""

    captures: int = 0  # that are trusted
    replays: int = 0
    eager_calls: int = 0
    reason: str | None = None  # why this update runs eagerly from now on


# Updates that run eagerly in this run, by name, and why; and those of which a checkpoint says so,
# so that a resumed run goes the way of the one that was stopped.
given_up: dict[str, str] = {}
restored: dict[str, str] = {}


def recorded(update):
    """Let `update(learner, batch, **settings)` be replayed where that gives what its code says.

    learner: has networks and optimizers, or is a network
    batch: a named tuple of tensors, and None for columns that are absent
    settings: whatever else it needs
    """
    name = f"{update.__module__}.{update.__qualname__}"
    known = {}  # the captures of each learner that is alive, by its id

    def captures_of(learner):
        if id(learner) not in known:
            try:
                weakref.finalize(learner, known.pop, id(learner), None)
            except TypeError:
                known[id(learner)] = _Captures(
                    name, f"its learner is a {type(learner).__name__}; make it a dataclass", learner
                )
            else:
                known[id(learner)] = _Captures(name)
        return known[id(learner)]

    @wraps(update)
    def replayed(learner, batch, **settings):
        if not switch.enabled() or is_capturing():
            return update(learner, batch, **settings)
        return captures_of(learner).call(update, learner, batch, settings)

    def each(learner, calls):
        """What it gives for each of many batches and settings, between which nothing happens."""
        if not switch.enabled() or is_capturing():
            return [update(learner, batch, **settings) for batch, settings in calls]
        return captures_of(learner).call_each(update, learner, calls)

    replayed.eager, replayed.each = update, each
    replayed.report = lambda learner: captures_of(learner).report()
    return replayed


_alive = weakref.WeakSet()


def reports() -> dict[str, Report]:
    """How each update of this process is answered, by its name, over all learners alive."""
    found = {}
    for captures in _alive:
        seen, new = found.get(captures.name, Report()), captures.report()
        found[captures.name] = Report(
            seen.captures + new.captures,
            seen.replays + new.replays,
            seen.eager_calls + new.eager_calls,
            seen.reason or new.reason,
        )
    return found


class _Captures:
    """The captures of one update and one learner, the latest used first."""

    def __init__(self, name, reason=None, learner=None):
        _alive.add(self)
        self.lock = threading.Lock()
        self.name, self.all, self.replays, self.eager_calls = name, [], 0, 0
        self.reason = reason or restored.get(name)
        self.learner = learner  # kept alive where its id could else be another's one day
        if self.reason:
            _tell(name, self.reason)

    def call(self, update, learner, batch, settings):
        reason = self.reason
        if reason is None:
            capture = self._find(batch, settings)
            if capture is not None and capture.trusted:
                return self._replay(capture, batch)
            if private.modes_active():  # only for now, such as autocast or torch.func
                return self._eager(update, learner, batch, settings)
            try:
                with exclusive():
                    if capture is None:
                        capture = self._new(update, learner, batch, settings)
                    else:
                        capture.verify_next(update, learner, batch, settings)
                    capture.take(batch)
                    note_call(capture)
                    self.replays += 1
                    return capture.replay()
            except NotCapturable as why:
                reason = str(why)
            except Exception as error:  # of the update itself, or of a kernel
                reason = f"{type(error).__name__}: {_first_line(error)}"
            result = self._eager(update, learner, batch, settings)
            self._give_up(reason)  # after the call: if it fails too, its own error is the story
            return result
        return self._eager(update, learner, batch, settings)

    def call_each(self, update, learner, calls) -> list:
        """The same for many batches and settings, each capture checked once."""
        results, checked = [], []
        for batch, settings in calls:
            capture = next((c for c in checked if c.is_for(batch, settings)), None)
            if capture is None and self.reason is None:
                capture = self._find(batch, settings)
                if capture is not None and capture.trusted:
                    checked.append(capture)
            if capture is not None and capture.trusted:
                results.append(self._replay(capture, batch))
            else:
                results.append(self.call(update, learner, batch, settings))
                checked = []  # the update itself has run, and may have changed anything
        return results

    def _replay(self, capture, batch):
        with turn(), self.lock:  # two threads may train one learner, in turn
            capture.take(batch)
            self.replays += 1
            note_call(capture)
            return capture.replay()

    def report(self) -> Report:
        trusted = sum(capture.trusted for capture in self.all)
        return Report(trusted, self.replays, self.eager_calls, self.reason)

    def _find(self, batch, settings):
        """The capture that stands for this call; None where there is none yet."""
        for i, capture in enumerate(self.all):
            if capture.fits(batch, settings):
                if i:
                    self.all.insert(0, self.all.pop(i))
                return None if private.modes_guards_miss() else capture
        return None

    def _new(self, update, learner, batch, settings):
        if len(self.all) >= MAX_CAPTURES:
            raise NotCapturable(
                f"it met more than {MAX_CAPTURES} different settings, shapes or states; put a "
                "value that changes often into the batch as a tensor, a learning rate into "
                "optimizer.lr"
            )
        capture = Capture(update, learner, batch, settings)
        self.all.insert(0, capture)
        return capture

    def _eager(self, update, learner, batch, settings):
        note_call(None)
        self.eager_calls += 1
        return update(learner, batch, **settings)

    def _give_up(self, reason):
        self.reason, self.all = reason, []
        given_up[self.name] = reason
        _tell(self.name, reason)


def _tell(name, reason):
    switch.tell_once(f"{name.replace('.<locals>', '')} runs eagerly, because {reason}.")


def _first_line(error) -> str:
    return (str(error).splitlines() or [""])[0][:200]
