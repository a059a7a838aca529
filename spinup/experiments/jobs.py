"""Run many jobs: each in processes of its own, some at the same time, each one resumable."""

import contextlib
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from spinup.experiments.board import (
    Board,
    count_states,
    displayed,
    redraw,
    report_state,
    say_interrupted,
)
from spinup.experiments.checks import check_jobs
from spinup.experiments.job import Job, Run, folder_of, settings_of, write_job_file
from spinup.experiments.processes import (
    catch_interrupts,
    forget_job_file,
    open_pty,
    process_env,
    start_process,
    tee,
)
from spinup.experiments.train import resume_action
from spinup.parts.divergence import explain_diverged, read_divergence
from spinup.parts.errors import JobsFailed, UserError
from spinup.parts.jsonio import convert_json
from spinup.parts.make_env import with_env_fn
from spinup.parts.plain_text import without_colors
from spinup.parts.run_folder import OUTPUT_FILE, remove_all, run_files
from spinup.parts.run_lock import locked

LAST_LINES = 8  # of a run that failed
STOPPED_CODES = (130, -signal.SIGINT)


def run_jobs(jobs: list[Job], at_once: int = 1, ray_address: str | None = None) -> None:
    """Run jobs, each in processes of its own, several at the same time.

    A finished job is left alone, an unfinished one is resumed, and a job whose folder holds a run
    with other settings is refused. A job that fails does not stop the others; at the end,
    JobsFailed reports it. After Ctrl-C, running jobs finish their epoch and save; no other starts.

    at_once: how many processes may train at the same time; a job counts with its num_cpu
    ray_address: None for this machine, 'local' for a Ray of our own here, else HOST:PORT
    """
    if at_once < 1:
        raise UserError(f"{at_once} jobs at once is none at all; ask for 1 or more.")
    runs = _checked_runs(jobs)
    board = Board(runs, live=(at_once > 1 or bool(ray_address)) and sys.stdout.isatty())
    for run in runs:
        report_state(board, run)
    with catch_interrupts() as interrupts, displayed(board):
        if ray_address is None:
            _run_here(board, at_once, interrupts)
        else:
            from spinup.experiments.ray_jobs import run_on_ray

            run_on_ray(board, ray_address, interrupts)
    _raise_failures(runs, interrupts)


def _checked_runs(jobs) -> list[Run]:
    """The jobs as runs with their states, unless there is nothing that can run."""
    jobs = _without_doubles(jobs)
    check_jobs(jobs)
    for job in jobs:
        check_call(job)
    runs = [Run(job) for job in jobs]
    refused = [error for run in runs if (error := _check(run))]
    if refused and len(refused) == len(runs):
        raise refused[0] if len(runs) == 1 else UserError("\n".join(map(str, refused)))
    return runs


def _raise_failures(runs, interrupts):
    """Raise an error that reports the runs that are not finished, if there are any."""
    count = count_states(runs)
    failed = [run for run in runs if run.state in ("failed", "diverged")]
    told = "\n\n".join(_failure(run) for run in failed)
    if interrupts:
        saved = "; ".join(f"{number} {state}" for state, number in count.items())
        raise KeyboardInterrupt(
            f"{told}\n\nStopped ({saved}). The same command again resumes from here.".lstrip()
        )
    if failed:
        rest, many = len(runs) - len(failed), f"of {len(runs)} runs"
        how = [f"{count[s]} {many} {s}" for s in ("failed", "diverged") if s in count]
        later = " Runs that diverged are left alone." if "diverged" in count else ""
        others = f"; the other {rest} {'is' if rest == 1 else 'are'} finished" if rest else ""
        raise JobsFailed(
            f"{told}\n\n{', '.join(how)}{others}. "
            f"The same command again tries only what is not finished.{later}",
            [(run.job.exp_name, folder_of(run.job)) for run in failed],
        )


def _failure(run) -> str:
    """A failed run's folder and the last lines of its output; or why a run diverged."""
    lines = [run.error] if run.error else []
    if run.state == "diverged":
        return f"{run.job.exp_name} diverged: {folder_of(run.job)}\n    {run.error}"
    path = folder_of(run.job) / OUTPUT_FILE
    if path.exists() and run.began:
        said = path.read_bytes()[run.output_offset :].decode(errors="replace").rstrip().splitlines()
        lines = [*map(without_colors, said[-LAST_LINES:]), *lines]
    told = "".join(f"\n    {line}" for line in lines)
    return f"{run.job.exp_name} failed: {folder_of(run.job)}{told}"


