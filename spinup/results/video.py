"""Videos of an agent, and windows that show it."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from spinup.parts.errors import UserError
from spinup.parts.plain_text import say

ATARI_FPS = 60
VIDEOS = (".mp4", ".mkv", ".mov", ".webm", ".gif")


def has_screen() -> bool:
    shows = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in shows)


def render_without_screen() -> None:
    """Where there is no screen, tell pygame and MuJoCo, which hear it when first imported."""
    if has_screen():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    for library, name in dict(EGL="egl", OSMesa="osmesa").items():
        if find_library(library):  # if there is none, MuJoCo should still be importable
            os.environ.setdefault("MUJOCO_GL", name)


def show_on_screen(env: gym.Env) -> gym.Env:
    """The environment in a window, made again for that if need be."""
    if env.render_mode is not None:
        return env
    if not has_screen() or env.spec is None:
        print("There is no screen to show this on; record it with --video FILE.mp4")
        return env
    try:
        return gym.make(env.spec, render_mode="human")
    except Exception as error:  # a wrapper that cannot be made again, a window that cannot open
        say(f"This environment cannot be shown in a window ({error}).")
        return env


def real_fps(env: gym.Env) -> float:
    """How many steps an environment takes in a second of its own time."""
    from gymnasium.wrappers import AtariPreprocessing, MaxAndSkipObservation

    skipped = 1
    inner: Any = env
    while inner is not env.unwrapped:
        if isinstance(inner, AtariPreprocessing):
            skipped *= inner.frame_skip
        elif isinstance(inner, MaxAndSkipObservation):
            skipped *= inner._skip
        inner = inner.env
    if hasattr(inner, "ale"):  # its render_fps does not know how many frames are skipped
        # From one number to before another, at random, where it is two.
        skip: Any = getattr(inner, "_frameskip")  # noqa: B009
        steps = skip if isinstance(skip, int) else float(np.mean(range(*skip)))
        return ATARI_FPS / skipped / steps
    dt = getattr(inner, "dt", None)
    return (env.metadata.get("render_fps") or (1 / dt if dt else 30)) / skipped


def open_video(path: Path | str, fps: float) -> Generator:
    """Takes frames and writes them to a video file; `close` finishes it.

    The file gets its name when it is whole: an older one stays until then.
    """
    path = Path(path)
    if not os.path.isdir(path.parent):
        raise UserError(f"There is no folder {path.parent} to record to.")
    if path.is_symlink():
        raise UserError(f"{path} is a symbolic link, and would lead elsewhere. Choose another.")
    if os.path.isdir(path):
        raise UserError(f"Cannot record to {path}, which is a folder.")
    new = path.with_name(f"{path.stem}.new{path.suffix}")
    try:
        open(new, "wb").close()
    except OSError as error:
        raise UserError(f"Cannot record to {path} ({error.strerror}).")
    frames = _frames(new, path, fps)
    next(frames)
    return frames


def _frames(new, path, fps):
    import imageio_ffmpeg

    codec = {".gif": "gif", ".webm": "libvpx-vp9"}.get(path.suffix, "libx264")
    out, count = None, 0
    try:
        while True:
            frame = yield
            if out is None:
                height, width = (n - n % 2 for n in frame.shape[:2])  # the encoder needs even sizes
                out = imageio_ffmpeg.write_frames(
                    str(new),
                    (width, height),
                    fps=fps,
                    codec=codec,
                    macro_block_size=2,
                    quality=7,
                    pix_fmt_out="rgb8" if codec == "gif" else "yuv420p",
                    ffmpeg_log_level="fatal",
                )
                out.send(None)
            out.send(np.ascontiguousarray(frame[:height, :width]))
            count += 1
    except GeneratorExit:
        _finish_video(out, new, path, count)
    except OSError:  # of the encoder, which has ended
        raise _no_video(path)
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def _finish_video(out, new, path, count):
    """Let the encoder end, and give the file its name if it holds all frames."""
    import imageio_ffmpeg

    if out is None:
        return
    try:
        out.close()
        whole = imageio_ffmpeg.count_frames_and_secs(str(new))[0] >= count
    except (OSError, RuntimeError, subprocess.SubprocessError):  # it cannot be read
        whole = False
    if not whole:  # the encoder does not say why
        raise _no_video(path)
    os.replace(new, path)


def _no_video(path) -> UserError:
    full = shutil.disk_usage(path.parent).free < 2**16
    why = "No space left on device" if full else "the encoder could not write all of it"
    return UserError(f"The video {path} could not be recorded ({why}). Nothing else has changed.")


def check_rendering(env: gym.Env) -> None:
    """Render one frame, or say what this machine lacks for it."""
    env.reset(seed=0)
    try:
        image = env.render()
    except Exception as error:  # each simulator fails in its own way without its libraries
        raise cannot_render(env.spec.id if env.spec else "This environment", error)
    if image is None:
        raise cannot_render(env.spec.id if env.spec else "This environment", "it gave no image")


def cannot_render(name: str, error: object) -> UserError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return UserError(
        f"{name} cannot be rendered here ({reason}). For MuJoCo without a screen, on Debian or "
        "Ubuntu: apt-get install libegl1 libopengl0 (or libosmesa6, and set MUJOCO_GL=osmesa)."
    )
