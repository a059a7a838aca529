"""How a command ends: a mistake the user can correct gets a sentence, not a traceback."""

import sys
from collections.abc import Callable

from spinup.parts.errors import Diverged, Finished, JobsFailed, UserError, os_sentence
from spinup.parts.memory import explain_memory
from spinup.parts.mpi import abort, flush_output, listen_for_interrupts, num_procs, proc_id
from spinup.parts.plain_text import say


def report_errors(work: Callable[[], object]) -> None:
    """Do `work`; a mistake the user can mend is told in a sentence, with exit code 2.

    A run that diverged is told in a sentence, too, with exit code 1.
    """
    listen_for_interrupts()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # what this terminal cannot show is shown as its code
            stream.reconfigure(errors="backslashreplace")
    try:
        with explain_memory({}):
            _news(work)
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


def _news(work):
    try:
        work()
    except Finished as news:
        if proc_id() == 0:
            say(news)


def _show_output():
    """Write out what was printed, now rather than when Python ends; what fails ends us."""
    error = flush_output()
    if isinstance(error, BrokenPipeError):
        abort(1)
    elif error is not None:
        abort(2, f"spinup: The output cannot be written ({error.strerror}).")
