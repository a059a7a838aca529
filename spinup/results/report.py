"""One page that shows an experiment whole: curves, results, settings, videos and failures."""

import base64
import hashlib
import html
import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import spinup
from spinup.parts.config_entries import keys_with
from spinup.parts.plain_text import printable
from spinup.parts.progress import PERFORMANCE, STEPS
from spinup.parts.run_folder import (
    DIVERGED_FILE,
    JOB_FILE,
    OLDER_RUNS,
    OUTPUT_FILE,
    leads_out,
    real_path,
)
from spinup.parts.run_status import RunStatus, last_lines, run_status
from spinup.parts.settings import flatten_settings
from spinup.results import compare, tables
from spinup.results.compare_formats import as_dict
from spinup.results.statistics import BAND_RESAMPLES, CONFIDENCE, random_numbers

MOST_NUMBERS = 600_000  # in the page; beyond, runs are shown with fewer of their epochs
VIDEOS = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}
LARGEST_VIDEO, LARGEST_VIDEOS = 8 * 2**20, 32 * 2**20  # bytes: of one, and of all together
LONGEST_SETTING = 400  # characters of a setting that the page shows
# What is no setting that tells experiments apart: a run's own, and what follows from others.
NO_SETTINGS = keys_with(on_page=False)
SCRIPTS = ("base", "numbers", "curves", "tables", "page")  # one script, in this order


def _brief(value: float) -> int | float | None:
    """A number in few letters of JSON: an integer, or six digits; None if it is not finite."""
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else float(f"{value:.6g}")


def _numbers(run: Any, rows: np.ndarray) -> dict[str, list]:
    """The columns of a run that hold numbers."""
    columns = {}
    names = [name for name in run if name not in ("Unit", "Condition1", "Condition2", "Diverged")]
    names.sort(key=lambda name: name != "Performance")
    for name in names:
        values = tables.numbers(run[name].iloc[rows]).to_numpy(float)
        if np.isfinite(values).any():
            columns[str(name)] = [_brief(value) for value in values.tolist()]
    return columns


def _as_texts(settings: dict) -> dict[str, str]:
    """Settings as strings, cut to what a line of the page holds."""
    texts = {}
    for key, value in flatten_settings(settings).items():
        text = value if isinstance(value, str) else json.dumps(value)
        texts[printable(key)] = printable(text)[:LONGEST_SETTING]
    return texts


def _settings(runs: list) -> list[dict]:
    """The settings of each experiment; runs of one that differ are apart."""
    groups: dict[tuple, tuple] = {}
    for run in runs:
        config = _own_settings(run.attrs["folder"])
        config = {key: value for key, value in config.items() if key not in NO_SETTINGS}
        if isinstance(config.get("environment"), dict):  # the rest follows from its id
            known = config["environment"]
            config["environment"] = {key: known[key] for key in ("id", "kwargs") if key in known}
        values = _as_texts(config)
        key = run.attrs["name"], run.attrs["env_id"], json.dumps(values, sort_keys=True)
        groups.setdefault(key, (values, []))[1].append(run.attrs["seed"])
    return [
        dict(experiment=name, environment=env, values=values, seeds=_seeds(seeds))
        for (name, env, _), (values, seeds) in groups.items()
        if values
    ]


def _seeds(seeds: list[int | None]) -> str:
    known = [str(seed) for seed in sorted(seed for seed in seeds if seed is not None)]
    if len(known) < len(seeds):
        return f"{len(seeds)} run{'s' * (len(seeds) > 1)}"
    if len(known) > 2 and int(known[-1]) - int(known[0]) == len(set(known)) - 1:
        return f"seeds {known[0]} to {known[-1]}"
    return f"seed{'s' * (len(known) > 1)} {', '.join(known)}"


def _own_settings(folder: Path | str) -> dict:
    """The settings in a run's config.json, if it lies in the run's own folder."""
    folder = Path(folder)
    return {} if leads_out(folder / "config.json", folder) else tables.read_settings(folder)[0]


def _videos(folder: Path, run: str, room: int) -> list[dict]:
    """The videos in a run's folder, each as an address that holds it whole.

    room: the bytes that may still be spent on videos
    """
    videos = []
    for path in sorted([*folder.glob("*.*"), *folder.glob("*/*.*")]):
        mime = VIDEOS.get(path.suffix.lower())
        if mime is None or path.is_symlink() or leads_out(path, folder) or not path.is_file():
            continue
        if OLDER_RUNS in path.parts:
            continue
        name = printable(path.relative_to(folder))
        video, size = dict(run=run, name=name), path.stat().st_size
        try:
            content = b"" if size > min(LARGEST_VIDEO, room) else path.read_bytes()
            why = f"it has {size / 2**20:.1f} MB"
        except OSError as error:
            content, why = b"", f"it cannot be read ({error.strerror})"
        if size and not content:
            video["why"] = f"left out, {why}"
        else:
            room -= size
            video["src"] = f"data:{mime};base64,{base64.b64encode(content).decode()}"
        videos.append(video)
    return videos


def _statuses(folders: list[Path]) -> dict[str, RunStatus]:
    """The status of each run in these folders, also of those without an epoch."""
    traces = {"config.json", "progress.txt", JOB_FILE, OUTPUT_FILE, DIVERGED_FILE}
    statuses = {}
    for folder in folders:
        for root, below, names in os.walk(folder):
            below[:] = sorted(name for name in below if name != OLDER_RUNS)
            if traces & set(names):
                statuses[root] = run_status(Path(root))
    return statuses


