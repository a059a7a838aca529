"""Whoever stands in a downloaded folder runs none of its code, whatever command is typed there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import audit_hook
import pytest

from spinup import ppo_pytorch
from spinup.parts.make_env import EnvMaker

SCRIPT = "import sys\nfrom spinup.run import main\nsys.exit(main())\n"  # as pip installs it
SMALL = "--epochs 1 --steps_per_epoch 60 --train_pi_iters 1 --train_v_iters 1 --hid [4]"
# What libraries start to look for other libraries and for fonts.
LOOKS = re.compile(r"fc-list|ldconfig|objdump|gcc|import ctypes|'ld'")
MODULE = [sys.executable, "-m"]
# A command, and the folder or file, of those below, that it may write to.
COMMANDS = {
    "ls": ("spinup ls .", None),
    "ls as a module": ("spinup.run ls run", None),
    "compare": ("spinup compare run --csv", None),
    "plot": ("spinup plot run", "run/plot.png"),
    "plot as a module": ("spinup.utils.plot run -o figure.svg", "figure.svg"),
    "report": ("spinup report run", "run/report.html"),
    "export": ("spinup export run", "run/policy.onnx"),
    "watch": ("spinup watch run -n 1 --norender", None),
    "test_policy": ("spinup.utils.test_policy run -n 1 -nr", None),
    "resume": ("spinup.run resume run --epochs 2", "run"),
    "resume in several processes": ("spinup resume two --epochs 2", "two"),
    "train": ("spinup.algos.pytorch.ppo.ppo --env CartPole-v1 --exp_name x", "data"),
    "grid": ("spinup ppo --env CartPole-v1 --seed 0 1 --exp_name grid --jobs 2", "data"),
    "version": ("spinup.run version", None),
    "an environment of another package": ("spinup ppo --env FetchReach-v0", None),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, and one of two processes, as somebody may offer them."""
    folder = tmp_path_factory.mktemp("offered")
    settings = dict(steps_per_epoch=60, train_pi_iters=1, train_v_iters=1)
    where = dict(output_dir=str(folder / "run"), exp_name="run")
    ac_kwargs = dict(hidden_sizes=[4])
    ppo_pytorch(
        EnvMaker("CartPole-v1"), logger_kwargs=where, epochs=1, ac_kwargs=ac_kwargs, **settings
    )
    line = f"ppo --env CartPole-v1 --cpu 2 --exp_name two --data_dir {folder / 'x'} {SMALL}"
    command = [*MODULE, "spinup.run", *line.split()]
    subprocess.run(command, check=True, capture_output=True, cwd=audit_hook.REPOSITORY)
    (folder / "x" / "two" / "two_s0").rename(folder / "two")
    return folder


@pytest.fixture
def downloaded(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "downloaded")
    audit_hook.plant(tmp_path / "downloaded", tmp_path / "marks")
    return tmp_path / "downloaded"


def words_of(line, tmp_path):
    first, *rest = line.split()
    script = tmp_path / "bin" / "spinup"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    rest += SMALL.split() if "--exp_name" in rest else []
    return [sys.executable, str(script), *rest] if first == "spinup" else [*MODULE, first, *rest]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_what_lies_there(name, downloaded, tmp_path):
    line, writes = COMMANDS[name]
    command = words_of(line, tmp_path)
    code, output, heard = audit_hook.run(command, downloaded, tmp_path, downloaded)
    assert list((tmp_path / "marks").iterdir()) == [], output
    assert code == (2 if "Fetch" in line else 0), output
    assert heard.of("run") == []
    assert [path for path in heard.of("read") if path.endswith("matplotlibrc")] == []
    assert heard.of("socket.sendto", "socket.getaddrinfo", "os.system") == []
    allowed = (downloaded / writes,) if writes else ()
    assert audit_hook.written_elsewhere(heard, tmp_path / "tmp", tmp_path / "home", *allowed) == []
    if "processes" not in name and name != "grid":  # which start some of their own
        started = [words for words in heard.of("subprocess.Popen") if not LOOKS.search(words)]
        assert heard.of("socket.connect", "os.exec", "os.posix_spawn") + started == []


def test_the_planted_modules_and_the_hook_work(downloaded, tmp_path):
    """A program that looks in the current folder does find them, and it is noticed."""
    code = "import tensorflow, os; open('made', 'w'); os.system('true')"
    _, _, heard = audit_hook.run([sys.executable, "-c", code], downloaded, tmp_path, downloaded)
    assert (tmp_path / "marks" / "tensorflow").exists()
    assert any(path.endswith("tensorflow.py") for path in heard.of("run"))
    assert audit_hook.written_elsewhere(heard)[-1] == str(downloaded / "made")
    assert heard.of("os.system") == ["true"]


