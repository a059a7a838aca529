"""What a run of speed.py leaves behind: a table, a JSON file, a chart, RESULTS.md."""

import json
from pathlib import Path
from statistics import median

from peers import LIBRARIES

# What we want to reach: times Stable-Baselines3, times SBX, and the share of the limit.
GOALS = {
    "SAC HalfCheetah, batch 100": (4, 1.6, 0.55),
    "TD3 HalfCheetah, batch 100": (4, 1.6, 0.55),
    "DDPG HalfCheetah, batch 100": (4, 1.6, 0.55),
    "SAC HalfCheetah, batch 256": (2.5, 1.3, 0.65),
    "TD3 HalfCheetah, batch 256": (2.5, 1.3, 0.65),
    "DDPG HalfCheetah, batch 256": (2.5, 1.3, 0.65),
    "PPO HalfCheetah, 1 environment": (3, 2, 0.5),
    "PPO HalfCheetah, 8 environments": (3, 2, 0.6),
    "DQN CartPole, batch 64": (5, 1.5, None),
}
COLOURS = dict(ours="#1f5fa8", sb3="#9a9a9a", sbx="#d98c3f", tianshou="#6aa57a")


PROFILE = """
## Where the time goes

Each step of a replayed update timed on its own (`where_time_goes.py`), in a run after those above;
timing itself takes some of "between the steps". PPO's policy and value function learn in a thread
each; the times of its update are those of the policy, and the value function learns meanwhile. Wide
products are those whose three sides are all 32 or more.

"""


def speeds(found: dict) -> dict:
    """The best and the median steps per second of each library on a case."""
    each = {n: [t["steps_per_second"] for t in turns] for n, turns in found["turns"].items()}
    return {name: (max(values), median(values)) for name, values in each.items() if values}


def ratios(found: dict) -> list:
    """Our best speed over that of Stable-Baselines3, of SBX, and of the limit."""
    best = {name: value for name, (value, _) in speeds(found).items()}
    return [
        best["ours"] / best[name] if "ours" in best and name in best else None
        for name in ("sb3", "sbx", "limit")
    ]


def line_of(found: dict) -> str:
    parts = [f"{LIBRARIES[n].title} {best:.0f}" for n, (best, _) in speeds(found).items()]
    return f"{found['name']}: {', '.join(parts)} steps/s"


def figure_line(figure: dict) -> str:
    """One figure of own_costs.py, as printed."""
    if "profiles" in figure:
        return f"{figure['what']}:\n{profile_table(figure)}"
    if "values" in figure:
        shown = ", ".join(f"{n}: {value:.0f}" for n, value in figure["values"].items())
        return f"{figure['what']} {shown} {figure['unit']}"
    return f"{figure['what']}: {_value(figure)}{_aim(figure, ' (', ')')}"


def profile_table(figure: dict) -> str:
    """Microseconds of an environment step, by kind and by case."""
    profiles = figure["profiles"]
    kinds = next(iter(profiles.values()))
    rows = [[kind, *(f"{p[kind]:.0f}" for p in profiles.values())] for kind in kinds]
    rows.append(["together", *(f"{sum(p.values()):.0f}" for p in profiles.values())])
    return markdown(["µs of an environment step", *profiles], rows)


def _value(figure) -> str:
    value, unit = figure["value"], figure["unit"]
    if unit in ("×", "s"):
        return f"{value:.2f} {unit}"
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _aim(figure, before="", after="") -> str:
    if figure["goal"] is None:
        return ""
    word, reached = "under", figure["value"] < figure["goal"]
    if figure["least"]:
        word, reached = "at least", figure["value"] >= figure["goal"]
    verdict = "reached" if reached else "missed"
    return f"{before}{word} {figure['goal']} {figure['unit']}: {verdict}{after}"


