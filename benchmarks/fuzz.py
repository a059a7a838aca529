"""Random command lines and randomly damaged run folders: none may end in a traceback or a hang.

python benchmarks/fuzz.py --command-lines 20000 --folders 5000 --jobs 2
python benchmarks/fuzz.py --seed 3 --only command-line:17      (one case again, with its output)

Each case follows from --seed and its number alone. It runs in a process forked from one that has
imported everything, so it takes milliseconds; a hang is killed. Command lines that pass all checks
really train, with tiny budgets, and are stopped soon after training has begun. Where this process
is root, its children give up root's right to ignore permissions.

A finding is a traceback; an exit code other than 0, 2 for a mistake and 1 for training that
failed; a hang; exit code 2 without a sentence, or after which a file of the run is changed or gone.
fuzz_corpus/ keeps cases that once were findings; they run first.
"""

import argparse
import contextlib
import ctypes
import functools
import io
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # threads do not survive a fork
os.environ.pop("DISPLAY", None)
os.environ |= dict(SDL_VIDEODRIVER="dummy", WANDB_MODE="offline", MPLBACKEND="agg")

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(__file__).with_name("fuzz_corpus")
HANG = 20.0  # seconds a command may take until it ends or begins to train
TRAINING = 0.3  # seconds it may then train
BATCH = 25  # cases that one process runs, where none of them ends it
MEMORY, LARGEST_FILE = 12 * 2**30, 2**28  # bytes that a case may ask for, and write to one file
WARM = (
    "torch", "onnx", "onnxscript", "onnxruntime", "pandas", "matplotlib.figure", "tensorboard",
    "matplotlib.backends.backend_agg", "pygame", "imageio_ffmpeg", "ale_py", "cloudpickle",
    "torch.onnx", "gymnasium.envs.classic_control.cartpole", "spinup.envs", "pandas.io.parsers",
    "gymnasium.envs.classic_control.pendulum", "gymnasium.wrappers", "scipy.stats",
    "spinup.cli.train", "spinup.cli.watch", "spinup.cli.ls", "spinup.cli.plot",
    "spinup.cli.compare", "spinup.cli.report", "spinup.cli.export",
    "spinup.parts.trackers", "spinup.experiments.ray_jobs",
)  # fmt: skip
QUICK = (
    "--epochs 2 --steps_per_epoch 24 --hid [4] --exp_name run --num_test_episodes 1 --start_steps "
    "8 --update_after 8 --update_every 8 --batch_size 4 --train_pi_iters 1 --train_v_iters 1 "
    "--max_ep_len 12 --replay_size 40 --n_steps 4 --replay_start 8 --cg_iters 2 --epsilon_steps 9"
)
# The runs whose folders are damaged, each with what makes it keep other kinds of state.
RUNS = {
    "ppo": "ppo --env CartPole-v1 --ac_kwargs:normalize True --num_envs 2",
    "dqn": "dqn --env CartPole-v1 --prioritized --n_step 2",
    "sac": "sac --env Pendulum-v1 --alpha auto --keep_models --save_freq 1",
    "acer": "acer --env CartPole-v1 --env_kwargs:sutton_barto_reward True",
    "her": "her --env spinup/BitFlip-v0 --seed 1",
}


# --- What is random ---

NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "64",
    "1000",
    "-1",
    "-7",
    "1000000",
    "1000000000",
    "1000000000000",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "-9223372036854775809",
    "1e30",
    "1e300",
    "0.0",
    "0.5",
    "1.0",
    "0.99",
    "2.5",
    "-0.5",
    "1e-3",
    "1e-30",
    "1e-400",
    "1e5",
    "1e12",
    "1e308",
    "1e400",
    "-1e400",
    "nan",
    "inf",
    "-inf",
    "NaN",
    "1_000",
    "0x10",
    "0b1",
    "1e",
    "1/2",
    "1+1",
    "1j",
    "-0",
    "-0.0",
    "+1",
    "٣",
    "½",
]
WORDS = (
    "True", "False", "None", "true", "none", "auto", "value", "npg", "dqn", "td3", "final", "",
    " ", "abc", "é", "日本語", "💥", "\udcff", "a b", "../x", ".", "..", "-", "'", '"', "\x1b[31m",
    "%s", "{}", "{0}", "[", "]", "(", ")", "[[", "[1", "[]", "[[]]", "[1,[2]]", "()", "(1,)", "1,2",
    "{1:2}", "{'a':1}", "{'a':{'b':[]}}", "dict(a=1)", "dict(**{})", "dict(1)", "b'x'", "r'x'",
    "f'{1}'", "lambda: 0", "__import__('os').getcwd()", "...", "{1,2}", "set()", "x" * 300,
    "[" * 400, "9" * 400, "9" * 5000, "-" + "9" * 400, "\t", "\n", "a\nb", "\r", "#", "a#b", "\\",
    "torch.nn.Tanh", "Tanh", "torch.nn.Linear", "torch.nn", "nn.ReLU", "tf.nn.relu", "cpu", "cuda",
    "meta", "cuda:99", "mps", "xla", "cpu:3", "rgb_array", "human", "\u202e", "\u2028", "\ufeff",
)  # fmt: skip
LISTS = (
    "[4]", "[4,4]", "[0]", "[-1]", "[1.5]", "['a']", "[True]", "[None]", "[nan]", "[1000000000]",
    "[100000,100000]", "[30000,30000]", "[1]*9", "[1,]", "(4,4)", f"[{'9' * 400}]", "[[4],[4]]",
    "4", "[4", "{4}", "[" + ",".join(["2"] * 60) + "]", "[1e30]",
)  # fmt: skip
ENVS = (
    "CartPole-v1", "CartPole-v1", "CartPole-v1", "Pendulum-v1", "Pendulum-v1", "spinup/BitFlip-v0",
    "spinup/Reach-v0", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1", "CartPole-v0",
    "CartPole", "cartpole-v1", "CartPole-v99", "Blackjack-v1", "Taxi-v3", "FrozenLake-v1", ":",
    "os:CartPole-v1", "CartPole-v1:", "a:b:c", "gymnasium:CartPole-v1", "nothing:X-v0", "./x:Y-v0",
    "spinup/", "/", "ALE/", "ALE/Nothing-v5", "phys2d/CartPole-v1", "GymV26Environment-v0",
    "GymV21Environment-v0", "tabular/CliffWalking-v0", "Humanoid-v2", "CliffWalking-v1",
)  # fmt: skip
NAMES = (
    "train", "run", "test", "eval", "play", "list", "show", "info", "continue", "stop", "rm", "pop",
    "sca", "ppo_tf1", "ppo_jax", "PPO", "pp0", "--ppo", "-", "--", "", "é", "\udcff", "x" * 300,
    "help", "--help", "-h", "version", "--version", "-v", "resum", "exports", "wacth", "plt", "\n",
)  # fmt: skip
PATHS = (
    "data", "data/run", *[f"data/{name}" for name in RUNS],
    *[f"data/{name}/run_s0" for name in RUNS],
    *[f"data/{name}/run_s0" for name in RUNS], "data/her/run_s1", "nowhere", "", ".", "/dev",
    "/dev/null", "file", "loop", "data/ppo/run_s0/config.json", "data/ppo/run_s0/pyt_save",
    "data/ppo/run_s0/checkpoint", "data/p", "~", "*", "\udcff", "é", "x" * 300, "a\nb", "-", "--",
    "data/ppo/", "./data//ppo/run_s0/", "empty", "file/x", "/proc/self/fd", "/proc/1/root",
)  # fmt: skip
FILES = (
    "out.png", "out.svg", "out.pdf", "out.html", "out.htm", "out.onnx", "out.gif", "out.mp4", "out",
    "", ".", "/", "/dev/full", "/dev/null", "nowhere/out.png", "nowhere/out.mp4",
    "nowhere/out.onnx",
    "nowhere/out.html", "file/out.png", "loop/out.html", "dir.png", "dir.html", "dir.onnx",
    "dir.mp4", "é.png", "\udcff.png", "\udcff.html", "\udcff.mp4", "x" * 300 + ".png",
    "x" * 300 + ".html", "x" * 300 + ".onnx", "-o", "/proc/out.png", "/proc/out.html",
)  # fmt: skip
COLUMNS = ("Performance", "AverageEpRet", "Epoch", "Time", "LossPi", "Nothing", "", "Unit",
           "Condition1", "Condition2", "EpLen", "é", "\udcff")  # fmt: skip
