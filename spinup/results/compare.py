"""Final performance of experiments side by side, with how sure one can be of it."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spinup.parts.errors import UserError
from spinup.parts.progress import STEPS, performance_column
from spinup.results import tables
from spinup.results.statistics import (
    improvement_over_tasks,
    interval,
    iqm_over_tasks,
    mean_over_tasks,
)

Members = list[tuple[Any, float, float]]  # runs, each with its score and after how many steps

ENOUGH_SEEDS = 5


@dataclass
class Result:
    """How one experiment ended: the scores of its seeds on each task, and what they amount to."""

    environment: str | None
    experiment: str
    scores: dict[str | None, np.ndarray]
    steps: list[int]  # after which its seeds ended, each number once
    seeds: int = 0
    diverged: int = 0  # of its runs, over all tasks
    mean: float = math.nan
    iqm: float = math.nan
    iqm_interval: tuple[float, float] | None = None


@dataclass
class Improvement:
    """How probable it is that a seed of one experiment scores higher than one of another."""

    environment: str | None
    experiment: str
    over: str
    probability: float
    interval: tuple[float, float] | None


@dataclass
class Comparison:
    """All results on each environment, best first, and each pair of them."""

    value: str
    final: str
    results: list[Result] = field(default_factory=list)
    improvements: list[Improvement] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def final_score(
    run: Any, value: str, last: int | None = None, at: float | None = None
) -> tuple[float, float] | None:
    """What a run ended with: its score, and after how many steps; None if it has no such number.

    A run that diverged did not end with its last finite epochs, and has none.

    last: mean over so many of the last epochs that have a number; by default a tenth of them
    at: leave out what came after so many steps
    """
    if value not in run or has_diverged(run, at):
        return None
    y = tables.numbers(run[value])
    steps = tables.numbers(run[STEPS]) if STEPS in run else y * math.nan
    within = np.isfinite(y) if at is None else np.isfinite(y) & (steps <= at)
    y, steps = y[within], steps[within]
    if not len(y):
        return None
    return float(y.iloc[-(last or -(-len(y) // 10)) :].mean()), float(steps.iloc[-1])


def has_diverged(run: Any, at: float | None = None) -> bool:
    """Whether a run diverged, within so many steps."""
    found = run.attrs.get("diverged")
    return found is not None and (at is None or found.step is None or found.step <= at)


def compare(
    runs: list,
    value: str = "Performance",
    last: int | None = None,
    at: float | None = None,
    pool: bool = False,
    scale: dict | None = None,
) -> Comparison:
    """Compare the experiments among `runs`, as `plot.get_all_datasets` gives them.

    value: the column to compare by; more of it is better
    last, at: as for `final_score`
    pool: take an experiment's scores on all environments together
    scale: for an environment, the scores that become 0 and 1
    """
    tables.check_known("column", value, list(dict.fromkeys(c for run in runs for c in run)))
    if last is not None and last < 1:
        raise UserError(f"last is a number of epochs, 1 or more, not {last}.")
    found = Comparison(value, _final(last, at))
    scale = {env: (float(low), float(high)) for env, (low, high) in (scale or {}).items()}
    scored = _scored(runs, value, last, at, scale, found.warnings)
    _check_scale(scale, scored)
    experiments: dict[Any, Members] = {}
    for run, score, steps in scored:
        name, env = _name(run, pool), run.attrs["env_id"]
        low, high = scale.get(env, (0.0, 1.0))
        key = name if pool else (name, env)
        experiments.setdefault(key, []).append((run, (score - low) / (high - low), steps))
    found.results = [_result(members, pool, at) for members in experiments.values()]
    order = list(dict.fromkeys(result.environment for result in found.results))
    found.results.sort(key=lambda result: (order.index(result.environment), -result.iqm))
    for a, b in itertools.combinations(found.results, 2):
        found.improvements += _improvement(a, b)
    found.warnings += _warnings(found, list(experiments.values()), value, pool, scale)
    return found


def _final(last: int | None, at: float | None) -> str:
    """What a seed's score is, in words."""
    tail = {None: "the last tenth of its epochs", 1: "its last epoch"}
    budget = "" if at is None else f" up to step {at:g}"
    return f"a seed's score is its mean over {tail.get(last, f'its last {last} epochs')}{budget}"