def table(results: dict) -> str:
    """Steps per second of every library on every case, in Markdown, which also reads as it is."""
    seen = [n for n in LIBRARIES if any(n in speeds(found) for found in results["cases"])]
    head = ["case", *(LIBRARIES[name].title for name in seen)]
    head += ["× Stable-Baselines3", "× SBX", "share of the limit"]
    rows = []
    for found in results["cases"]:
        of_case = speeds(found)
        row = [found["name"]]
        for name in seen:
            best, middle = of_case.get(name, (None, None))
            row.append("–" if best is None else f"{best:,.0f} ({middle:,.0f})".replace(",", " "))
        goals = GOALS.get(found["name"], (None,) * 3)
        row += [_ratio(value, goal) for value, goal in zip(ratios(found), goals)]
        rows.append(row)
    return markdown(head, rows)


def _ratio(value, goal) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" + ("" if goal is None else f" (goal {goal})")


def missed(results: dict) -> list:
    """For each goal that was missed, how near to the limit one would have to come for it."""
    lines = []
    for found in results["cases"]:
        best = {name: value for name, (value, _) in speeds(found).items()}
        goals = GOALS.get(found["name"], ())
        for name, goal, reached in zip(("sb3", "sbx", "limit"), goals, ratios(found)):
            if goal is None or reached is None or reached >= goal:
                continue
            title = "the limit" if name == "limit" else LIBRARIES[name].title
            wanted = goal * best[name]
            line = f"{found['name']}: {goal} × {title} would be {wanted:.0f} steps/s"
            if name != "limit" and "limit" in best:
                line += f", {wanted / best['limit']:.2f} of the limit"
            lines.append(f"{line}; {best['ours']:.0f} were reached.")
    return lines


def markdown(head: list, rows: list) -> str:
    widths = [max(3, *map(len, column)) for column in zip(head, *rows)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def line(cells):
        first, *rest = cells
        padded = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:]))]
        return f"| {' | '.join(padded)} |"

    return "\n".join([line(head), line(rule), *map(line, rows)])