# The flags of each command: what kind of value they take, None for none.
TOOLS = {
    "resume": {"--epochs": "number", "--env": "env"},
    "watch": {"--len": "number", "-l": "number", "--episodes": "few", "-n": "few",
              "--norender": None,
              "-nr": None, "--itr": "number", "-i": "number", "--deterministic": None, "-d": None,
              "--video": "file", "--seed": "number", "--env": "env", "--actor_critic": "class"},
    "ls": {"--json": None},
    "plot": {"-l": "words", "--legend": "words", "--select": "words", "--exclude": "words",
             "-x": "column", "--xaxis": "column", "-y": "columns", "--value": "columns",
             "--count": None, "-s": "number", "--smooth": "number", "--est": "estimator",
             "--band": "band", "-o": "file", "--output": "file"},
    "compare": {"--legend": "words", "--select": "words", "--exclude": "words", "-y": "column",
                "--last": "number", "--at": "number", "--pool": None, "--scale": "scale",
                "--json": None, "--csv": None, "--markdown": None},
    "export": {"--output": "file", "-o": "file", "--itr": "number", "-i": "number",
               "--actor_critic": "class"},
}  # fmt: skip
TOOLS["test_policy"] = TOOLS["watch"]
TOOLS["report"] = {
    flag: kind for flag, kind in TOOLS["compare"].items() if flag not in ("--json", "--csv")
} | {"-o": "file", "--title": "words"}
SEVERAL_PATHS = ("ls", "plot", "compare", "report")


def value(rng, kind="any") -> str:
    """A value for a flag: of the kind it is meant for, more often than not."""
    if rng.random() < 0.15:
        kind = "any"
    pools = dict(
        number=NUMBERS, few=("1", "2", "0", "-1", "1.5", "x"), env=ENVS, file=FILES, column=COLUMNS,
        estimator=("mean", "iqm", "median", "max", "min", "x", ""), words=WORDS, path=PATHS,
        band=("ci", "std", "minmax", "none", "x"), list=LISTS,
        **{"class": ("spinup.algos.pytorch.ppo.core:MLPActorCritic", "os:path", "x", ":", "a:b:c",
                     "os:", ":x", "", "os.path:join", "é:x", "spinup.nothing:X", "..x:y")},
    )  # fmt: skip
    if kind not in pools:
        kind = rng.choice(("number", "number", "words", "list", "path"))
    return rng.choice(pools[kind])


def command_line(rng) -> list[str]:
    """A random command line."""
    chance = rng.random()
    if chance < 0.03:
        return [rng.choice(NAMES), *(value(rng) for _ in range(rng.randrange(3)))]
    return training(rng) if chance < 0.65 else tool(rng)


def training(rng) -> list[str]:
    """A command line that trains something small, but for a few flags that may be anything."""
    import spinup
    from spinup.experiments import flags

    algorithm = rng.choice(spinup.ALGORITHMS["pytorch"])
    kinds = known_settings()
    own = kinds[algorithm]
    given = {}
    for flag, word in zip(*[iter(QUICK.split())] * 2):
        if flags.SHORT_FOR.get(flag[2:], flag[2:]).split(":")[0] in own | set(flags.LAUNCHER):
            given[flag] = [word]
    continuous, goals = algorithm in ("ddpg", "td3", "sac"), algorithm == "her"
    usual = "spinup/BitFlip-v0" if goals else "Pendulum-v1" if continuous else "CartPole-v1"
    given["--env"] = [usual if rng.random() < 0.8 else rng.choice(ENVS)]
    words = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4, 6))):
        flag = random_flag(rng, own, kinds)
        count = rng.choice((0, 1, 1, 1, 1, 1, 1, 1, 2, 3))
        kind = {"--hid": "list", "--ac_kwargs:hidden_sizes": "list", "--env": "env",
                "--data_dir": "path", "--exp_name": "words"}.get(flag, "any")  # fmt: skip
        values = [value(rng, kind) for _ in range(count)]
        if rng.random() < 0.9:
            given[flag] = values
        else:
            words += [flag, *values]
    lines = [[flag, *values] for flag, values in given.items()]
    if rng.random() < 0.1:
        rng.shuffle(lines)
        lines.pop()
    name = algorithm if rng.random() < 0.9 else f"{algorithm}_pytorch"
    front = [value(rng)] if rng.random() < 0.02 else []
    return [name, *front, *(word for line in lines for word in line), *words]


