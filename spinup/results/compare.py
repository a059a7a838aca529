"""Final performance of experiments side by side, with how sure one can be of it."""

import csv
import itertools
import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from spinup.parts.errors import UserError
from spinup.parts.plain_text import csv_cell, markdown_cell, printable
from spinup.parts.progress import PERFORMANCE
from spinup.results import tables
from spinup.results.statistics import (
    improvement_over_tasks,
    interval,
    iqm_over_tasks,
    mean_over_tasks,
)

ENOUGH_SEEDS = 5
STEPS = "TotalEnvInteracts"
CSV_COLUMNS = (
    "environment", "experiment", "seeds", "diverged", "steps", "steps_fewest", "mean", "iqm",
    "iqm_low", "iqm_high",
)  # fmt: skip


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
    run, value: str, last: int | None = None, at: float | None = None
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


def has_diverged(run, at: float | None = None) -> bool:
    """Whether a run diverged, within so many steps."""
    found = run.attrs.get("diverged")
    return found is not None and (at is None or found.step is None or found.step <= at)


def compare(
    runs, value: str = "Performance", last: int | None = None, at: float | None = None,
    pool: bool = False, scale: dict | None = None,
) -> Comparison:  # fmt: skip
    """Compare the experiments among `runs`, as `plot.get_all_datasets` gives them.

    value: the column to compare by; more of it is better
    last, at: as for `final_score`
    pool: take an experiment's scores on all environments together
    scale: for an environment, the scores that become 0 and 1
    """
    tables.check_known("column", value, list(dict.fromkeys(c for run in runs for c in run)))
    if last is not None and last < 1:
        raise UserError(f"last is a number of epochs, 1 or more, not {last}.")
    tail = {None: "the last tenth of its epochs", 1: "its last epoch"}
    epochs = tail.get(last, f"its last {last} epochs")
    budget = "" if at is None else f" up to step {at:g}"
    found = Comparison(value, f"a seed's score is its mean over {epochs}{budget}")
    scale = {env: (float(low), float(high)) for env, (low, high) in (scale or {}).items()}
    runs = _scored(runs, value, last, at, scale, found.warnings)
    for env, (low, high) in scale.items():
        tables.check_known("environment", env, list({str(run.attrs["env_id"]) for run, *_ in runs}))
        if not (math.isfinite(low) and math.isfinite(high) and low != high):
            raise UserError(
                f"The scale of {env} must be two different numbers, not {low} and {high}."
            )
    experiments = {}
    for run, score, steps in runs:
        name, env = _name(run, pool), run.attrs["env_id"]
        low, high = scale.get(env, (0.0, 1.0))
        key = name if pool else (name, env)
        experiments.setdefault(key, []).append((run, (score - low) / (high - low), steps))
    found.results = [_result(members, pool, at) for members in experiments.values()]
    order = list(dict.fromkeys(result.environment for result in found.results))
    found.results.sort(key=lambda result: (order.index(result.environment), -result.iqm))
    for a, b in itertools.combinations(found.results, 2):
        found.improvements += _improvement(a, b)
    found.warnings += _warnings(found, experiments.values(), value, pool, scale)
    return found


def _scored(runs, value, last, at, scale, warnings):
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
    lost = {}
    for run in runs:
        if has_diverged(run, at):
            lost.setdefault(run.attrs["env_id"], []).append(run.attrs["folder"])
    for env, folders in lost.items():
        on, here = f" on {env}" if env else "", [r for r in runs if r.attrs["env_id"] == env]
        score = ""
        if env in worst:
            score = f"; each is scored by the worst {value} of any run{on}, {worst[env]:g}"
        warnings.append(
            f"{len(folders)} of {len(here)} runs{on} diverged{score}: {', '.join(folders)}."
        )
    without = [run.attrs["folder"] for run, score in scored if score is None]
    if without:
        warnings.append(f"Left out, for there is no number to compare: {', '.join(without)}.")
    if len(without) == len(scored):
        raise UserError(f"No run has a number under {value!r} to compare.")
    return [(run, *score) for run, score in scored if score is not None]


def _worst(runs, value, at, scale) -> dict[str | None, float]:
    """For each environment, the worst finite number that a run has in any epoch."""
    worst = {}
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


