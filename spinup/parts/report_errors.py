"""How a command ends: a mistake the user can correct gets a sentence, not a traceback."""

import sys
from collections.abc import Callable

from spinup.parts.errors import Diverged, Finished, JobsFailed, UserError, os_sentence
from spinup.parts.memory import explain_memory
from spinup.parts.mpi import abort, flush_output, listen_for_interrupts, num_procs, proc_id
from spinup.parts.plain_text import say


def report_errors(work: Callable[[], object]) -> None:
    """Call `work`; a mistake of the user ends the program with a sentence and exit code 2.

    A run that diverged ends it with a sentence and exit code 1.
    """
    listen_for_interrupts()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what this terminal cannot show is shown as its code
            stream.reconfigure(errors="backslashreplace")
    try:
        with explain_memory({}):
            _say_when_finished(work)
        _show_output()
    except UserError as error:
        abort(2, f"spinup: {error}")
    except Diverged as error:
        abort(1, f"spinup: {error}", agreed=True)  # one process alone would have ended all
    except JobsFailed as failed:
        abort(1, f"\n{failed}")
    except KeyboardInterrupt as stopped:
        abort(130, str(stopped) or "Stopped.", getattr(stopped, "agreed", False))
    except BrokenPipeError:  # the reader of our output has gone, as with `spinup … | head -1`
        abort(1)
    except OSError as error:
        abort(2, f"spinup: {os_sentence(error)}")
    except SystemExit as ended:
        if ended.code and num_procs() > 1:
            abort(ended.code if isinstance(ended.code, int) else 1)
        _show_output()
        raise


def _say_when_finished(work):
    try:
        work()
    except Finished as finished:
        if proc_id() == 0:
            say(finished)


def _show_output():
    """Flush the output now, not when Python ends; if that fails, end with an error."""
    error = flush_output()
    if isinstance(error, BrokenPipeError):
        abort(1)
    elif error is not None:
        abort(2, f"spinup: The output cannot be written ({error.strerror}).")