def known_settings() -> dict[str, set[str]]:
    """The settings of each algorithm."""
    import inspect

    import spinup

    names = spinup.ALGORITHMS["pytorch"]
    return {
        name: set(inspect.signature(getattr(spinup, f"{name}_pytorch")).parameters)
        for name in names
    }


def random_flag(rng, own, kinds) -> str:
    from spinup.experiments import flags

    chance = rng.random()
    if chance < 0.6:
        name = rng.choice(sorted(own))
    elif chance < 0.8:
        name = rng.choice((*flags.LAUNCHER, *flags.SHORT_FOR, "hid", "hid"))
    elif chance < 0.9:
        inside = "ac_kwargs:hidden_sizes", "ac_kwargs:activation", "ac_kwargs:normalize"
        more = (
            "env_kwargs:max_episode_steps",
            "env_kwargs:render_mode",
            "env_kwargs:g",
            "env_kwargs",
        )
        name = rng.choice(
            (*inside, *more, "ac_kwargs:dueling", "ac_kwargs", "ac_kwargs:a:b", "x:y")
        )
    elif chance < 0.95:
        name = rng.choice(sorted(set().union(*kinds.values())))
    else:
        name = rng.choice(WORDS + tuple(own))
        name = rng.choice(
            (name.upper(), name[1:], f"{name}_", f"{name}=3", f"{name}[a]", f"{name}[")
        )
    if rng.random() < 0.04:
        name += rng.choice(("[ab]", "[]", "[", "[é]", ":x", ":", "=", "[../x]"))
    return f"--{name}"


def tool(rng) -> list[str]:
    """A command line of one of the other commands."""
    name = rng.choice(sorted(TOOLS))
    words = [name]
    for _ in range(rng.choice((1, 1, 1, 1, 0, 2, 3)) if name in SEVERAL_PATHS else 1):
        words.append(value(rng, "path"))
    if name in ("watch", "test_policy"):
        words += ["-n", "1", "--len", "9"]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        flag = rng.choice(sorted(TOOLS[name]))
        kind = TOOLS[name][flag]
        words.append(flag)
        if kind == "scale":
            words += [value(rng, "env"), value(rng, "number"), value(rng, "number")]
        elif kind in ("columns", "words"):
            words += [value(rng, kind.rstrip("s") if kind == "columns" else kind)
                      for _ in range(rng.randrange(3))]  # fmt: skip
        elif kind is not None and rng.random() < 0.95:
            words.append(value(rng, kind))
    if rng.random() < 0.03:
        words.insert(rng.randrange(len(words) + 1), value(rng))
    return words


# --- Damage ---

JSON_VALUES = (
    None, True, False, 0, 1, -1, 3, 10**9, 10**30, 10**400, 2.5, 1e300, float("nan"), float("inf"),
    "", "text", "\ud800", "\x00", "../../x", "x" * 5000, "CartPole-v1", "é", "0", [], [1], [None],
    [[]], {}, {"a": 1}, {"": None}, [{}], {"id": "CartPole-v1"}, "None", [0] * 50, "a\tb\nc",
)  # fmt: skip
CELLS = (
    "", "nan", "inf", "-inf", "1e400", "1e308", "-1e308", "abc", "True", "0", "-1", "9" * 400, '"',
    "'", "é", "\x00", "1,5", "0x1", " ", "None", "\ud7ff", "1e", "\x1b[31m", "10000000000000000000",
)  # fmt: skip
FRAMES = ("Epoch", "TotalEnvInteracts", "AverageEpRet", "AverageTestEpRet", "Time", "Performance",
          "Unit", "Condition1", "Condition2", "", "é", "a" * 500)  # fmt: skip
STRAY = (
    "checkpoint/x.rows", "checkpoint/buffer.rank0/x.rows", "checkpoint/epochx.rank0.npz", "x.mp4",
    "pyt_save/model" + "9" * 30 + ".pt", "pyt_save/modelx.pt", "tf1_save/x", "output.txt", "x.gif",
    "job.json", "vars.pt", "checkpoint/buffer.rank0/-1.rows", "older_runs/1/progress.txt",
    "plot.png/x", "report.html/x", "policy.onnx/x", "pyt_save/model.pt.new/x", "config.json.new/x",
    "checkpoint/latest.new/x", "checkpoint/epoch3.rank0.npz/x", "checkpoint/epoch3.rank0.npz.new/x",
)  # fmt: skip