def _check_scale(scale: dict, scored: Members) -> None:
    """Refuse a scale for an environment that no run has, or of two equal numbers."""
    known = list({str(run.attrs["env_id"]) for run, *_ in scored})
    for env, (low, high) in scale.items():
        tables.check_known("environment", env, known)
        if not (math.isfinite(low) and math.isfinite(high) and low != high):
            raise UserError(
                f"The scale of {env} must be two different numbers, not {low} and {high}."
            )


def _scored(
    runs: list, value: str, last: int | None, at: float | None, scale: dict, warnings: list[str]
) -> Members:
    """The runs that have a score, with it; what is left out is said.

    A run that diverged is scored by the worst number that any run on its environment has in any
    epoch, its own among them: it is no better than that, and it does not vanish.
    """
    worst = _worst(runs, value, at, scale)
    scored = []
    for run in runs:
        score = final_score(run, value, last, at)
        env = run.attrs["env_id"]
        if has_diverged(run, at) and env in worst:
            score = worst[env], math.nan
        scored.append((run, score))
    warnings += _of_diverged(runs, value, at, worst)
    without = [run.attrs["folder"] for run, score in scored if score is None]
    if without:
        warnings.append(f"Left out, for there is no number to compare: {', '.join(without)}.")
    if len(without) == len(scored):
        raise UserError(f"No run has a number under {value!r} to compare.")
    return [(run, *score) for run, score in scored if score is not None]


def _of_diverged(runs: list, value: str, at: float | None, worst: dict) -> Iterator[str]:
    lost: dict[str | None, list[str]] = {}
    for run in runs:
        if has_diverged(run, at):
            lost.setdefault(run.attrs["env_id"], []).append(run.attrs["folder"])
    for env, folders in lost.items():
        here = [run for run in runs if run.attrs["env_id"] == env]
        score = ""
        if env in worst:
            score = f"; each is scored by the worst {value} of any run{_on(env)}, {worst[env]:g}"
        yield (
            f"{len(folders)} of {len(here)} runs{_on(env)} diverged{score}: {', '.join(folders)}."
        )


def _worst(runs: list, value: str, at: float | None, scale: dict) -> dict[str | None, float]:
    """For each environment, the worst finite number that a run has in any epoch."""
    worst: dict[str | None, float] = {}
    for run in (run for run in runs if value in run):
        y = tables.numbers(run[value])
        if at is not None and STEPS in run:
            y = y[tables.numbers(run[STEPS]) <= at]
        y, env = y[np.isfinite(y)], run.attrs["env_id"]
        low, high = scale.get(env, (0.0, 1.0))
        choose = min if low <= high else max  # a scale may turn costs into scores
        if len(y):
            worst[env] = float(choose(*y.agg(["min", "max"]), worst.get(env, y.iloc[0])))
    return worst


def _result(members: Members, pool: bool, at: float | None) -> Result:
    by_task: dict[str | None, list[float]] = {}
    for run, score, _ in members:
        by_task.setdefault(run.attrs["env_id"], []).append(score)
    scores = {task: np.array(found) for task, found in by_task.items()}
    tasks = list(scores.values())
    pooled = pool and len(tasks) > 1
    return Result(
        environment=f"{len(tasks)} environments" if pooled else next(iter(scores)),
        experiment=_name(members[0][0], pool),
        scores=scores,
        steps=sorted({int(steps) for *_, steps in members if math.isfinite(steps)}),
        seeds=min(map(len, tasks)),
        diverged=sum(has_diverged(run, at) for run, *_ in members),
        mean=float(mean_over_tasks(*tasks)),
        iqm=float(iqm_over_tasks(*tasks)),
        iqm_interval=interval(tasks, iqm_over_tasks),
    )


def _improvement(a: Result, b: Result) -> list[Improvement]:
    """One experiment over the other, on the tasks that both know; nothing where there is none."""
    both = [task for task in a.scores if task in b.scores]
    if not both:
        return []
    tasks = [result.scores[task] for result in (a, b) for task in both]
    bounds = interval(tasks, improvement_over_tasks)
    probability = float(improvement_over_tasks(*tasks))
    return [Improvement(a.environment, a.experiment, b.experiment, probability, bounds)]


