"""Exit codes, and which error makes which: one clear line on stderr, no traceback unless it is asked for."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable

from stateferry.errors import RejectedError, StateferryError, UsageError

THE_ANSWER_IS_NO = 1
USAGE = 2
DAMAGED_OR_REFUSED = 3
INTERNAL = 70
INTERRUPTED = 130
NOBODY_LISTENS = 141


def exit_code_of(work: Callable[[], int], *, debug: bool = False) -> int:
    """The work's own, or that of its error, which is said in one line."""
    try:
        return work()
    except BrokenPipeError:
        _forget_output()
        return NOBODY_LISTENS
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 the last place where an error can be said in one line
        if _was_interrupted(error):
            return INTERRUPTED
        if debug:
            traceback.print_exc()
        return _say(error)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether it is of an end that somebody wanted: what is put in order on the way may fail."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _say(error: Exception) -> int:
    code, text = _judged(error)
    sys.stderr.write(f"stateferry: {' '.join(text.split())}\n")
    return code


def _judged(error: Exception) -> tuple[int, str]:
    if isinstance(error, UsageError):
        return USAGE, str(error)
    if isinstance(error, RejectedError):
        return THE_ANSWER_IS_NO, str(error)
    if isinstance(error, (StateferryError, OSError)):
        return DAMAGED_OR_REFUSED, str(error)
    return INTERNAL, f"a fault of stateferry itself, {type(error).__name__}: {error} (--debug shows where)"


def _forget_output() -> None:
    """Else Python would try again, at exit, to write what nobody reads any more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
