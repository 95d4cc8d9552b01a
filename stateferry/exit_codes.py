"""Exit codes, and which error makes which: one clear line on stderr, no traceback unless it is asked for."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType

from stateferry import os_errors
from stateferry.errors import MissingHereError, PassingError, RejectedError, StateferryError, UsageError
from stateferry.printable import printable_lines, say

THE_ANSWER_IS_NO = 1
USAGE = 2
DAMAGED_OR_REFUSED = 3
MISSING_HERE = 69
INTERNAL = 70
MAY_PASS = 75
INTERRUPTED = 130
NOBODY_LISTENS = 141
TERMINATED = 143

_GOES_ON = "This may pass: give the same command again, and it goes on where it was"


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM; whoever puts things in order after Ctrl-C does so after this too."""


def exit_code_of(work: Callable[[], int], *, debug: bool = False) -> int:
    """The work's own, or that of its error, which is said in one line."""
    try:
        with _ending_in_order():
            return work()
    except BrokenPipeError:
        _forget_output()
        return NOBODY_LISTENS
    except KeyboardInterrupt as end:
        return _say_end(end)
    except Exception as error:  # noqa: BLE001 the last place where an error can be said in one line
        if (interruption := _interruption(error)) is not None:
            return _say_end(interruption)
        if debug:
            sys.stderr.write(printable_lines(traceback.format_exc()))
        return _say(*_judged(error))


@contextlib.contextmanager
def if_interrupted(what_it_means: str) -> Iterator[None]:
    """What is said when a person or a scheduler ends the work in here."""
    try:
        yield
    except KeyboardInterrupt as end:
        end.args = (what_it_means,)
        raise


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """SIGTERM ends the work as Ctrl-C does; a second one ends the process at once."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminated(_: int, __: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """The end that somebody wanted, if the error is of one: what is put in order on the way may fail."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def _say_end(end: KeyboardInterrupt) -> int:
    code, how = (TERMINATED, "ended by SIGTERM") if isinstance(end, Terminated) else (INTERRUPTED, "interrupted")
    return _say(code, f"{how}: {end}" if end.args else how)


def _say(code: int, text: str) -> int:
    say(f"stateferry: {_on_one_line(text)}", sys.stderr)
    return code


def _on_one_line(text: str) -> str:
    """Each line of several, such as a plan's problems, apart from the next."""
    return "; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def _judged(error: Exception) -> tuple[int, str]:
    if isinstance(error, OSError):
        return _judged(os_errors.told(error))
    if isinstance(error, UsageError):
        return USAGE, str(error)
    if isinstance(error, RejectedError):
        return THE_ANSWER_IS_NO, str(error)
    if isinstance(error, MissingHereError):
        return MISSING_HERE, str(error)
    if isinstance(error, PassingError):
        return MAY_PASS, f"{error}. {_GOES_ON}"
    if isinstance(error, StateferryError):
        return DAMAGED_OR_REFUSED, str(error)
    return INTERNAL, f"a fault of stateferry itself, {type(error).__name__}: {error} (--debug shows where)"


def _forget_output() -> None:
    """Else Python would try again, at exit, to write what nobody reads any more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
