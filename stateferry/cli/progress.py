"""Progress on stderr: a bar for long work in a terminal, and lines for the steps of a run.

There is at most one line every two seconds, and one when a step is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from stateferry.printable import say

if TYPE_CHECKING:
    from stateferry.steps.workers import Progress

_LONG = 256 << 20
_SECONDS_BETWEEN = 2.0
_STEPS_UP = ("B", "kB", "MB", "GB", "TB")


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function that is called with the bytes of each part that is done; all parts have `total` bytes."""
    if total < _LONG or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as ProgressBar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with ProgressBar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


class ProgressLines:
    """Prints the progress with which it is called."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if not progress.ended and now - self._last < _SECONDS_BETWEEN:
            return
        self._last = now
        say(progress_line(progress), self._file)


def progress_line(progress: Progress) -> str:
    """Progress in words: `rescale: 3/8 37%; 1.2 GB, 310.0 MB/s; 4s; ETA 6s; running`."""
    share = 100 * progress.done // max(progress.total, 1)
    parts = [f"{progress.step}: {progress.done}/{progress.total} {share}%"]
    if progress.unit:
        rate = progress.amount / max(progress.seconds, 0.001)
        parts.append(f"{shown_amount(progress.amount, progress.unit)}, {shown_amount(rate, progress.unit)}/s")
    parts.append(f"{progress.seconds:.0f}s")
    if 0 < progress.done < progress.total:
        left = progress.seconds / progress.done * (progress.total - progress.done)
        parts.append(f"ETA {left:.0f}s")
    parts.append("done" if progress.ended else "running")
    return "; ".join(parts)


def shown_amount(amount: float, unit: str) -> str:
    """An amount with its unit; bytes get a larger unit if it fits."""
    if unit != "B":
        return f"{amount:,.0f} {unit}"
    power = 0
    while amount >= 1000 and power < len(_STEPS_UP) - 1:
        amount, power = amount / 1000, power + 1
    return f"{amount:.1f} {_STEPS_UP[power]}" if power else f"{amount:.0f} B"