def _result(members, pool, at) -> Result:
    by_task = {}
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


def _improvement(a: Result, b: Result):
    """One experiment over the other, on the tasks that both know; nothing where there is none."""
    both = [task for task in a.scores if task in b.scores]
    if not both:
        return []
    tasks = [result.scores[task] for result in (a, b) for task in both]
    bounds = interval(tasks, improvement_over_tasks)
    probability = float(improvement_over_tasks(*tasks))
    return [Improvement(a.environment, a.experiment, b.experiment, probability, bounds)]


def _name(run, pool) -> str:
    """An experiment's name; settings that differ between environments count where all are one."""
    return run.attrs["name_of_all" if pool else "name"]


def _compared_by(runs, pool) -> dict[str, dict]:
    """Which column Performance is, and the names of the experiments of which it does."""
    kinds = {}
    for run in runs:
        kind = next((column for column in PERFORMANCE if column in run), None)
        if kind is not None:  # a run that diverged in its first epoch has no column
            kinds.setdefault(kind, {})[_name(run, pool)] = None
    return kinds


def _warnings(found, experiments, value, pool, scale):
    """What a reader should know before believing the numbers."""
    few = [f"{r.experiment} ({r.seeds})" for r in found.results if r.seeds < ENOUGH_SEEDS]
    if few:
        yield (
            f"Fewer than {ENOUGH_SEEDS} seeds: {', '.join(few)}. An interval from so few says "
            "little; train more before you believe it."
        )
    experiments = list(experiments)
    yield from dict.fromkeys(
        run.attrs["unsure"] for run, *_ in itertools.chain(*experiments) if run.attrs.get("unsure")
    )
    for members in experiments:
        seeds = Counter((run.attrs["env_id"], run.attrs["seed"]) for run, *_ in members)
        twice = [str(s) for (_, s), n in seeds.items() if n > 1 and s is not None]
        if twice:
            yield (
                f"{_name(members[0][0], pool)} has seed {', '.join(twice)} more than once; equal "
                "seeds give equal runs, so its interval is narrower than it should be."
            )
    for env in dict.fromkeys(result.environment for result in found.results):
        on = f" on {env}" if env else ""
        here = [result for result in found.results if result.environment == env]
        ends = sorted({steps for result in here for steps in result.steps})
        if len(ends) > 1:
            yield (
                f"The runs{on} ended after different numbers of steps, {ends[0]} to {ends[-1]}; "
                f"--at {ends[0]} compares them after equally many."
            )
        names = {result.experiment for result in here}
        members = (run for run, *_ in itertools.chain(*experiments))
        same = (run for run in members if run.attrs["env_id"] in here[0].scores)
        kinds = _compared_by((run for run in same if _name(run, pool) in names), pool)
        if value == "Performance" and len(kinds) > 1:
            told = " but ".join(f"{', '.join(names)} by {kind}" for kind, names in kinds.items())
            yield f"The experiments{on} are not compared by the same column: {told}."
    tasks = list(dict.fromkeys(task for result in found.results for task in result.scores))
    if pool and any(len(result.scores) < len(tasks) for result in found.results):
        yield "Not all experiments know the same environments; pairs are compared on those of both."
    unscaled = ", ".join(str(task) for task in tasks if task not in scale)
    if pool and len(tasks) > 1 and unscaled:
        yield (
            "Scores of several environments are taken together as they are, which means little "
            f"unless they are of like size; give a --scale for {unscaled}."
        )


def as_dict(found: Comparison) -> dict:
    """A comparison as plain numbers and strings, for JSON."""
    experiments = []
    for r in found.results:
        scores = {str(task): scores.tolist() for task, scores in r.scores.items()}
        fewest, most = (r.steps[0], r.steps[-1]) if r.steps else (None, None)
        experiments.append(vars(r) | dict(scores=scores, steps=most, steps_fewest=fewest))
    return dict(
        value=found.value, final=found.final, experiments=experiments,
        improvement=[vars(i) for i in found.improvements], warnings=found.warnings,
    )  # fmt: skip


def _number(value, largest) -> str:
    """As many decimals as numbers of this size are worth."""
    if not math.isfinite(value):
        return "–"
    decimals = 1 if largest >= 100 else 2 if largest >= 10 else 3
    return f"{value:.{decimals}f}" if largest >= 0.1 else f"{value:.3g}"


