"""A comparison as JSON, CSV, Markdown, or tables for a terminal."""

import csv
import itertools
import math
from collections.abc import Callable
from typing import TextIO

from spinup.parts.plain_text import csv_cell, markdown_cell, printable
from spinup.results.compare import Comparison

CSV_COLUMNS = (
    "environment", "experiment", "seeds", "diverged", "steps", "steps_fewest", "mean", "iqm",
    "iqm_low", "iqm_high",
)  # fmt: skip


def as_dict(found: Comparison) -> dict:
    """A comparison as plain numbers and strings, for JSON."""
    experiments = []
    for r in found.results:
        scores = {str(task): scores.tolist() for task, scores in r.scores.items()}
        fewest, most = (r.steps[0], r.steps[-1]) if r.steps else (None, None)
        experiments.append(vars(r) | dict(scores=scores, steps=most, steps_fewest=fewest))
    return dict(
        value=found.value,
        final=found.final,
        experiments=experiments,
        improvement=[vars(i) for i in found.improvements],
        warnings=found.warnings,
    )


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
    table, shown = (_markdown, markdown_cell) if markdown else (_aligned, printable)
    lines = []
    for env in dict.fromkeys(result.environment for result in found.results):
        title = f"{shown(env or 'environment unknown')}: {shown(found.value)}"
        lines += [f"**{title}**" if markdown else f"{title} ({found.final})", ""]
        lines += [*table(*_results_table(found, env, shown)), ""]
        header, rows = _improvements_table(found, env, shown)
        lines += [*table(header, rows), ""] if rows else []
    if markdown:
        lines += [f"IQM: interquartile mean; {found.final}; intervals: stratified bootstrap.", ""]
    for warning in found.warnings:
        lines += [shown(warning), *([""] if markdown else [])]
    return "\n".join(lines).rstrip()


def _results_table(
    found: Comparison, env: str | None, shown: Callable
) -> tuple[list[str], list[list[str]]]:
    results = [result for result in found.results if result.environment == env]
    largest = max(abs(v) for r in results for v in (r.mean, r.iqm, *(r.iqm_interval or ())))
    rows = [
        [
            shown(r.experiment),
            _seeds(r),
            _steps(r.steps),
            _number(r.mean, largest),
            _number(r.iqm, largest),
            _range(r.iqm_interval, largest),
        ]
        for r in results
    ]
    return ["experiment", "seeds", "steps", "mean", "IQM", "95 % interval"], rows


def _improvements_table(
    found: Comparison, env: str | None, shown: Callable
) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            f"{shown(i.experiment)} over {shown(i.over)}",
            f"{i.probability:.2f}",
            "–" if i.interval is None else "[{:.2f}, {:.2f}]".format(*i.interval),
        ]
        for i in found.improvements
        if i.environment == env
    ]
    return ["scores higher", "probability", "95 % interval"], rows


def write_csv(found: Comparison, file: TextIO) -> None:
    """Write one row per experiment, with a column for the probability to beat each other one."""
    names = list(dict.fromkeys(result.experiment for result in found.results))
    chances: dict[tuple, list] = {}
    for i in found.improvements:
        bounds: tuple = i.interval or ("", "")
        back: list = ["", ""]
        if i.interval is not None:
            back = [1 - end for end in reversed(i.interval)]
        chances[i.environment, i.experiment, i.over] = [i.probability, *bounds]
        chances[i.environment, i.over, i.experiment] = [1 - i.probability, *back]
    over = [[f"over {name}", f"over {name} low", f"over {name} high"] for name in names]
    out = csv.writer(file)
    out.writerow(map(csv_cell, [*CSV_COLUMNS, *itertools.chain(*over)]))
    for r in found.results:
        ends: list = [r.steps[-1], r.steps[0]] if r.steps else ["", ""]
        row: list = [r.environment or "", r.experiment, r.seeds, r.diverged, *ends, r.mean, r.iqm]
        row += r.iqm_interval or ("", "")
        for name in names:
            row += chances.get((r.environment, r.experiment, name), ["", "", ""])
        out.writerow(map(csv_cell, row))
