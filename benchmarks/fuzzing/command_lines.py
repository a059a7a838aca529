"""Random command lines: trainings, and the other commands with their flags."""

import inspect

from fuzzing.values import (
    COLUMNS,
    ENVS,
    FILES,
    LISTS,
    NAMES,
    NUMBERS,
    PATHS,
    WORDS,
)

QUICK = (
    "--epochs 2 --steps_per_epoch 24 --hid [4] --exp_name run --num_test_episodes 1 --start_steps "
    "8 --update_after 8 --update_every 8 --batch_size 4 --train_pi_iters 1 --train_v_iters 1 "
    "--max_ep_len 12 --replay_size 40 --n_steps 4 --replay_start 8 --cg_iters 2 --epsilon_steps 9"
)
# The flags of each command: what kind of value they take, None for none.
TOOLS = {
    "resume": {"--epochs": "number", "--env": "env"},
    "watch": {
        "--len": "number",
        "-l": "number",
        "--episodes": "few",
        "-n": "few",
        "--norender": None,
        "-nr": None,
        "--itr": "number",
        "-i": "number",
        "--deterministic": None,
        "-d": None,
        "--video": "file",
        "--seed": "number",
        "--env": "env",
        "--actor_critic": "class",
    },
    "ls": {"--json": None},
    "plot": {
        "-l": "words",
        "--legend": "words",
        "--select": "words",
        "--exclude": "words",
        "-x": "column",
        "--xaxis": "column",
        "-y": "columns",
        "--value": "columns",
        "--count": None,
        "-s": "number",
        "--smooth": "number",
        "--est": "estimator",
        "--band": "band",
        "-o": "file",
        "--output": "file",
    },
    "compare": {
        "--legend": "words",
        "--select": "words",
        "--exclude": "words",
        "-y": "column",
        "--last": "number",
        "--at": "number",
        "--pool": None,
        "--scale": "scale",
        "--json": None,
        "--csv": None,
        "--markdown": None,
    },
    "export": {
        "--output": "file",
        "-o": "file",
        "--itr": "number",
        "-i": "number",
        "--actor_critic": "class",
    },
}
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
        number=NUMBERS,
        few=("1", "2", "0", "-1", "1.5", "x"),
        env=ENVS,
        file=FILES,
        column=COLUMNS,
        estimator=("mean", "iqm", "median", "max", "min", "x", ""),
        words=WORDS,
        path=PATHS,
        band=("ci", "std", "minmax", "none", "x"),
        list=LISTS,
        **{
            "class": (
                "spinup.algos.pytorch.ppo.core:MLPActorCritic",
                "os:path",
                "x",
                ":",
                "a:b:c",
                "os:",
                ":x",
                "",
                "os.path:join",
                "é:x",
                "spinup.nothing:X",
                "..x:y",
            )
        },
    )
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
        if flags.SUBSTITUTIONS.get(flag[2:], flag[2:]).split(":")[0] in own | set(flags.LAUNCHER):
            given[flag] = [word]
    continuous, goals = algorithm in ("ddpg", "td3", "sac"), algorithm == "her"
    usual = "spinup/BitFlip-v0" if goals else "Pendulum-v1" if continuous else "CartPole-v1"
    given["--env"] = [usual if rng.random() < 0.8 else rng.choice(ENVS)]
    words = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4, 6))):
        flag = random_flag(rng, own, kinds)
        count = rng.choice((0, 1, 1, 1, 1, 1, 1, 1, 2, 3))
        kind = {
            "--hid": "list",
            "--ac_kwargs:hidden_sizes": "list",
            "--env": "env",
            "--data_dir": "path",
            "--exp_name": "words",
        }.get(flag, "any")
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
        name = rng.choice((*flags.LAUNCHER, *flags.SUBSTITUTIONS, "hid", "hid"))
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
        name = rng.choice(WORDS + tuple(sorted(own)))
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
            words += [
                value(rng, kind.rstrip("s") if kind == "columns" else kind)
                for _ in range(rng.randrange(3))
            ]
        elif kind is not None and rng.random() < 0.95:
            words.append(value(rng, kind))
    if rng.random() < 0.03:
        words.insert(rng.randrange(len(words) + 1), value(rng))
    return words


def quick(run) -> list[str]:
    """The flags of QUICK that the algorithm of a run has."""
    from spinup.experiments import flags

    own, words = known_settings()[run] | set(flags.LAUNCHER), []
    for flag, word in zip(*[iter(QUICK.split())] * 2):
        setting = flags.SUBSTITUTIONS.get(flag[2:], flag[2:]).partition(":")[0]
        if flag != "--exp_name" and setting in own:
            words += [flag, word]
    return words