def _failures(statuses: dict[str, RunStatus]) -> dict[str, list[str]]:
    """The last lines of the runs that failed, and why others diverged, by folder."""
    return {
        folder: last_lines(Path(folder)) if status.diverged is None else [status.diverged]
        for folder, status in statuses.items()
        if status.state in ("failed", "diverged")
    }


def _listed(run: Any, status: RunStatus, found: compare.Comparison, args: Any) -> dict:
    """A run's line in the list of all runs."""
    done, epochs = status.epochs_done, status.epochs
    score, _ = compare.final_score(run, found.value, args.last, args.at) or (None, None)
    _, steps = compare.final_score(run, STEPS) or (None, None)
    return dict(
        experiment=run.attrs["name"],
        environment=run.attrs["env_id"],
        seed=run.attrs["seed"],
        epochs=f"{done} of {epochs}" if epochs else f"{done}",
        steps=steps,
        score=score,
        state=status.state,
    )


def _curves(runs: list, warnings: list[str]) -> list[dict]:
    """The numbers of each run, of so many epochs that the page stays small."""
    most = max(10, MOST_NUMBERS // sum(len(run.columns) for run in runs))
    long = sum(len(run) > most for run in runs)
    if long:
        warnings.append(f"Curves of {long} long runs are plotted through {most} of their epochs.")
    curves = []
    for run in runs:
        rows = np.linspace(0, len(run) - 1, min(most, len(run))).round().astype(int)
        who = dict(experiment=run.attrs["name"], environment=run.attrs["env_id"])
        who["diverged"] = compare.has_diverged(run)
        curves.append(who | dict(columns=_numbers(run, rows)))
    return curves


def _resampling(runs: list) -> dict:
    """What the page needs to compute the bands of `spinup plot` itself."""
    sizes = Counter((run.attrs["name"], run.attrs["env_id"]) for run in runs)
    numbers = random_numbers(max(sizes.values())).astype("<u4").tobytes()
    return dict(
        resamples=BAND_RESAMPLES,
        tail=(1 - CONFIDENCE) / 2,
        random_numbers=base64.b64encode(numbers).decode(),
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def collect(runs: list, folders: list[Path], args: Any) -> dict:
    """All that the page shows, as plain numbers and strings.

    runs: as `plot.get_all_datasets` gives them
    folders: where they and runs without an epoch are
    args: the flags of `spinup compare`
    """
    found = compare.comparison(runs, args)
    short_name = _short_names(folders)
    statuses = _statuses(folders)
    failures = _failures(statuses)
    listed = {}
    for run in runs:
        folder = run.attrs["folder"]
        who = dict(run=short_name(folder))
        listed[folder] = who | _listed(run, statuses[folder], found, args)
    warnings = [*found.warnings, *(sentence for run in runs for sentence in run.attrs["damage"])]
    warnings = [printable(warning) for warning in warnings]
    return dict(
        made=_made_of(runs, statuses),
        value=found.value,
        performance=PERFORMANCE,
        resampling=_resampling(runs),
        enough_seeds=compare.ENOUGH_SEEDS,
        experiments=list(dict.fromkeys(run.attrs["name"] for run in runs)),
        runs=_curves(runs, warnings),
        warnings=warnings,
        comparison=as_dict(found),
        settings=_settings(runs),
        videos=_all_videos({folder: run["run"] for folder, run in listed.items()}),
        failures=[dict(run=short_name(root), lines=lines) for root, lines in failures.items()],
        listed=list(listed.values()),
    )


def _short_names(folders: list[Path]) -> Callable:
    """A function from a folder to its path below what all folders have in common."""
    top = Path(os.path.commonpath([real_path(folder) for folder in folders]))

    def short_name(folder):
        name = os.path.relpath(real_path(folder), top)
        return printable(top.name if name == os.curdir else name)

    return short_name


def _made_of(runs: list, statuses: dict[str, RunStatus]) -> str:
    """How many runs and experiments the page shows, and when it was made."""
    experiments = {run.attrs["name"] for run in runs}
    states = [status.state for status in statuses.values()]
    many = f"{_counted(len(runs), 'run')} in {_counted(len(experiments), 'experiment')}"
    for state in ("failed", "diverged"):
        many += f", {states.count(state)} {state}" if state in states else ""
    day = f"{time.localtime().tm_mday} {time.strftime('%B %Y')}"
    return f"{many}. Made on {day} by spinup {spinup.__version__}."


def _all_videos(names: dict[str, str]) -> list[dict]:
    """The videos in the folders of runs, as many as the page has room for.

    names: what each folder is called on the page
    """
    videos: list[dict] = []
    for folder, name in names.items():
        spent = sum(len(video.get("src", "")) * 3 // 4 for video in videos)
        videos += _videos(Path(folder), name, LARGEST_VIDEOS - spent)
    return videos


def page(title: str, data: dict) -> str:
    """The whole page; nothing in `data` can become a tag, and nothing in it may load or run."""
    style, frame = _read("report.css"), _read("report.html")
    script = "\n".join(_read(f"report_{name}.js") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    title = html.escape(printable(title))
    given = dict(policy=policy, title=title, style=style, script=script, data=text)
    return re.sub(r"\{\{(\w+)\}\}", lambda name: given[name[1]], frame)


def _read(name: str) -> str:
    return files("spinup.results").joinpath(name).read_text("utf-8")
