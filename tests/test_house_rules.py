"""The house rules of the code, kept by reading it with Python's `ast`."""

import ast
import difflib
import inspect
import json
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import spinup

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "spinup").rglob("*.py"))
FOLDERS = sorted(
    folder
    for backend in ("pytorch", "tf1")
    for folder in (ROOT / "spinup" / "algos" / backend).glob("*")
    if (folder / f"{folder.name}.py").exists()
)
ALGORITHMS = [f"{folder.parent.name}/{folder.name}" for folder in FOLDERS]
PYTORCH = [name for name in ALGORITHMS if name.startswith("pytorch/")]
LONGEST, LONGER = 170, {"pytorch/acer": 220}  # lines; ACER is four ideas in one
LONGER |= {name: 205 for name in ALGORITHMS if name.startswith("tf1/")}  # which build a graph, too
FROM_THE_LAUNCHER = {"env_name", "env_kwargs", "exp_name", "num_cpu"}

every_source = pytest.mark.parametrize(
    "path", SOURCES, ids=[str(path.relative_to(ROOT)) for path in SOURCES]
)
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def folder_of(name):
    return ROOT / "spinup" / "algos" / name


def source_of(name):
    folder = folder_of(name)
    return folder / f"{folder.name}.py"


@cache
def parse(path):
    return ast.parse(path.read_text())


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path):
    """Every name a file imports, in full: `from a.b import c as d` is d: a.b.c."""
    found = {}
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom):
            package = module_name(path).split(".")
            package = package if path.name == "__init__.py" else package[:-1]
            package = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*package, *([node.module] if node.module else [])])
            for alias in node.names:
                found[alias.asname or alias.name] = f"{module}.{alias.name}"
    return found


def training_function(name):
    """The signature's parameters and the docstring, without importing a backend."""
    algorithm = folder_of(name).name
    (function,) = [
        node
        for node in parse(source_of(name)).body
        if isinstance(node, ast.FunctionDef) and node.name == algorithm
    ]
    arguments = function.args
    parameters = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return parameters, ast.get_docstring(function)