def test_not_even_spinup_itself(downloaded, tmp_path):
    """The installed command, and the processes of its grids, keep to the spinup they are of."""
    for name in ("spinup", "spinup/utils", "spinup/parts", "spinup/results"):
        (downloaded / name).mkdir()
        mark = tmp_path / "marks" / name.replace("/", ".")
        (downloaded / name / "__init__.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    for line in ("spinup ls run", COMMANDS["grid"][0]):
        code, output, _ = audit_hook.run(words_of(line, tmp_path), downloaded, tmp_path, downloaded)
        assert code == 0, output
        assert list((tmp_path / "marks").iterdir()) == []


def test_in_a_checkout_nothing_else_of_it_is_imported(downloaded, tmp_path):
    """spinup may lie in the current folder itself, and not be installed."""
    (downloaded / "spinup").symlink_to(audit_hook.REPOSITORY / "spinup")
    paths = dict(PYTHONPATH=str(tmp_path / "watch"))
    code, output, heard = audit_hook.run(
        [*MODULE, "spinup.run", *COMMANDS["grid"][0].split()[1:], *SMALL.split()],
        downloaded,
        tmp_path,
        downloaded,
        **paths,
    )
    assert code == 0, output
    assert list((tmp_path / "marks").iterdir()) == []
    ran = {Path(path).relative_to(downloaded).parts[0] for path in heard.of("run")}
    assert ran == {"spinup"}


MINE = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
{more}
gym.register("Mine-v0", CartPoleEnv, max_episode_steps=50)
"""


def test_a_package_that_is_typed_is_imported_and_no_other(downloaded, tmp_path):
    (downloaded / "mine.py").write_text(MINE.format(more=""))
    data = f"--exp_name mine --data_dir {downloaded / 'kept'}".split()

    def spinup(*words):
        command = words_of("spinup", tmp_path) + list(words)
        return audit_hook.run(command, downloaded, tmp_path, downloaded)[:2]

    code, output = spinup("ppo", "--env", "mine:Mine-v0", *SMALL.split(), *data)
    assert code == 0, output
    code, output = spinup("ppo", "--env", "mine:Mine-v0", "--seed", "1", "2", *SMALL.split(), *data)
    assert code == 0 and "[2/2]" in output, output  # the processes of a grid find it as well
    folder = downloaded / "kept" / "mine" / "mine_s0"
    rows = (folder / "progress.txt").read_text()
    more = ["resume", str(folder), "--epochs", "2"]
    code, output = spinup(*more)
    assert code == 2 and f"spinup resume {folder} --env mine:Mine-v0" in output
    code, output = spinup(*more, "--env", "mine:Other-v0")
    assert code == 2 and "--env mine:Mine-v0" in output
    code, output = spinup("watch", str(folder), "-nr", "-n", "1")
    assert code == 2 and f"spinup watch {folder} --env mine:Mine-v0" in output
    assert (folder / "progress.txt").read_text() == rows  # nothing was lost
    code, output = spinup(*more, "--env", "mine:Mine-v0")
    assert code == 0 and (folder / "progress.txt").read_text().startswith(rows), output
    assert list((tmp_path / "marks").iterdir()) == []
    (downloaded / "mine.py").write_text(MINE.format(more="import evil"))
    code, output = spinup("ppo", "--env", "mine:Mine-v0", *SMALL.split(), *data)
    assert code == 2 and "evil lies in the current folder" in output
    assert list((tmp_path / "marks").iterdir()) == []


def test_an_empty_entry_of_pythonpath_is_no_leave(downloaded, tmp_path):
    names = {f"{name}.py" for name in ("pandas", "tqdm", "evil", "ale_py", "torch", "gymnasium")}
    for path in downloaded.glob("*.py"):
        if path.name not in names:
            path.unlink()  # Python itself would import these with such a path, before spinup
    command, paths = words_of("spinup compare run", tmp_path), f":{audit_hook.REPOSITORY}"
    code, output, _ = audit_hook.run(command, downloaded, tmp_path, downloaded, PYTHONPATH=paths)
    assert code == 0, output
    assert list((tmp_path / "marks").iterdir()) == []


NAMES = [
    "evil:CartPole-v1",
    "os:evil:CartPole-v1",
    "evil:x:CartPole-v1",
    ":evil:CartPole-v1",
    "os.evil:CartPole-v1",
    "GymV26Environment-v0",
    "shimmy:GymV26Environment-v0",
]
PROGRAM = """
import json
from spinup.run import main

for name in {names}:
    with open("run/config.json") as file:
        config = json.load(file)
    arguments = dict(env_id="evil:CartPole-v1") if "Gym" in name else dict()
    config["environment"] |= dict(id=name, kwargs=arguments)
    config["env_fn"] = dict(env_name=name, env_kwargs=arguments)
    with open("run/config.json", "w") as file:
        json.dump(config, file)
    for words in (["watch", "run", "-nr"], ["resume", "run", "--epochs", "2"]):
        try:
            main(words)
        except SystemExit as ended:
            print("ended with", ended.code)
"""


def test_no_name_in_a_file_leads_to_an_import(downloaded, tmp_path):
    """Not even where the module could be found: it is on PYTHONPATH here."""
    found = tmp_path / "found"
    found.mkdir()
    for name in ("evil.py", "os:evil.py"):
        (downloaded / name).rename(found / name)
    (tmp_path / "program.py").write_text(PROGRAM.format(names=NAMES))
    paths = f"{tmp_path / 'watch'}:{audit_hook.REPOSITORY}:{found}"
    command = [sys.executable, str(tmp_path / "program.py")]
    _, output, heard = audit_hook.run(command, downloaded, tmp_path, found, PYTHONPATH=paths)
    assert heard.of("run") == [] and list((tmp_path / "marks").iterdir()) == []
    assert output.count("ended with 2") == 2 * len(NAMES), output
    assert "Traceback" not in output
