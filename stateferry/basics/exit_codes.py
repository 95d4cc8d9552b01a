"""Exit codes, and the errors that lead to them: each is one line on stderr, with a traceback only on request."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from flinkstate.errors import MissingHereError, RejectedError, StateferryError, TransientError, UsageError
from flinkstate.files import os_errors
from stateferry.basics.printable import printable_lines, say

REJECTED = 1
USAGE = 2
DAMAGED_OR_REFUSED = 3
MISSING_HERE = 69
INTERNAL = 70
MAY_PASS = 75
INTERRUPTED = 130
OUTPUT_CLOSED = 141
TERMINATED = 143

# What a signal has raised in this process, in case a library makes another error of it on the way.
_raised: list[KeyboardInterrupt] = []
_GOES_ON = "This error may be temporary. Give the same command again: it continues where it stopped"


class Terminated(KeyboardInterrupt):
    """The process was asked to end by SIGTERM. Code that cleans up after Ctrl-C does so after this too."""


def exit_code_of(work: Callable[[], int], *, debug: bool = False) -> int:
    """Does the work and returns its exit code. If it raises an error, prints that in one line and returns its code."""
    try:
        with _ending_in_order():
            return work()
    except BrokenPipeError:
        _forget_output()
        return OUTPUT_CLOSED
    except KeyboardInterrupt as end:
        return _say_end(end)
    except Exception as error:  # noqa: BLE001 the last place where an error can be printed in one line
        if (interruption := interruption_of(error)) is not None:
            return _say_end(interruption)
        if debug:
            sys.stderr.write(printable_lines(traceback.format_exc()))
        return _say(*_judged(error))


@contextlib.contextmanager
def if_interrupted(what_it_means: str) -> Iterator[None]:
    """Sets the message for work in here that a person or a scheduler interrupts."""
    try:
        yield
    except KeyboardInterrupt as end:
        # Work within this work knows better.
        end.args = end.args or (what_it_means,)
        raise
    except Exception as error:
        if (interruption := interruption_of(error)) is not None:
            interruption.args = interruption.args or (what_it_means,)
        raise


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Makes SIGTERM end the work as Ctrl-C does; a second SIGTERM ends the process at once."""
    _raised.clear()
    usual: dict[signal.Signals, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    here = threading.current_thread() is threading.main_thread()
    ours = [number for number, handler in usual.items() if here and signal.getsignal(number) is handler]

    def end(number: int, _: FrameType | None) -> None:
        if number == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _raised.append(Terminated() if number == signal.SIGTERM else KeyboardInterrupt())
        raise _raised[-1]

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, usual[number])


def interruption_of(error: BaseException | None) -> KeyboardInterrupt | None:
    """Returns the interruption that an error came from, if any.

    Cleaning up after an interruption may fail, and a library in C or Rust may raise an error of its own in its place.
    """
    if _raised:
        return _raised[-1]
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
    """Joins several lines, such as a plan's problems, with semicolons."""
    return "; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def _judged(error: Exception) -> tuple[int, str]:
    if isinstance(error, OSError):
        return _judged(os_errors.own_error(error))
    if isinstance(error, UsageError):
        return USAGE, str(error)
    if isinstance(error, RejectedError):
        return REJECTED, str(error)
    if isinstance(error, MissingHereError):
        return MISSING_HERE, str(error)
    if isinstance(error, TransientError):
        return MAY_PASS, f"{error}. {_GOES_ON}"
    if isinstance(error, StateferryError):
        return DAMAGED_OR_REFUSED, str(error)
    return INTERNAL, f"an internal error of stateferry, {type(error).__name__}: {error} (--debug shows the traceback)"


def _forget_output() -> None:
    """Sends further output to nothing; else Python would fail at exit, when it writes the rest to the closed pipe."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