def is_launch(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def test_there_are_algorithms_and_the_table_names_them_all():
    assert {"pytorch/ppo", "pytorch/sac", "pytorch/dqn"} <= set(ALGORITHMS)
    in_the_table = {f"{b}/{name}" for b, names in spinup.ALGORITHMS.items() for name in names}
    assert in_the_table == set(ALGORITHMS)


# --- An algorithm's file ---


@every_algorithm
def test_an_algorithm_reads_downwards(name):
    """Learner, losses, update, (helpers,) make_learner, the training function, launch."""
    algorithm, order = folder_of(name).name, []
    for node in parse(source_of(name)).body:
        if is_launch(node):
            order.append("launch")
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            order.append(re.sub(r"^compute_loss_\w+$", "loss", node.name))
    known = {"Learner", "loss", "update", "make_learner", algorithm, "launch"}
    line = " ".join(part if part in known else "helper" for part in order)
    shape = rf"Learner( loss)+ update( helper)* make_learner {algorithm} launch"
    assert re.fullmatch(shape, line), line


@every_algorithm
def test_an_algorithm_fits_on_a_few_screens(name):
    lines = len(source_of(name).read_text().splitlines())
    assert lines <= LONGER.get(name, LONGEST), f"{name} has {lines} lines"


@every_algorithm
def test_an_algorithm_can_be_run_as_a_file(name):
    (launch,) = [node for node in parse(source_of(name)).body if is_launch(node)]
    start = f"from spinup.cli.train import launch\nlaunch({folder_of(name).name}, __file__)"
    assert ast.unparse(launch.body) == start


@every_algorithm
def test_an_algorithms_folder_has_its_four_files(name):
    folder = folder_of(name)
    wanted = {f"{folder.name}.py", "core.py", "config.json", "README.md"}
    assert wanted - {path.name for path in folder.iterdir()} == set()


@every_algorithm
def test_config_json_chooses_among_what_the_signature_defines(name):
    config = json.loads((folder_of(name) / "config.json").read_text())
    parameters, _ = training_function(name)
    assert set(config) - FROM_THE_LAUNCHER - set(parameters) == set()
    assert "env_name" in config


@every_algorithm
def test_the_docstring_explains_every_parameter_and_no_other(name):
    parameters, docstring = training_function(name)
    explained = re.findall(r"^(\w+): \S", docstring, re.MULTILINE)
    assert explained == parameters


@every_algorithm
def test_the_signature_begins_as_the_original_did(name):
    parameters, _ = training_function(name)
    assert parameters[:5] == ["env_fn", "actor_critic", "ac_kwargs", "seed", "steps_per_epoch"]
    assert {"gamma", "max_ep_len", "logger_kwargs", "num_envs", "device", "resume"} <= set(
        parameters
    )


def collecting_loop(name):
    """The text of the loop that collects experience, and apart the line that chooses actions."""
    path = source_of(name)
    loops = [
        node
        for node in ast.walk(parse(path))
        if isinstance(node, ast.For) and ast.unparse(node.iter).startswith("logger.progress(")
    ]
    assert len(loops) == 1, f"{name} should collect in one loop over logger.progress(...)"
    choices = [
        node
        for node in loops[0].body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "act"
    ]
    assert len(choices) == 1, f"{name} should choose its actions in one statement, act = ..."
    lines = path.read_text().splitlines()
    choice = range(choices[0].lineno, choices[0].end_lineno + 1)
    return [
        lines[i - 1] for i in range(loops[0].lineno, loops[0].end_lineno + 1) if i not in choice
    ]


TF1 = [name for name in ALGORITHMS if name.startswith("tf1/")]


@pytest.mark.parametrize("name", TF1)
def test_a_graph_reads_like_its_sister(name):
    """The same names in the same order; settings with the same defaults, in the same words."""
    nodes, settings = [], []
    for each in (name, name.replace("tf1/", "pytorch/")):
        defined = [
            n for n in parse(source_of(each)).body if isinstance(n, (ast.ClassDef, ast.FunctionDef))
        ]
        nodes.append([node.name for node in defined])
        (train,) = [node for node in defined if node.name == folder_of(each).name]
        defaults = [ast.unparse(default) for default in train.args.defaults]
        meanings = ast.get_docstring(train).splitlines()
        settings.append(
            [[*filter(lambda d: "core." not in d, defaults)], training_function(each)[0], meanings]
        )
    ours, sisters = nodes
    assert ours == sisters
    assert settings[0][:2] == settings[1][:2]
    differ = [a.split(": ")[0] for a, b in zip(settings[0][2], settings[1][2]) if a != b]
    assert differ == ["actor_critic", "ac_kwargs"]


def test_off_policy_algorithms_collect_alike():
    """So that `diff ddpg.py td3.py` is the lesson."""
    alike = [name for name in ("pytorch/ddpg", "pytorch/td3", "pytorch/sac") if name in ALGORITHMS]
    loops = {name: "\n".join(collecting_loop(name)) for name in alike}
    assert "step = env.step(act)" in loops["pytorch/sac"]
    for name, loop in loops.items():
        assert loop == loops["pytorch/sac"], f"{name} collects otherwise than sac"


# How each idea of TD3 shows in a line of td3.py that is not in ddpg.py.
IDEAS = dict(
    twins=r"\bTwin\b|critics\b|first critic|\bq[12]\b|Q[12]Vals|q_values|q_parameters|\(-1\)\.sum",
    smoothing=r"target_noise|noise_clip|smoothing|a2 = bounds\.clip|dict\(bounds=bounds\)",
    delay=r"policy_delay|move_policy|delayed|^ {8}return q_stats$",
)


def test_td3_differs_from_ddpg_by_its_three_ideas():
    ddpg, td3 = (
        re.sub("ddpg|td3", "name", source_of(f"pytorch/{name}").read_text(), flags=re.I)
        for name in ("ddpg", "td3")
    )
    ddpg, td3 = ddpg.splitlines(), td3.splitlines()
    shown = set()
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, ddpg, td3, False).get_opcodes():
        if kind == "equal":
            continue
        assert i_end - i <= j_end - j, f"ddpg.py has more to say than td3.py: {ddpg[i:i_end]}"
        for line in td3[j:j_end]:
            ideas = {idea for idea, shows in IDEAS.items() if re.search(shows, line)}
            assert ideas, f"td3.py differs from ddpg.py: {line}"
            shown |= ideas
    assert shown == set(IDEAS)