def damages(rng, base: Path) -> list[list]:
    """What to do to the folder of a run: an operation, a file, and what else it takes."""
    paths = sorted(str(p.relative_to(base)) for p in base.rglob("*") if p.is_file())
    found = []
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        path = rng.choice(paths)
        if rng.random() < 0.4:
            path = rng.choice([p for p in paths if "rows" not in p and ".lock" not in p])
        found.append(_damage(rng, base, path))
    return found


def _damage(rng, base, path) -> list:
    structured = {".json": "json", ".npz": "outline", ".pt": "model", ".txt": "table"}
    kind = "json" if path.endswith("latest") else structured.get(Path(path).suffix)
    if kind == "table" and not path.endswith("progress.txt"):
        kind = None
    if kind and rng.random() < 0.6:
        return [kind, path, rng.randrange(2**32)]
    size = (base / path).stat().st_size
    plain = (
        ["delete", path], ["empty", path], ["truncate", path, rng.randrange(size + 1)],
        ["append", path, rng.randrange(2**32)], ["flip", path, rng.randrange(2**32)],
        ["garbage", path, rng.randrange(2**32)], ["folder", path], ["loop", path],
        ["nowhere", path], ["closed", path], ["pipe", path],
        ["swap", path, rng.choice(sorted(str(p.relative_to(base)) for p in base.rglob("*")))],
        ["closed", str(Path(path).parent)], ["delete", str(Path(path).parent)],
        ["stray", rng.choice(STRAY), rng.randrange(2**32)], ["stray", rng.choice(STRAY), 0],
    )  # fmt: skip
    return rng.choice(plain)


def do_damage(folder: Path, operation: str, path: str, more=None):
    """Damage one file of a run."""
    target, rng = folder / path, random.Random(more)
    if operation == "stray":
        if not target.exists() and target.parent.is_dir() | (not target.parent.exists()):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(rng.randbytes(100))
        return
    if operation == "swap":
        other = folder / str(more)
        if target.is_file() and other.is_file():
            ours, theirs = target.read_bytes(), other.read_bytes()
            target.write_bytes(theirs), other.write_bytes(ours)
        return
    if not target.is_file() and operation not in ("delete", "closed") or not target.exists():
        return  # an earlier damage has removed it
    if operation == "closed":
        target.chmod(0)
    elif operation in ("delete", "folder", "loop", "nowhere", "pipe"):
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        make = dict(folder=target.mkdir, loop=lambda: target.symlink_to(target.name),
                    nowhere=lambda: target.symlink_to("nowhere"), pipe=lambda: os.mkfifo(target),
        )  # fmt: skip
        make.get(operation, lambda: None)()
    else:
        data = target.read_bytes()
        edits = dict(
            empty=lambda: b"", truncate=lambda: data[: int(more)], table=lambda: _table(rng, data),
            append=lambda: data + rng.randbytes(rng.choice((1, 50))), flip=lambda: _flip(rng, data),
            garbage=lambda: rng.randbytes(rng.choice((1, 10, len(data) + 1))),
            json=lambda: _json(rng, data), outline=lambda: _outline(rng, data),
            model=lambda: _model(rng, data),
        )  # fmt: skip
        try:
            new = edits[operation]()
        except Exception:  # it was damaged before, so that this damage does not fit any more
            new = data[1:]
        target.write_bytes(new)