def write_json(results: dict, path: Path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def draw(results: dict, path: Path):
    """Bars of every library's best speed over Stable-Baselines3's, and where the limit is."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    cases = [found for found in results["cases"] if "sb3" in speeds(found)]
    if not cases:
        return
    names = [n for n in COLOURS if any(n in speeds(found) for found in cases)]
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.17 * (len(names) + 1) * len(cases)))
    edge = 1.7 * max(max(_times(found).values()) for found in cases)
    limits = []
    for row, found in enumerate(cases):
        height = _draw_bars(axes, row, found, names)
        limits += _draw_limit(axes, row, found, edge, height)
    axes.set_yticks(range(len(cases)), [found["name"] for found in cases], fontsize=8)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.set_xlim(0, edge)
    axes.set_xlabel("environment steps per second in training, Stable-Baselines3 = 1")
    axes.axvline(1, color=COLOURS["sb3"], lw=0.8, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    _draw_legend(axes, names, limits, plt)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight", metadata=dict(Date=None) if _svg(path) else None)
    plt.close(figure)


def _draw_bars(axes, row, found, names) -> float:
    """The bars of one case, one for each library; gives the height of all of them."""
    times, height = _times(found), 0.8 / len(names)
    present = [name for name in names if name in times]
    for i, name in enumerate(present):
        y = row + (i - (len(present) - 1) / 2) * height
        axes.barh(y, times[name], height * 0.92, color=COLOURS[name])
        if name == "ours":
            axes.annotate(
                f"{times[name]:.1f} ×",
                (times[name], y),
                (3, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                bbox=dict(fc="white", ec="none", pad=0.6),
            )
    return len(present) * height


def _draw_limit(axes, row, found, edge, height) -> list:
    """A line where the limit of a case is; words where it is too far to be drawn."""
    limit = speeds(found).get("limit")
    if not limit:
        return []
    x = limit[0] / speeds(found)["sb3"][0]
    if x > edge:  # a line would make the bars tiny
        axes.annotate(f"limit at {x:.0f} × →", (edge, row), ha="right", va="center", fontsize=8)
        return []
    half = height / 2
    return axes.plot([x, x], [row - half, row + half], color="black", lw=1.5)


def _draw_legend(axes, names, limits, plt):
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in names]
    labels = [LIBRARIES[name].title for name in names]
    if limits:
        handles, labels = [*handles, limits[0]], [*labels, "limit: products and simulator alone"]
    axes.legend(
        handles,
        labels,
        loc="lower center",
        bbox_to_anchor=(0.3, 1),
        ncols=5,
        fontsize=8,
        frameon=False,
        handlelength=1.2,
        columnspacing=1.2,
    )


def _times(found) -> dict:
    """How many times as fast as Stable-Baselines3 each library is at its best."""
    of_case = speeds(found)
    return {name: of_case[name][0] / of_case["sb3"][0] for name in COLOURS if name in of_case}


def _svg(path) -> bool:
    return path.suffix == ".svg"


PAGE = """# Speed

Written by `{command}` on {date}, in {minutes} minutes:
{cores} cores ({processor}), {system}, Python {python},
{packages}. PyTorch's threads, at most: {threads}.

## Training

Environment steps per second while training, updates included: the best of {turns} turns
and, in brackets, their median. In every turn the clock runs for at least {seconds:g}
seconds, after a warm-up that includes all compiling; the turns of all libraries are interleaved,
each in a process of its own. Everybody has the same environment, network sizes, batch, number of
updates and of target updates, and all threads. SAC, TD3 and DDPG: two layers of 256, one update per
step in blocks of 50. PPO, VPG, TRPO: two layers of 64, rollouts of 4000 steps, 80 passes of the
policy (VPG and TRPO: their one step) and 80 of the value function over the whole of it; with
minibatches: rollouts of 2048, 10 passes, as Stable-Baselines3 has it by default. DQN: two layers of
64, one update and one target update per step. TRPO of Stable-Baselines3 is that of sb3-contrib.

The limit is the time of the matrix products of the updates alone plus that of the simulator alone
(`limits.py` counts them); the share is the limit's time over ours.

{table}

![Steps per second relative to Stable-Baselines3](speed.svg)
"""


def write_results(results: dict, path: Path):
    """The page that stands beside the scripts."""
    versions = results["versions"]
    found = {name: text for of_library in versions.values() for name, text in of_library.items()}
    packages = ", ".join(f"{name} {text}" for name, text in found.items() if name != "python")
    threads = ", ".join(
        f"{LIBRARIES[name].title} {count}" for name, count in results["threads"].items() if count
    )
    text = PAGE.format(
        packages=packages,
        threads=threads,
        table=table(results),
        **results["machine"],
        **{name: results[name] for name in ("command", "date", "minutes", "turns", "seconds")},
    )
    if results["notes"]:
        text += "\n" + "\n".join(f"- {note}" for note in results["notes"]) + "\n"
    text += """
CleanRL is not in the table: it is a collection of scripts and no package to install.
"""
    if lines := missed(results):
        text += "\n## Goals that were missed\n\n" + "\n".join(f"- {line}" for line in lines) + "\n"
    path.write_text(text + _own_cost_tables(results["own_costs"]))


def _own_cost_tables(own_costs: list) -> str:
    """What is measured of spinup alone."""
    figures = [f for f in own_costs if "value" in f]
    tables = [f for f in own_costs if "values" in f]
    text = ""
    for f in own_costs:
        if "profiles" in f:
            text += PROFILE + profile_table(f) + "\n"
    if figures:
        rows = [[f["what"], _value(f), _aim(f) or "–"] for f in figures]
        text += "\n## Start, memory, pauses, processes\n\n"
        text += markdown(["what", "measured", "goal"], rows) + "\n"
    if tables:
        text += "\n## How speed grows\n\nEnvironment steps per second of ours while training.\n"
    for f in tables:
        rows = [["steps/s", *(f"{value:.0f}" for value in f["values"].values())]]
        text += f"\n{markdown([f['what'], *map(str, f['values'])], rows)}\n"
    return text