def vpg_and_ppo():
    """The texts of both, in which VPG goes by the name of PPO."""
    text = source_of("pytorch/vpg").read_text()
    return (
        text.replace("vpg", "ppo").replace("VPG", "PPO"),
        source_of("pytorch/ppo").read_text(),
    )


def texts_of(source, nodes):
    """The text of each node, comments and all, by its name or by the name it is given."""
    named = {}
    for node in nodes:
        name = getattr(node, "name", None) or ast.unparse(getattr(node, "targets", [node])[0])
        named[name] = ast.get_source_segment(source, node)
    return named


def test_ppo_differs_from_vpg_in_its_policy_loss_and_its_update_only():
    """So that `diff vpg.py ppo.py` is the lesson."""
    parts, bodies, meanings = [], [], []
    for source in vpg_and_ppo():
        defined = [
            n for n in ast.parse(source).body if isinstance(n, (ast.ClassDef, ast.FunctionDef))
        ]
        (train,) = [node for node in defined if node.name == "ppo"]
        parts.append(texts_of(source, defined))
        bodies.append(texts_of(source, train.body[1:]))  # without the docstring
        lines = ast.get_docstring(train).splitlines()
        meanings.append(dict(line.split(": ", 1) for line in lines if ": " in line))
    of_vpg, of_ppo = parts
    assert list(of_vpg) == list(of_ppo)
    differ = {name for name in of_ppo if of_vpg[name] != of_ppo[name]}
    assert differ == {"compute_loss_pi", "update", "ppo"}
    of_vpg, of_ppo = bodies
    assert list(of_vpg) == list(of_ppo)
    assert any("buffer.finish_path(v, i)" in text for text in of_ppo.values())
    assert of_vpg == of_ppo  # the same training loop
    of_vpg, of_ppo = meanings
    assert of_vpg.items() < of_ppo.items()  # the same words for the same settings
    assert of_ppo.keys() - of_vpg.keys() == {
        "clip_ratio", "train_pi_iters", "target_kl", "minibatch_size", "ent_coef", "max_grad_norm",
    }  # fmt: skip


# --- Who may import whom ---


def imports_of(path):
    return [full for full in imported(path).values() if full.startswith("spinup.")]


def test_parts_know_no_algorithm():
    parts = sorted((ROOT / "spinup" / "parts").glob("*.py"))
    assert len(parts) > 5
    for path in parts:
        known = [full for full in imports_of(path) if full.startswith("spinup.algos")]
        assert known == [], f"{path.name} imports {known}"


@every_algorithm
def test_no_algorithm_imports_another(name):
    own = f"spinup.algos.{name.replace('/', '.')}"
    for path in folder_of(name).glob("*.py"):
        foreign = [
            full
            for full in imports_of(path)
            if full.startswith("spinup.algos.") and not f"{full}.".startswith(f"{own}.core.")
        ]
        assert foreign == [], f"{path.name} imports {foreign}"


def test_importing_spinup_imports_no_framework():
    code = "import sys, spinup; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    loaded = {module.partition(".")[0] for module in run.stdout.split()}
    assert "spinup" in loaded
    assert (
        loaded & {"torch", "tensorflow", "numpy", "gymnasium", "gym", "pandas", "mpi4py"} == set()
    )


# --- Classes ---


@cache
def own_classes():
    """Each class of ours by its full name, with the full names of its bases."""
    classes = {}
    for path in SOURCES:
        names, module = imported(path), module_name(path)
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                bases = []
                for base in node.bases:
                    first, _, rest = ast.unparse(base).partition(".")
                    first = names.get(first, f"{module}.{first}")
                    bases.append(f"{first}.{rest}" if rest else first)
                classes[f"{module}.{node.name}"] = bases
    return classes


def defined_at(name):
    """Where a class that is passed on by another module was defined."""
    while name not in own_classes() and name.startswith("spinup."):
        module, _, attribute = name.rpartition(".")
        path = ROOT / Path(*module.split(".")).with_suffix(".py")
        onward = imported(path).get(attribute) if path.exists() else None
        if onward is None:
            return None
        name = onward
    return name


def own_bases(name):
    return [b for b in map(defined_at, own_classes()[name]) if b in own_classes()]


def test_our_classes_inherit_from_ours_one_level_deep_at_most():
    classes = own_classes()
    base = ["spinup.parts.buffers.GAEBuffer"]
    assert own_bases("spinup.parts.pytorch.buffers.GAEBuffer") == base
    for name in classes:
        for base in own_bases(name):
            assert own_bases(base) == [], f"{name} inherits from {base}, which inherits again"


