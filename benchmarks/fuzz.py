"""Random command lines and randomly damaged run folders: none may end in a traceback or a hang.

python benchmarks/fuzz.py --command-lines 20000 --folders 5000 --jobs 2
python benchmarks/fuzz.py --seed 3 --only command-line:17      (one case again, with its output)

Each case follows from --seed and its number alone. It runs in a process forked from one that has
imported everything, so it takes milliseconds; a hang is killed. Command lines that pass all checks
really train, with tiny budgets, and are stopped soon after training has trained. Where this process
is root, its children give up root's right to ignore permissions.

A finding is a traceback; an exit code other than 0, 2 for a mistake and 1 for training that
failed; a hang; exit code 2 without a sentence, or after which a file of the run is changed or gone.
fuzz_corpus/ keeps cases that once were findings; they run first.
"""

import argparse
import contextlib
import io
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from fuzzing.cases import Case, corpus_names, make_case, populate, remove
from fuzzing.child import be_child, die_with_parent
from fuzzing.command_lines import known_settings, quick
from fuzzing.values import RUNS

ROOT = Path(__file__).resolve().parents[1]
HANG = 20.0  # seconds a command may take until it ends or begins to train
BATCH = 25  # cases that one process runs, where none of them ends it
WARM = (
    "torch",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "pandas",
    "matplotlib.figure",
    "tensorboard",
    "matplotlib.backends.backend_agg",
    "pygame",
    "imageio_ffmpeg",
    "ale_py",
    "cloudpickle",
    "torch.onnx",
    "gymnasium.envs.classic_control.cartpole",
    "spinup.envs",
    "pandas.io.parsers",
    "gymnasium.envs.classic_control.pendulum",
    "gymnasium.wrappers",
    "scipy.stats",
    "spinup.cli.train",
    "spinup.cli.watch",
    "spinup.cli.ls",
    "spinup.cli.plot",
    "spinup.cli.compare",
    "spinup.cli.report",
    "spinup.cli.export",
    "spinup.parts.trackers",
    "spinup.experiments.ray_jobs",
)


def run_cases(cases: list[Case], base: Path, keep: Path | None = None):
    """Yield the findings of each case. A process runs as many of them as it survives."""
    # Each below one of its own, so that `..` is not the whole of /tmp.
    wheres = [Path(tempfile.mkdtemp(prefix="spinup-fuzz-case-")) / "case" for _ in cases]
    try:
        for case, where in zip(cases, wheres):
            where.mkdir()
            populate(where, case, base)
        first = 0
        while first < len(cases):
            for events, ended in watched(cases[first:], wheres[first:]):
                case, where = cases[first], wheres[first]
                first += 1
                yield [asdict(case) | found for found in findings(case, where, events, ended)]
    finally:
        for where in wheres:
            remove(where, keep)