def _name(run: Any, pool: bool) -> str:
    """An experiment's name; settings that differ between environments count where all are one."""
    return run.attrs["name_of_all" if pool else "name"]


def _compared_by(runs: Iterable, pool: bool) -> dict[str, dict]:
    """Which column Performance is, and the names of the experiments of which it does."""
    kinds: dict[str, dict] = {}
    for run in runs:
        kind = performance_column(run)
        if kind is not None:  # a run that diverged in its first epoch has no column
            kinds.setdefault(kind, {})[_name(run, pool)] = None
    return kinds


def _warnings(
    found: Comparison, experiments: Sequence[Members], value: str, pool: bool, scale: dict
) -> Iterator[str]:
    """What a reader should know before believing the numbers."""
    runs = [run for members in experiments for run, *_ in members]
    few = [f"{r.experiment} ({r.seeds})" for r in found.results if r.seeds < ENOUGH_SEEDS]
    if few:
        yield (
            f"Fewer than {ENOUGH_SEEDS} seeds: {', '.join(few)}. An interval from so few says "
            "little; train more before you believe it."
        )
    yield from dict.fromkeys(run.attrs["unsure"] for run in runs if run.attrs.get("unsure"))
    for members in experiments:
        yield from _of_equal_seeds(members, pool)
    for env in dict.fromkeys(result.environment for result in found.results):
        here = [result for result in found.results if result.environment == env]
        yield from _of_different_lengths(env, here)
        if value == "Performance":
            yield from _of_different_columns(env, here, runs, pool)
    if pool:
        yield from _of_pooling(found, scale)


def _of_equal_seeds(members: Members, pool: bool) -> Iterator[str]:
    seeds = Counter((run.attrs["env_id"], run.attrs["seed"]) for run, *_ in members)
    twice = [str(s) for (_, s), n in seeds.items() if n > 1 and s is not None]
    if twice:
        yield (
            f"{_name(members[0][0], pool)} has seed {', '.join(twice)} more than once; equal "
            "seeds give equal runs, so its interval is narrower than it should be."
        )


def _on(env: str | None) -> str:
    return f" on {env}" if env else ""


def _of_different_lengths(env: str | None, results: list[Result]) -> Iterator[str]:
    ends = sorted({steps for result in results for steps in result.steps})
    if len(ends) > 1:
        yield (
            f"The runs{_on(env)} ended after different numbers of steps, {ends[0]} to {ends[-1]}; "
            f"--at {ends[0]} compares them after equally many."
        )


def _of_different_columns(
    env: str | None, results: list[Result], runs: list, pool: bool
) -> Iterator[str]:
    names = {result.experiment for result in results}
    same = (run for run in runs if run.attrs["env_id"] in results[0].scores)
    kinds = _compared_by((run for run in same if _name(run, pool) in names), pool)
    if len(kinds) > 1:
        told = " but ".join(f"{', '.join(names)} by {kind}" for kind, names in kinds.items())
        yield f"The experiments{_on(env)} are not compared by the same column: {told}."


def _of_pooling(found: Comparison, scale: dict) -> Iterator[str]:
    tasks = list(dict.fromkeys(task for result in found.results for task in result.scores))
    if any(len(result.scores) < len(tasks) for result in found.results):
        yield "Not all experiments know the same environments; pairs are compared on those of both."
    unscaled = ", ".join(str(task) for task in tasks if task not in scale)
    if len(tasks) > 1 and unscaled:
        yield (
            "Scores of several environments are taken together as they are, which means little "
            f"unless they are of like size; give a --scale for {unscaled}."
        )


def comparison(runs: list, args: Any) -> Comparison:
    """Compare `runs` as the flags of `spinup compare` ask for."""
    try:
        scale = {env: (float(low), float(high)) for env, low, high in args.scale or []}
    except ValueError:
        raise UserError("--scale must be an environment and two numbers: --scale Hopper-v5 18 3234")
    return compare(runs, args.value, args.last, args.at, args.pool, scale)