def test_no_class_is_an_agent_a_trainer_a_manager_or_a_base():
    short = [name.rpartition(".")[2] for name in own_classes()]
    assert [name for name in short if re.search(r"(Agent|Trainer|Manager)$|^Base", name)] == []


# --- What no line may do ---

MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


def offences(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("eval", "exec"):
                yield f"line {node.lineno}: {node.func.id}"
        elif isinstance(node, ast.Global):
            yield f"line {node.lineno}: global"
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"line {node.lineno}: bare except"
        elif isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            yield f"line {node.lineno}: import *"
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                call = isinstance(default, ast.Call) and ast.unparse(default.func)
                if isinstance(default, MUTABLE) or call in ("dict", "list", "set", "bytearray"):
                    yield f"line {default.lineno}: mutable default {ast.unparse(default)}"


@every_source
def test_no_line_evaluates_hides_or_shares_by_accident(path):
    assert list(offences(parse(path))) == []


@pytest.mark.parametrize(
    "line",
    [
        "eval('1')", "exec('1')", "def f():\n    global x", "try:\n    f()\nexcept:\n    pass",
        "from a import *", "def f(x=[]): ...", "def f(*, x={}): ...", "def f(x=dict()): ...",
        "lambda x=[]: x",
    ],
)  # fmt: skip
def test_such_lines_would_be_found(line):
    assert len(list(offences(ast.parse(line)))) == 1


PRIVATE = ROOT / "spinup" / "parts" / "pytorch" / "fast" / "private.py"


def private_names_of_pytorch():
    """Names with an underscore that PyTorch's own things have."""
    import torch

    things = torch, torch.Tensor, torch.nn.Module(), torch.ops.aten.add.Tensor, torch._C
    found = {name for thing in things for name in dir(thing)}
    found |= set(torch._C._dispatch_get_all_op_names()) | set(dir(torch.UntypedStorage))
    found = {name.removeprefix("aten::").partition(".")[0] for name in found}
    return {name for name in found if re.match("_[a-zA-Z]", name)}


def named(tree):
    """Every attribute, and every string that could name one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\b_\w+", node.value) if " " not in node.value else ()
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            yield from node.module.split(".")
            yield from (alias.name for alias in node.names)


def test_private_names_of_pytorch_stand_in_one_file():
    private = private_names_of_pytorch()
    own = {"_C"} & private  # so that the list is known to hold something
    assert own and "_fused_adam_" in set(named(parse(PRIVATE))) & private
    found = {path: set(named(parse(path))) & private for path in SOURCES if path != PRIVATE}
    defined = {
        node.name
        for path in SOURCES
        for node in ast.walk(parse(path))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    assert {path: names - defined for path, names in found.items() if names - defined} == {}


def test_every_file_says_what_it_is_for():
    silent = [path for path in SOURCES if parse(path).body and not ast.get_docstring(parse(path))]
    assert silent == []


# --- The repository ---


def tracked_texts():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            yield name, content.decode(errors="replace")


def test_no_text_knows_where_it_was_written():
    absolute = re.compile(r"(?<![\w.~$}>-])/(?:work|root|home|Users)\b[\w./-]*")
    assert absolute.findall("cd /" + "work/main; https://a.org/" + "home; 'C:/" + "Users/me'")
    texts = dict(tracked_texts())
    assert "pyproject.toml" in texts
    found = {name: absolute.findall(text) for name, text in texts.items()}
    assert {name: paths for name, paths in found.items() if paths} == {}


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]])
def test_ruff_has_nothing_to_say(command):
    folders = [name for name in ("spinup", "tests", "benchmarks") if (ROOT / name).exists()]
    run = subprocess.run(
        [sys.executable, "-m", "ruff", *command, *folders], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


# --- The signature defines ---


@every_algorithm
def test_the_name_at_the_top_is_the_training_function(name):
    backend, algorithm = name.split("/")
    module = import_module(f"spinup.algos.{backend}.{algorithm}.{algorithm}")
    function = getattr(spinup, f"{algorithm}_{backend}")
    assert function is getattr(module, algorithm)
    assert list(inspect.signature(function).parameters) == training_function(name)[0]