def watched(cases, wheres):
    """Yield what a child tells of each case, and how that ended; stops with the first bad end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        be_child(cases, wheres, writing)
    os.close(writing)
    heard, events, limit, ended = b"", [], time.monotonic() + HANG, "hang"
    done = 0
    try:
        while (left := limit - time.monotonic()) > 0:
            if not select.select([reading], [], [], left)[0]:
                break
            new = os.read(reading, 65536)
            if not new:
                ended = "itself"
                break
            *lines, heard = (heard + new).split(b"\n")
            for event in map(json.loads, lines):
                limit, ended = (
                    time.monotonic() + HANG,
                    "training" if "training" in event else "hang",
                )
                if "case_ended" in event:
                    yield events, "itself"
                    events, done = [], done + 1
                else:
                    events.append(event)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if done < len(cases):
        died = os.WIFSIGNALED(status) and ended == "itself"
        yield events, f"signal {os.WTERMSIG(status)}" if died else ended


def findings(case, where, events, ended):
    """What is wrong with how the commands of a case ended."""
    running, trained = 0, False
    for event in events:
        if "broken" in event:
            yield dict(wrong="the fuzzer itself failed", told=event["broken"])
        trained = trained or "training" in event
        if "command" in event:
            running, trained = event["command"], False
        if "ended" not in event:
            continue
        out, err = (text_of(where / f"{running}.{name}") for name in ("stdout", "stderr"))
        told = event["trace"] or err[-3000:]
        about = dict(command=case.commands[running], told=told)
        code = event["code"]
        if event["trace"] or "Traceback (most recent" in out + err or "Exception ignored" in err:
            yield about | dict(wrong="traceback", told=event["trace"] or (out + err)[-6000:])
        elif code not in (0, 2) and not (code == 1 and trained):
            yield about | dict(wrong=f"exit code {code}")
        elif code == 2 and not ("spinup: " in err or "usage: spinup" in err):
            yield about | dict(wrong="exit code 2 without a sentence")
        elif code == 2 and event["lost"] and not trained:
            yield about | dict(wrong=f"changed or lost {event['lost']}")
    if ended not in ("itself", "training"):
        yield dict(command=case.commands[running], wrong=ended, told="")


def text_of(path: Path) -> str:
    return path.read_text("utf-8", errors="replace") if path.exists() else ""


def warm():
    """Import all that cases need, and touch nothing that starts a thread."""
    sys.path.insert(0, str(ROOT))
    import spinup

    for name in WARM:
        with contextlib.suppress(ImportError):
            import_module(name)
    known_settings()
    from spinup.parts.make_env import find_spec

    with contextlib.suppress(Exception):
        find_spec("Pong-v4")  # lets the games register themselves
    return spinup


def make_runs(base: Path):
    """Train the runs that are damaged later, each in a process of its own."""
    for name, words in RUNS.items():
        child = os.fork()
        if child == 0:
            try:
                _make_run(name, words, base)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"The run {name} could not be made.")


def _make_run(name, words, base):
    from spinup.experiments.grids import make_job
    from spinup.experiments.job import write_job_file
    from spinup.run import main

    sys.stdout = io.StringIO()
    main([*words.split(), *quick(name), "--data_dir", str(base), "--exp_name", name])
    if name == "acer":  # as a grid would have left it
        import spinup

        settings = dict(env_name="CartPole-v1", epochs=2)
        job = make_job(name, spinup.acer_pytorch, settings, data_dir=str(base))
        write_job_file(job, "finished")
        (base / name / "acer_s0" / "output.txt").write_text("acer on CartPole-v1\nall is well\n")


def work(names, seed, base, out):
    """One worker: run cases, write findings as lines of JSON."""
    with open(out, "w") as file:
        for first in range(0, len(names), BATCH):
            cases = [make_case(seed, name, base) for name in names[first : first + BATCH]]
            for found in run_cases(cases, base):
                for one in found:
                    file.write(json.dumps(one | dict(seed=seed)) + "\n")
                print("", file=file, flush=True)  # one case is done


def fuzz(names: list[str], seed: int, jobs: int, show=lambda done, found: None) -> list[dict]:
    """Run the cases of these names; gives the findings."""
    warm()
    with tempfile.TemporaryDirectory(prefix="spinup-fuzz-") as folder:
        base = Path(folder) / "runs"
        make_runs(base)
        workers = {}
        for number in range(jobs):
            out = Path(folder) / f"{number}.jsonl"
            out.touch()
            workers[start_worker(names[number::jobs], seed, base, out)] = out
        return watch_workers(workers, show)


def start_worker(names, seed, base, out) -> int:
    """The process id of a worker."""
    worker = os.fork()
    if worker == 0:
        code = 1
        try:
            die_with_parent()
            work(names, seed, base, out)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return worker


def watch_workers(workers: dict[int, Path], show) -> list[dict]:
    """The findings of all workers, once they have ended."""
    failed, alive = False, set(workers)
    while alive:
        for worker in list(alive):
            done, status = os.waitpid(worker, os.WNOHANG)
            if done:
                alive.remove(worker)
                failed = failed or status != 0
        lines = [line for out in workers.values() for line in out.read_text().splitlines()]
        found = [json.loads(line) for line in lines if line]
        show(sum(not line for line in lines), found)
        time.sleep(0.3 if alive else 0)
    if failed:
        raise RuntimeError("a worker of the fuzzer failed; see above")
    return found


def main(argv=None):
    args = read_flags(argv)
    if args.only:
        return show_one(args)
    names = corpus_names()
    names += [f"command-line:{i}" for i in range(args.command_lines)]
    names += [f"folder:{i}" for i in range(args.folders)]
    random.Random(0).shuffle(names)  # so that workers have alike to do
    start = time.monotonic()

    def show(done, found):
        line = f"{done} of {len(names)} cases, {len(found)} findings"
        if sys.stderr.isatty():
            print(f"\r{line}", end="", file=sys.stderr, flush=True)

    found = fuzz(names, args.seed, args.jobs, show)
    if args.findings:
        Path(args.findings).write_text("".join(json.dumps(one) + "\n" for one in found))
    print_findings(found)
    print_summary(args, found, (time.monotonic() - start) / 60)
    return int(bool(found))


def read_flags(argv):
    parser = argparse.ArgumentParser("fuzz.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command-lines", type=int, default=20_000, metavar="N")
    parser.add_argument("--folders", type=int, default=5_000, metavar="N")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--only", metavar="CASE", help="run one case, such as folder:17")
    parser.add_argument("--keep", metavar="FOLDER", help="of --only: keep its folder and output")
    parser.add_argument("--findings", metavar="FILE", help="write findings as lines of JSON")
    return parser.parse_args(argv)


def print_findings(found):
    """One case of each kind of finding, the most frequent kind first."""
    groups = {}
    for one in found:
        groups.setdefault((one["wrong"], _last_line(one["told"])), []).append(one)
    for (wrong, line), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        first = members[0]
        print(f"\n{len(members)} x {wrong}: {line[:300]}")
        print(f"  --seed {first['seed']} --only {first['name']}")
        print(f"  {first.get('command')}\n  {first.get('damage')}"[:1500])


def print_summary(args, found, minutes):
    kinds = "traceback", "hang", "exit", "changed", "signal", "the fuzzer"
    count = {kind: sum(one["wrong"].startswith(kind) for one in found) for kind in kinds}
    cases = f"{args.command_lines} command lines, {args.folders} folders"
    print(
        f"\nseed {args.seed}: {cases}, {len(corpus_names())} of the corpus "
        f"in {minutes:.1f} minutes: "
        + ", ".join(f"{number} {kind}" for kind, number in count.items())
    )


def _last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def show_one(args):
    warm()
    with tempfile.TemporaryDirectory(prefix="spinup-fuzz-") as folder:
        base = Path(folder) / "runs"
        make_runs(base)
        case = make_case(args.seed, args.only, base)
        print(json.dumps(asdict(case), ensure_ascii=True))
        keep = Path(args.keep or Path(folder) / "kept")
        (found,) = run_cases([case], base, keep)
        for number, words in enumerate(case.commands):
            print(f"\n$ spinup {words}")
            for name in ("stdout", "stderr"):
                output = text_of(keep / f"{number}.{name}")[-3000:]
                print(output.encode("ascii", "backslashreplace").decode())
        for one in found:
            print(f"\n{one['wrong']}\n{one['told']}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