def _range(bounds, largest):
    if bounds is None:
        return "–"
    return f"[{_number(bounds[0], largest)}, {_number(bounds[1], largest)}]"


def _seeds(result):
    return f"{result.seeds}" + (f" ({result.diverged} diverged)" if result.diverged else "")


def _steps(steps):
    return " to ".join(str(step) for step in dict.fromkeys([*steps[:1], *steps[-1:]])) or "–"


def _aligned(header, rows):
    """Lines of a table for a terminal: the first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    for row in (header, *rows):
        first, *others = (
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths))
        )
        yield "  " + "  ".join([first, *others]).rstrip()


def _markdown(header, rows):
    rule = ["---", *["---:"] * (len(header) - 1)]
    for row in (header, rule, *rows):
        yield f"| {' | '.join(row)} |"


def as_text(found: Comparison, markdown: bool = False) -> str:
    """A comparison as tables for a terminal, or for Markdown."""
    table, strong, shown = (
        (_markdown, "**", markdown_cell) if markdown else (_aligned, "", printable)
    )
    lines = []
    for env in dict.fromkeys(result.environment for result in found.results):
        results = [result for result in found.results if result.environment == env]
        title = f"{shown(env or 'environment unknown')}: {shown(found.value)}"
        lines += [f"{strong}{title}{strong}" + ("" if markdown else f" ({found.final})"), ""]
        ends = [abs(v) for r in results for v in (r.mean, r.iqm, *(r.iqm_interval or ()))]
        largest = max(ends)
        header = ["experiment", "seeds", "steps", "mean", "IQM", "95 % interval"]
        rows = [
            [shown(r.experiment), _seeds(r), _steps(r.steps), _number(r.mean, largest),
             _number(r.iqm, largest), _range(r.iqm_interval, largest)]
            for r in results
        ]  # fmt: skip
        lines += [*table(header, rows), ""]
        pairs = [i for i in found.improvements if i.environment == env]
        if pairs:
            header = ["scores higher", "probability", "95 % interval"]
            rows = [
                [f"{shown(i.experiment)} over {shown(i.over)}", f"{i.probability:.2f}",
                 "–" if i.interval is None else "[{:.2f}, {:.2f}]".format(*i.interval)]
                for i in pairs
            ]  # fmt: skip
            lines += [*table(header, rows), ""]
    if markdown:
        lines += [f"IQM: interquartile mean; {found.final}; intervals: stratified bootstrap.", ""]
    for warning in found.warnings:
        lines += [shown(warning), *([""] if markdown else [])]
    return "\n".join(lines).rstrip()


def write_csv(found: Comparison, file):
    """Write one row per experiment, with a column for the probability to beat each other one."""
    names = list(dict.fromkeys(result.experiment for result in found.results))
    chances = {}
    for i in found.improvements:
        low, high = i.interval or ("", "")
        chances[i.environment, i.experiment, i.over] = [i.probability, low, high]
        back = ["", ""] if i.interval is None else [1 - high, 1 - low]
        chances[i.environment, i.over, i.experiment] = [1 - i.probability, *back]
    over = [[f"over {name}", f"over {name} low", f"over {name} high"] for name in names]
    out = csv.writer(file)
    out.writerow(map(csv_cell, [*CSV_COLUMNS, *itertools.chain(*over)]))
    for r in found.results:
        ends = [r.steps[-1], r.steps[0]] if r.steps else ["", ""]
        row = [r.environment or "", r.experiment, r.seeds, r.diverged, *ends, r.mean, r.iqm]
        row += r.iqm_interval or ("", "")
        for name in names:
            row += chances.get((r.environment, r.experiment, name), ["", "", ""])
        out.writerow(map(csv_cell, row))


def comparison(runs, args) -> Comparison:
    """Compare `runs` as the flags of `spinup compare` ask for."""
    try:
        scale = {env: (float(low), float(high)) for env, low, high in args.scale or []}
    except ValueError:
        raise UserError("--scale must be an environment and two numbers: --scale Hopper-v5 18 3234")
    return compare(runs, args.value, args.last, args.at, args.pool, scale)
