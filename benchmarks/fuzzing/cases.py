"""A case: command lines and the run whose folder is damaged, made from a seed and a name."""

import contextlib
import json
import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from fuzzing.command_lines import TOOLS, command_line, quick
from fuzzing.damage import damages, do_damage
from fuzzing.values import RUN_FOLDERS, RUNS

CORPUS = Path(__file__).parents[1] / "fuzz_corpus"


@dataclass
class Case:
    """Something to run: command lines one after the other, in a folder that may be damaged."""

    name: str  # such as command-line:17, which with the seed makes it again
    commands: list[list[str]]
    run: str | None = None  # whose folder is damaged
    damage: list[list] = field(default_factory=list)


def make_case(seed: int, name: str, base: Path) -> Case:
    """The case of this name; one with a number is random, and the same each time."""
    kind, _, number = name.partition(":")
    if kind == "corpus":
        saved = json.loads((CORPUS / "cases.jsonl").read_text().splitlines()[int(number)])
        return Case(name, saved["commands"], saved.get("run"), saved.get("damage", []))
    rng = random.Random(f"{seed} {name}")
    if kind == "command-line":
        return Case(name, [command_line(rng)])
    run = rng.choice(sorted(RUNS))
    (folder,) = RUN_FOLDERS[run]
    damage = damages(rng, base / run / folder)
    return Case(name, folder_commands(rng, run), run, damage)


def corpus_names() -> list[str]:
    path = CORPUS / "cases.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [f"corpus:{i}" for i in range(len(lines))]


def folder_commands(rng, run: str) -> list[list[str]]:
    """What is done with a damaged run: everything, the drawing not always."""
    name = next(iter(RUN_FOLDERS[run]))
    where = f"data/{run}/{name}"
    compared = (
        [],
        ["--csv"],
        ["--json"],
        ["--markdown"],
        ["--pool"],
        ["--last", "2"],
        ["--at", "30"],
    )
    watched = ["-d"], [], ["--itr", "0"], ["--env", "CartPole-v1"], ["--seed", "3"]
    commands = [
        ["ls", "data"],
        ["ls", "--json", where],
        ["compare", "data", *rng.choice(compared)],
        [
            rng.choice(("watch", "test_policy")),
            *(where, "-n", "1", "--len", "5", "-nr"),
            *rng.choice(watched),
        ],
        ["export", where],
        ["report", "data", "-o", "out.html"],
    ]
    if rng.random() < 0.3:
        commands.append(["plot", "data", "-o", "out.png", *rng.choice(([], ["--count"]))])
    again = [*RUNS[run].split(), *quick(run), "--data_dir", f"data/{run}/..", "--exp_name", run]
    commands.append(["resume", where, *rng.choice(([], ["--epochs", "3"]))])
    last = (
        again,
        [*again, "--seed", "0", "5"],
        ["resume", where, "--epochs", "4"],
        [*again, "--overwrite"],
    )
    commands.append(rng.choice(last))
    return commands


def populate(where: Path, case: Case, base: Path):
    """The folder that a case runs in."""
    needs = case.run is not None or case.commands[0][:1] and case.commands[0][0] in TOOLS
    if case.run is not None:
        shutil.copytree(base / case.run, where / "data" / case.run)
        (folder,) = RUN_FOLDERS[case.run]
        for operation in case.damage:
            do_damage(where / "data" / case.run / folder, *operation)
        other = "sac" if case.run == "ppo" else "ppo"
        shutil.copytree(base / other, where / "data" / other)  # one that is whole, beside it
    elif needs:
        for name in RUNS:  # under the names that PATHS has
            (folder,) = RUN_FOLDERS[name]
            shutil.copytree(base / name / folder, where / "data" / name / "run_s0")
    if case.run is None:
        (where / "file").write_text("text")
        (where / "loop").symlink_to("loop")
        for name in ("empty", "dir.png", "dir.html", "dir.onnx", "dir.mp4"):
            (where / name).mkdir()


def remove(where: Path, keep: Path | None):
    """Remove the folder of a case, however it is damaged; a copy may be kept."""
    for root, folders, _ in os.walk(where):
        for name in folders:
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(root, name), 0o700)
    if keep is not None:
        skip = {path.name for path in where.rglob("*") if not (path.is_file() or path.is_dir())}
        shutil.copytree(where, keep, dirs_exist_ok=True, ignore=lambda _, names: skip & set(names))
    shutil.rmtree(where.parent, ignore_errors=True)
