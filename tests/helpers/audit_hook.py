"""Commands in processes of their own, watched by an audit hook from their first line on.

Python tells the hook of all that could do harm. It is added by a sitecustomize.py on PYTHONPATH,
so that the processes a command starts are watched too.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
# Only what Python itself has loaded is imported here: anything else would no longer be looked for
# where the planted modules lie.
WATCH = """
import os, sys

_log = os.open(os.environ["AUDIT_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_planted = os.environ["PLANTED"]
_writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_simple = {
    "subprocess.Popen": 1, "os.system": 0, "os.exec": 0, "os.posix_spawn": 0,
    "os.truncate": 0, "os.remove": 0, "os.rename": 1, "os.mkdir": 0, "os.rmdir": 0,
    "os.symlink": 1, "os.link": 1, "shutil.rmtree": 0,
    "socket.connect": 1, "socket.sendto": 1, "socket.getaddrinfo": 0,
}

def _hook(event, args):
    if event in _simple:
        told = args[_simple[event]]
    elif event == "exec":
        event, told = "run", getattr(args[0], "co_filename", "")
    elif event == "compile":
        event, told = "run", args[1]
    elif event == "open":
        path, mode, flags = args
        if isinstance(path, int):
            return
        wanted = isinstance(flags, int) and flags & _writing
        event, told = ("write" if wanted else "read"), path
    else:
        return
    if isinstance(told, bytes):
        told = os.fsdecode(told)
    if event == "read":
        told = os.path.abspath(str(told))
    if event in ("run", "read") and not str(told).startswith(_planted):
        return
    if event in ("write", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate"):
        told = os.path.abspath(str(told))
    os.write(_log, ascii((event, str(told))).encode() + b"\\n")

sys.addaudithook(_hook)
"""


class Heard(list):
    """Pairs of an event and what it was about."""

    def of(self, *events):
        return [about for event, about in self if event in events]


def run(command, folder, tmp_path, planted, **variables):
    """Run a command in `folder`; gives its exit code, what it said, and what the hook heard.

    planted: the folder of which no file may run
    """
    (tmp_path / "watch").mkdir(exist_ok=True)
    (tmp_path / "watch" / "sitecustomize.py").write_text(WATCH)
    log = tmp_path / "audit.log"
    log.write_text("")
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir(exist_ok=True)
    # PyTorch sets variables of its own in this process, if another test has exported a model.
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "TRITON"))}
    environment = (
        inherited
        | dict(
            PYTHONPATH=os.pathsep.join([str(tmp_path / "watch"), str(REPOSITORY)]),
            PYTHONDONTWRITEBYTECODE="1",
            AUDIT_LOG=str(log),
            PLANTED=str(planted),
            HOME=str(tmp_path / "home"),
            TMPDIR=str(tmp_path / "tmp"),
            OMP_NUM_THREADS="1",
            MPLCONFIGDIR=str(tmp_path / "home"),
        )
        | variables
    )
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    heard = Heard(ast.literal_eval(line) for line in log.read_text().splitlines())
    return done.returncode, done.stdout + done.stderr, heard


def written_elsewhere(heard, *allowed):
    """What was written, moved or removed outside these folders; temporary files do not count."""
    events = ("write", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate")
    return [p for p in heard.of(*events) if not p.startswith(("/dev/", *map(str, allowed)))]


def loaded_before_us():
    """Modules that Python imports before any program, or to start one with -m."""
    code = "import runpy, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def plant(folder, marks):
    """Lay modules into a folder, each of which leaves a mark when it is imported.

    Their names are those of the standard library, of all that spinup imports or might import;
    beside them is a plugin for whatever looks for plugins, and settings for Matplotlib.
    """
    folder.mkdir(parents=True, exist_ok=True)
    marks.mkdir(exist_ok=True)
    names = set(sys.stdlib_module_names) - loaded_before_us() - set(sys.builtin_module_names)
    names |= {
        "numpy",
        "torch",
        "gymnasium",
        "gym",
        "shimmy",
        "tensorflow",
        "ale_py",
        "mujoco",
        "cv2",
        "gymnasium_robotics",
        "wandb",
        "tensorboard",
        "pandas",
        "scipy",
        "matplotlib",
        "tqdm",
        "cloudpickle",
        "mpi4py",
        "ray",
        "onnx",
        "onnxscript",
        "onnxruntime",
        "imageio_ffmpeg",
        "pygame",
        "jax",
        "threadpoolctl",
        "typing_extensions",
        "farama_notifications",
        "PIL",
        "sympy",
        "networkx",
        "evil",
        "os:evil",
        "CartPole-v1",
        "sitecustomize",
        "usercustomize",
        "statistics",
        "numexpr",
        "bottleneck",
        "pyarrow",
        "IPython",
        "colorama",
        "readline",
    }
    for name in names:
        mark = f"{marks / name}"
        text = f"import os\nos.path.exists({mark!r}) or os.mkdir({mark!r})\n"
        (folder / f"{name}.py").write_text(text)
    plugin = folder / "evil-1.0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    groups = ("gymnasium.envs", "torch.backends", "matplotlib.backend", "console_scripts")
    (plugin / "entry_points.txt").write_text(
        "".join(f"[{group}]\nevil = evil:boom\n" for group in groups)
    )
    (folder / "matplotlibrc").write_text("backend: module://evil\ntext.usetex: True\n")
    return folder
