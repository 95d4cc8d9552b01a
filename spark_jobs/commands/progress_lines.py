"""How far the steps have come, as lines on stderr: one each second of work at most, and one when a step is done."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from spark_jobs.tasks import Progress

_SECONDS_BETWEEN = 2.0


class ProgressLines:
    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        ended = progress.done == progress.total
        if not ended and now - self._last < _SECONDS_BETWEEN:
            return
        self._last = now
        share = 100 * progress.done / max(progress.total, 1)
        line = f"{progress.step}: {progress.done}/{progress.total} {share:.0f}%; {progress.seconds:.0f}s"
        if 0 < progress.done < progress.total:
            left = progress.seconds / progress.done * (progress.total - progress.done)
            line += f"; ETA {left:.0f}s"
        self._file.write(f"{line}; {'done' if ended else 'running'}\n")
        self._file.flush()