def _without_doubles(jobs) -> list[Job]:
    """The jobs without repetitions; two different jobs for the same folder are an error."""
    known: dict[Path, Job] = {}
    for job in jobs:
        first = known.setdefault(folder_of(job).absolute(), job)
        if first is not job and settings_of(first) != settings_of(job):
            raise UserError(
                f"Two variants would be kept in {folder_of(job)}, for their names are the same. "
                "Give the settings in which they differ a place in the name."
            )
    return list(known.values())


def check_call(job: Job) -> None:
    """Refuse settings that the job's function does not take."""
    try:
        inspect.signature(job.thunk).bind(**with_env_fn(job.kwargs))
    except TypeError as error:
        function = convert_json(job.thunk)
        raise UserError(f"{job.exp_name}: {function} cannot be called with its settings: {error}.")
    except ValueError:  # a function without a signature
        return


def _todo(job: Job) -> str:
    """Whether to 'start' or to 'resume' the job; or it is 'finished' or 'diverged'."""
    return resume_action(job.thunk, job.kwargs, job.num_cpu, job.overwrite)


def _check(run: Run) -> UserError | None:
    """Find the state of a run before it starts; one that is refused has failed."""
    try:
        todo = _todo(run.job)
        run.state = todo if todo in ("finished", "diverged") else "queued"
        run.error = explain_diverged(folder_of(run.job)) if todo == "diverged" else ""
    except UserError as error:
        run.state, run.error = "failed", str(error)
        return error
    return None


def prepare_folder(job: Job) -> None:
    """Prepare the job's folder: delete what cannot be resumed."""
    folder = folder_of(job)
    todo = _todo(job)
    with locked(folder):
        for path in run_files(folder) if todo == "start" else ():
            remove_all([path])


def _start(run, at_once):
    """Start a run here; its output goes to its folder, and to the terminal if it runs alone."""
    import cloudpickle

    job, folder = run.job, folder_of(run.job)
    prepare_folder(job)
    output = open(folder / OUTPUT_FILE, "ab")
    run.output_offset, run.began = output.tell(), time.time()
    variables = process_env(at_once, job.num_cpu)
    listening, speaking = (None, output) if at_once > 1 else open_pty()
    run.process = start_process(cloudpickle.dumps(job), variables, speaking)
    run.state = "running"
    if listening is None:
        output.close()
    else:
        os.close(speaking)
        run.output_thread = threading.Thread(target=tee, args=(listening, output), daemon=True)
        run.output_thread.start()


def _run_here(board: Board, at_once: int, interrupts: list[float]) -> None:
    """Start runs as soon as `at_once` allows, and wait until all have ended."""
    passed_on = 0  # interrupts that the runs know of
    try:
        while True:
            running = _running(board)
            waiting = [run for run in board.runs if run.state == "queued" and not interrupts]
            if not running and not waiting:
                break
            busy = sum(run.job.num_cpu for run, _ in running)
            if waiting and (not running or busy + waiting[0].job.num_cpu <= at_once):
                _try_to_start(board, waiting[0], at_once)
                continue
            for _ in interrupts[passed_on:]:
                passed_on += 1
                if at_once > 1:  # a run that trains alone prints this itself
                    say_interrupted(board)
                for _, process in running:
                    process.send_signal(signal.SIGINT)
            for run, process in running:
                if process.poll() is not None:
                    _finish(board, run, interrupts)
            redraw(board)
            time.sleep(0.1)
    finally:
        for _, process in _running(board):
            process.kill()
            process.wait()
            forget_job_file(process)


def _running(board) -> list[tuple[Run, subprocess.Popen]]:
    return [(run, run.process) for run in board.runs if run.state == "running"]


def _try_to_start(board, run, at_once):
    try:
        _start(run, at_once)
    except (UserError, OSError) as error:  # somebody else trains there, or the disk is full
        run.state, run.error = "failed", str(error)
    report_state(board, run)


def _finish(board, run, interrupts):
    """Set and report the state of a run whose process has ended."""
    if run.output_thread is not None:  # a process that the run left behind may still print
        run.output_thread.join(timeout=5)
    forget_job_file(run.process)
    set_ended(run, run.process.returncode, interrupts)
    report_state(board, run)


def set_ended(run: Run, code: int, interrupts: list[float]) -> None:
    """Set the state of a run whose process ended with exit code `code`."""
    if code == 0:
        run.state = "finished"
    elif interrupts and code in STOPPED_CODES:
        run.state = "stopped"
    elif (diverged := read_divergence(folder_of(run.job))) is not None:
        run.state, run.error = "diverged", diverged.sentence
        with contextlib.suppress(OSError):
            write_job_file(run.job, "diverged")
    else:
        run.state = "failed"
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        run.error = f"(it ended with {how})"
        with contextlib.suppress(OSError):  # of a full disk, which the run itself reports
            write_job_file(run.job, "failed")
