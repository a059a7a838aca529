"""How fast training goes: beside other libraries on the same work, and beside the limit.

    make bench            (or: make bench-quick, under five minutes)
    python benchmarks/speed.py --only "SAC HalfCheetah" --turns 2

Each case is trained by every library, turn about, several times; each turn in a process of its own,
so that none inherits another's memory or threads. What counts is the best of the turns: this kind
of machine is noisy, and noise only slows. Compare only what was measured in one run.

cases.py says what is trained, peers.py how each library does it, limits.py what the limit is,
own_costs.py measures what concerns us alone, report.py writes it all down.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import own_costs
import report
from cases import CASES
from peers import LIBRARIES

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".venv-peers" / "bin" / "python"  # made by `make bench`
TIMEOUT = 300  # seconds that a turn may take


class Failed(Exception):
    """A turn did not come to its end; says why."""


def find_pythons(peers: Path) -> dict:
    """The Python that runs each library: ours for ourselves, for others the first that has it."""
    pythons = {}
    for name, library in LIBRARIES.items():
        own = name in ("ours", "limit")
        for python in [sys.executable] if own else [str(peers), sys.executable]:
            if Path(python).exists() and (own or _has(python, library.package)):
                pythons[name] = python
                break
    return pythons


def _has(python, package) -> bool:
    find = f"import importlib.util as i, sys; sys.exit(i.find_spec({package!r}) is None)"
    return subprocess.run([python, "-c", find]).returncode == 0


def measure(python, library, case, seconds) -> dict:
    """One turn of a library on a case."""
    script = str(Path(__file__).with_name("peers.py"))
    words = [python, script, library, json.dumps(asdict(case)), str(seconds)]
    environment = own_costs.environment() if library == "ours" else dict(os.environ)
    environment["TQDM_DISABLE"] = "1"  # nobody looks at bars here, and some draw one per update
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=TIMEOUT, env=environment
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"no end after {TIMEOUT} s")
    if done.returncode or not done.stdout:
        raise Failed((done.stderr.strip().splitlines() or ["no word"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def speed_of_ours(case, seconds) -> float:
    try:
        return measure(sys.executable, "ours", case, seconds)["steps_per_second"]
    except Failed as failure:
        sys.exit(f"{case}: {failure}")


def measure_case(case, pythons, turns, seconds, notes) -> dict:
    """All turns of all libraries on a case, interleaved."""
    found = {name: [] for name in pythons if case.algorithm in LIBRARIES[name].has}
    for _ in range(turns):
        for name in list(found):
            try:
                found[name].append(measure(pythons[name], name, case, seconds))
            except Failed as failure:
                title = LIBRARIES[name].title
                if name in ("ours", "limit"):
                    sys.exit(f"{title} on {case.name}: {failure}")
                notes.append(f"{title} does not run {case.name}: {failure}")
                del found[name]
    return found


def machine() -> dict:
    lines = Path("/proc/cpuinfo")
    lines = lines.read_text().splitlines() if lines.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return dict(
        cores=os.cpu_count(),
        processor=models[0] if models else platform.processor(),
        system=platform.system(),
        python=platform.python_version(),
    )


def empty_results(args, notes) -> dict:
    """What is known before anything is measured."""
    return dict(
        command=shlex.join(["python", "benchmarks/speed.py", *sys.argv[1:]]),
        date=time.strftime("%Y-%m-%d"),
        machine=machine(),
        turns=args.turns,
        seconds=args.seconds,
        versions={},
        threads={},
        notes=notes,
        cases=[],
        own_costs=[],
    )


def run(args, cases) -> dict:
    """Measure everything; what is there is written after each case."""
    began, pythons = time.time(), find_pythons(args.peers)
    notes = [
        f"{library.title} is left out: it is not installed."
        for name, library in LIBRARIES.items()
        if name not in pythons
    ]
    if args.quick:
        pythons.pop("tianshou", None)  # it takes longest to start
    if (load := os.getloadavg()[0]) > 1:
        notes.append(f"The machine was not idle when this run began: its load was {load:.1f}.")
    results = empty_results(args, notes)

    def keep():
        results["minutes"] = round((time.time() - began) / 60, 1)
        report.write_json(results, args.output)

    for case in cases:
        found = measure_case(case, pythons, args.turns, args.seconds, notes)
        for name, turns in found.items():
            for turn in turns:
                results["versions"].setdefault(name, {}).update(turn.pop("versions"))
                threads = turn["threads"] or 0  # kept: ours takes as many as pay off in a case
                results["threads"][name] = max(threads, results["threads"].get(name, 0))
        results["cases"].append(dict(name=case.name, case=asdict(case), turns=found))
        print(report.line_of(results["cases"][-1]), flush=True)
        keep()
    if args.own_costs:
        for figure in own_costs.figures(speed_of_ours, args.turns, args.seconds, args.quick):
            results["own_costs"].append(figure)
            print(report.figure_line(figure), flush=True)
            keep()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="three cases, without Tianshou; under five minutes"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="cases whose names hold one of these"
    )
    parser.add_argument("--turns", type=int, help="how often each library trains a case")
    parser.add_argument("--seconds", type=float, help="how long the clock runs in a turn")
    parser.add_argument(
        "--no-own-costs", dest="own_costs", action="store_false", help="cases alone"
    )
    parser.add_argument("--no-cases", action="store_true", help="the figures of own_costs.py alone")
    parser.add_argument("--peers", type=Path, default=PEERS, help="a Python that has the others")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "out" / "speed.json")
    parser.add_argument("--results", action="store_true", help="write RESULTS.md and speed.svg")
    parser.add_argument("--redraw", action="store_true", help="from the last run; measure nothing")
    args = parser.parse_args()
    args.turns = args.turns or (2 if args.quick else 5)
    args.seconds = args.seconds or (2.0 if args.quick else 4.0)
    if args.redraw:
        results = json.loads(args.output.read_text())
    else:
        cases = [case for case in CASES if case.quick >= args.quick]
        cases = [c for c in cases if not args.only or any(text in c.name for text in args.only)]
        args.own_costs = args.own_costs and not args.only
        results = run(args, [] if args.no_cases else cases)
    folder = ROOT / "benchmarks" if args.results else args.output.parent
    if results["cases"]:
        print("\n" + report.table(results), end="\n\n")
        report.draw(results, folder / "speed.svg")
        print(f"Chart: {folder / 'speed.svg'}")
    for note in results["notes"]:
        print(note)
    if args.results:
        report.write_results(results, ROOT / "benchmarks" / "RESULTS.md")


if __name__ == "__main__":
    main()