def _flip(rng, data) -> bytes:
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 5, 50)) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _changed(rng, tree):
    """A tree of JSON in which one value, of any depth, is another, or missing, or misnamed."""
    places = []

    def walk(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                walk(node[key])

    walk(tree)
    if not places or rng.random() < 0.03:
        return rng.choice(JSON_VALUES)
    node, key = rng.choice(places)
    how = rng.random()
    if how < 0.8:
        node[key] = rng.choice(JSON_VALUES)
    elif how < 0.9:
        del node[key]
    elif isinstance(node, dict):
        node[rng.choice(("x", "", "algorithm", "epoch", "overwrite", "\ud800"))] = node.pop(key)
    else:
        node.append(node[key])
    return tree


def _json(rng, data) -> bytes:
    if rng.random() < 0.03:
        return b"[" * 100_000
    try:
        tree = json.loads(data)
    except ValueError:
        return data[1:]
    for _ in range(rng.choice((1, 1, 2))):
        tree = _changed(rng, tree) if isinstance(tree, (dict, list)) else tree
    return json.dumps(tree).encode()


def _outline(rng, data) -> bytes:
    import numpy as np

    try:
        arrays = dict(np.load(io.BytesIO(data)))
        outline = json.loads(arrays["outline"].tobytes())
    except Exception:
        return data[1:]
    name = rng.choice(sorted(arrays))
    if name == "outline" or rng.random() < 0.6:
        outline = json.dumps(_changed(rng, outline)).encode()
        arrays["outline"] = np.frombuffer(outline, np.uint8)
    else:
        array = arrays[name]
        arrays[name] = rng.choice((
            array.reshape(-1), array.astype(np.float16), array.astype(str), array[..., None],
            np.zeros(0), array.astype(np.int64), array.reshape(-1)[:1], np.array(3), array[:0],
        ))  # fmt: skip
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def _model(rng, data) -> bytes:
    import torch

    try:
        content = torch.load(io.BytesIO(data), weights_only=True)
        architecture, weights = json.loads(content["architecture"]), content["weights"]
    except Exception:
        return data[1:]
    name = rng.choice(sorted(weights))
    how = rng.random()
    if how < 0.6:
        content["architecture"] = json.dumps(_changed(rng, architecture))
    elif how < 0.8:
        w = weights[name]
        others = w.reshape(-1), w.double(), w[None], w[..., :0], w.to(torch.int32), None, 3, "x"
        weights[name] = rng.choice(others)
    else:
        content[rng.choice(("weights", "architecture"))] = rng.choice(JSON_VALUES[:20])
    out = io.BytesIO()
    torch.save(content, out)
    return out.getvalue()


def _table(rng, data) -> bytes:
    rows = [line.split("\t") for line in data.decode(errors="replace").split("\n")]
    for _ in range(rng.choice((1, 1, 3, 20))):
        row = rng.choice(rows)
        place = rng.randrange(len(row)) if row else 0
        how = rng.random()
        if how < 0.5 and row:
            row[place] = rng.choice(FRAMES if row is rows[0] and how < 0.4 else CELLS)
        elif how < 0.6 and row:
            del row[place]
        elif how < 0.7:
            row.insert(place, rng.choice(CELLS))
        elif how < 0.8:
            rows.insert(rng.randrange(len(rows) + 1), list(row))
        elif how < 0.9:
            rows.remove(row)
        else:
            row[:] = ["\t".join(row)] if rng.random() < 0.5 else ["\r".join(row)]
        if not rows:
            break
    return "\n".join("\t".join(row) for row in rows).encode()


def folder_commands(rng, run: str) -> list[list[str]]:
    """What is done with a damaged run: everything, the drawing not always."""
    name = next(iter(RUN_FOLDERS[run]))
    where = f"data/{run}/{name}"
    commands = [
        ["ls", "data"], ["ls", "--json", where], ["compare", "data", *rng.choice(([], ["--csv"],
        ["--json"], ["--markdown"], ["--pool"], ["--last", "2"], ["--at", "30"]))],
        [rng.choice(("watch", "test_policy")), where, "-n", "1", "--len", "5", "-nr",
         *rng.choice((["-d"], [], ["--itr", "0"], ["--env", "CartPole-v1"], ["--seed", "3"]))],
        ["export", where], ["report", "data", "-o", "out.html"],
    ]  # fmt: skip
    if rng.random() < 0.3:
        commands.append(["plot", "data", "-o", "out.png", *rng.choice(([], ["--count"]))])
    again = [*RUNS[run].split(), *quick(run), "--data_dir", f"data/{run}/..", "--exp_name", run]
    commands.append(["resume", where, *rng.choice(([], ["--epochs", "3"]))])
    commands.append(rng.choice((again, [*again, "--seed", "0", "5"], ["resume", where, "--epochs",
                    "4"], [*again, "--overwrite"])))  # fmt: skip
    return commands


# --- Cases ---


@dataclass
class Case:
    """Something to run: command lines one after the other, in a folder that may be damaged."""

    name: str  # such as command-line:17, which with the seed makes it again
    commands: list[list[str]]
    run: str | None = None  # whose folder is damaged
    damage: list[list] = field(default_factory=list)


RUN_FOLDERS = {name: [f"{name}_s{int(name == 'her')}"] for name in RUNS}


def quick(run) -> list[str]:
    """The flags of QUICK that the algorithm of a run has."""
    from spinup.experiments import flags

    own, words = known_settings()[run] | set(flags.LAUNCHER), []
    for flag, word in zip(*[iter(QUICK.split())] * 2):
        if flag != "--exp_name" and flags.SHORT_FOR.get(flag[2:], flag[2:]).split(":")[0] in own:
            words += [flag, word]
    return words


def make_case(seed: int, name: str, base: Path) -> Case:
    """The case of this name; a name that is a number's is random, and the same each time."""
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


# --- The child that runs a case ---


class Begun(BaseException):
    """The command has passed all checks, and would now do what takes long."""


def prepare_child():
    """Make this process harmless: small, without root's rights, its training soon over."""
    from spinup.experiments import jobs, processes, ray_jobs, train
    from spinup.parts import logger, run_setup
    from spinup.parts.checkpoint import Checkpoint
    from spinup.results import export

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    give_up_rights()
    original, open_trackers = Checkpoint.epochs, logger.open_trackers

    def epochs(self, *args):
        for epoch in original(self, *args):
            report(begun=True)
            if signal.getitimer(signal.ITIMER_REAL)[0] == 0:
                signal.setitimer(signal.ITIMER_REAL, TRAINING)
            yield epoch

    def begun(*args, **kwargs):
        raise Begun

    signal.signal(signal.SIGALRM, begun)

    def fork(n, *args, **kwargs):
        if n > 1:
            raise Begun

    Checkpoint.epochs = epochs
    train.mpi_fork, export.to_onnx = fork, begun
    for module in (processes, jobs):
        module.start_process = begun
    logger.open_trackers = lambda folder, name, tensorboard, wandb, backend: open_trackers(
        folder, name, tensorboard, False, backend
    )
    Figure = import_module("matplotlib.figure").Figure
    savefig = Figure.savefig
    Figure.savefig = lambda *args, **kwargs: random.random() < 0.1 and savefig(*args, **kwargs)
    run_setup.version = functools.cache(run_setup.version)
    ray_jobs.run_on_ray = begun


def die_with_parent():
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def give_up_rights():
    """Let root's files be closed to root as to anybody else (Linux)."""
    if os.name == "posix" and sys.platform == "linux" and os.getuid() == 0:
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # capabilities, third version; this process
        none = (ctypes.c_uint32 * 6)()
        ctypes.CDLL(None).capset(header, none)


_reports = None  # where a child tells its worker how it goes


def report(**what):
    os.write(_reports, json.dumps(what).encode() + b"\n")


def snapshot(folder: Path) -> dict:
    """The files of runs, and what they hold; without those that any command may write."""
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            if name != ".lock":
                try:
                    regular = path.is_file() and not path.is_symlink()
                    found[str(path)] = path.read_bytes() if regular else os.lstat(path).st_mode
                except OSError as error:
                    found[str(path)] = error.errno
    return found


def run_child(case: Case, where: Path):
    """Run the commands of a case, one after the other, and tell what became of each."""
    from spinup import user_config
    from spinup.cli import ls
    from spinup.run import main

    os.chdir(where)
    user_config.DEFAULT_DATA_DIR = ls.DEFAULT_DATA_DIR = str(where / "data")
    # Most updates run as they are written: capturing them first takes longer than all else.
    user_config.FAST = random.Random(case.name).random() < 0.1
    keep = case.run is not None
    for number, words in enumerate(case.commands):
        report(command=number)
        before = snapshot(where / "data") if keep else {}
        for stream, name in ((1, "stdout"), (2, "stderr")):
            file = os.open(where / f"{number}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, stream)
            os.close(file)
        sys.stdout, sys.stderr = (open(n, "w", encoding="utf-8", errors=e, closefd=False)
                                  for n, e in ((1, "strict"), (2, "backslashreplace")))  # fmt: skip
        code, trace, begun = 0, "", False
        sys.argv = ["spinup", *words]
        try:
            main(list(words))
        except Begun:
            begun = True
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            trace, code = traceback.format_exc(), -1
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        unasked = keep and code == 2 and "--overwrite" not in words
        lost = lost_files(before, snapshot(where / "data")) if unasked else []
        code = 0 if code is None else code if isinstance(code, int) else 1
        report(ended=number, code=code, trace=trace[-6000:], stopped=begun, lost=lost)


def lost_files(before: dict, after: dict) -> list[str]:
    return sorted(path for path, data in before.items() if after.get(path) != data)


# --- The worker that watches it ---


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
                limit, ended = time.monotonic() + HANG, "training" if "begun" in event else "hang"
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


def be_child(cases, wheres, reports):
    """Run cases, in the process that was forked for them, and end it."""
    global _reports
    _reports, code = reports, 1
    try:
        os.setsid()
        die_with_parent()
        prepare_child()
        for case, where in zip(cases, wheres):
            run_child(case, where)
            report(case_ended=True)
        code = 0
    except BaseException:
        report(broken=traceback.format_exc())
    finally:
        os._exit(code)


def findings(case, where, events, ended):
    """What is wrong with how the commands of a case ended."""
    running, begun = 0, False
    for event in events:
        if "broken" in event:
            yield dict(wrong="the fuzzer itself failed", told=event["broken"])
        begun = begun or "begun" in event
        if "command" in event:
            running, begun = event["command"], False
        if "ended" not in event:
            continue
        out, err = (text_of(where / f"{running}.{name}") for name in ("stdout", "stderr"))
        told = event["trace"] or err[-3000:]
        about = dict(command=case.commands[running], told=told)
        code = event["code"]
        if event["trace"] or "Traceback (most recent" in out + err or "Exception ignored" in err:
            yield about | dict(wrong="traceback", told=event["trace"] or (out + err)[-6000:])
        elif code not in (0, 2) and not (code == 1 and begun):
            yield about | dict(wrong=f"exit code {code}")
        elif code == 2 and not ("spinup: " in err or "usage: spinup" in err):
            yield about | dict(wrong="exit code 2 without a sentence")
        elif code == 2 and event["lost"] and not begun:
            yield about | dict(wrong=f"changed or lost {event['lost']}")
    if ended not in ("itself", "training"):
        yield dict(command=case.commands[running], wrong=ended, told="")


def text_of(path: Path) -> str:
    return path.read_text("utf-8", errors="replace") if path.exists() else ""


# --- All of it ---


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
            worker = os.fork()
            if worker == 0:
                code = 1
                try:
                    die_with_parent()
                    work(names[number::jobs], seed, base, out)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            workers[worker] = out
        failed = False
        alive = set(workers)
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
    parser = argparse.ArgumentParser("fuzz.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--command-lines", type=int, default=20_000, metavar="N")
    parser.add_argument("--folders", type=int, default=5_000, metavar="N")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--only", metavar="CASE", help="run one case, such as folder:17")
    parser.add_argument("--keep", metavar="FOLDER", help="of --only: keep its folder and output")
    parser.add_argument("--findings", metavar="FILE", help="write findings as lines of JSON")
    args = parser.parse_args(argv)
    if args.only:
        return show_one(args)
    names = corpus_names()
    names += [f"command-line:{i}" for i in range(args.command_lines)]
    names += [f"folder:{i}" for i in range(args.folders)]
    random.Random(0).shuffle(names)  # so that workers have alike to do
    began = time.monotonic()

    def show(done, found):
        line = f"{done} of {len(names)} cases, {len(found)} findings"
        if sys.stderr.isatty():
            print(f"\r{line}", end="", file=sys.stderr, flush=True)

    found = fuzz(names, args.seed, args.jobs, show)
    if args.findings:
        Path(args.findings).write_text("".join(json.dumps(one) + "\n" for one in found))
    groups = {}
    for one in found:
        groups.setdefault((one["wrong"], _last_line(one["told"])), []).append(one)
    for (wrong, line), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        first = members[0]
        print(f"\n{len(members)} x {wrong}: {line[:300]}")
        print(f"  --seed {first['seed']} --only {first['name']}")
        print(f"  {first.get('command')}\n  {first.get('damage')}"[:1500])
    minutes = (time.monotonic() - began) / 60
    count = {word: sum(one["wrong"].startswith(word) for one in found)
             for word in ("traceback", "hang", "exit", "changed", "signal", "the fuzzer")
    }  # fmt: skip
    print(f"\nseed {args.seed}: {args.command_lines} command lines, {args.folders} folders, "
          f"{len(corpus_names())} of the corpus in {minutes:.1f} minutes: "
          + ", ".join(f"{number} {word}" for word, number in count.items()))  # fmt: skip
    return int(bool(found))


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
                print(
                    text_of(keep / f"{number}.{name}")[-3000:]
                    .encode("ascii", "backslashreplace")
                    .decode()
                )
        for one in found:
            print(f"\n{one['wrong']}\n{one['told']}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
