"""Progress on stderr: a bar for long work in a terminal, and lines for the steps of a run.

There is at most one line every two seconds, of work in which nothing new is done one every ten, and one when a step is
done. Every two seconds progress is kept in the run's folder.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from flinkstate.errors import StateferryError
from stateferry.basics.durations import now_ms
from stateferry.basics.printable import say
from stateferry.basics.quantities import shown_amount

if TYPE_CHECKING:
    from stateferry.runs.record.live_progress import LiveProgress
    from stateferry.runs.record.runs import Run

_LONG = 256 << 20
_SECONDS_BETWEEN, _SECONDS_UNCHANGED = 2.0, 10.0


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


@contextmanager
def sign_of_life(what: str, file: TextIO) -> Iterator[None]:
    """Says at once that something has begun which shows no progress, and again every ten seconds until it is done."""
    began, is_done = time.monotonic(), threading.Event()

    def say_again() -> None:
        while not is_done.wait(_SECONDS_UNCHANGED):
            say(f"{what}: {time.monotonic() - began:.0f}s; running", file)

    say(what, file)
    threading.Thread(target=say_again, daemon=True, name=what).start()
    try:
        yield
    finally:
        is_done.set()


class ProgressLines:
    """Prints the progress with which it is called."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last = 0.0
        self._shown: tuple[str, int] | None = None

    def __call__(self, progress: LiveProgress) -> None:
        now = time.monotonic()
        least = _SECONDS_UNCHANGED if self._shown == (progress.step, progress.done) else _SECONDS_BETWEEN
        if not progress.ended and now - self._last < least:
            return
        self._last, self._shown = now, (progress.step, progress.done)
        say(progress_line(progress), self._file)


class KeptProgress:
    """Keeps the progress with which it is called in the run's folder, and prints it."""

    def __init__(self, run: Run, file: TextIO) -> None:
        self._run, self._lines = run, ProgressLines(file)
        self._last = 0.0
        # The work doesn't wait for a store.
        self._writer = None if run.folder.is_local else ThreadPoolExecutor(1, "progress")

    def __call__(self, progress: LiveProgress) -> None:
        self._lines(progress)
        now = time.monotonic()
        if progress.ended or now - self._last >= _SECONDS_BETWEEN:
            self._last = now
            kept = replace(progress, seconds=round(progress.seconds, 3), at=now_ms())
            if self._writer is None:
                self._keep(kept)
            else:
                self._writer.submit(self._keep, kept)

    def _keep(self, progress: LiveProgress) -> None:
        # Readers do without it.
        with suppress(OSError, StateferryError):
            progress.keep(self._run.progress)


def progress_line(progress: LiveProgress) -> str:
    """Progress in words: `rescale: 3/8 37%; 1.2 GB, 310.0 MB/s; 4s; ETA 6s; running`.

    As long as no task is done, a share and a rate of zero would say nothing: `rescale: 0/2, 2 at work; 4s; running`.
    """
    has_begun = progress.done > 0 or progress.ended
    share = f" {100 * progress.done // max(progress.total, 1)}%" if has_begun else ""
    at_work = f", {progress.at_work} at work" if progress.at_work and not progress.ended else ""
    parts = [f"{progress.step}: {progress.done}/{progress.total}{share}{at_work}"]
    if progress.unit and has_begun:
        rate = progress.amount / max(progress.seconds, 0.001)
        parts.append(f"{shown_amount(progress.amount, progress.unit)}, {shown_amount(rate, progress.unit)}/s")
    parts.append(f"{progress.seconds:.0f}s")
    if (left := progress.seconds_left) is not None:
        parts.append(f"ETA {left:.0f}s")
    parts.append("done" if progress.ended else "running")
    return "; ".join(parts)
