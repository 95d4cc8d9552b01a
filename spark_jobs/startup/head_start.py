"""Work of the first step that this process does while Spark starts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Work = TypeVar("Work")
Fact = TypeVar("Fact")


class HeadStart(Generic[Work, Fact]):
    """Pieces of a step's work, done one after the other by one thread, which keeps one core busy at most."""

    def __init__(self, step: str, work: Sequence[Work], fn: Callable[[Work], Fact]) -> None:
        self.step, self.seconds = step, 0.0
        self._work, self._fn = work, fn
        self._facts: dict[int, Fact] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._do, daemon=True, name=f"{step} ahead of Spark")

    def start(self) -> None:
        self._thread.start()

    def _do(self) -> None:
        began = time.monotonic()
        for number, piece in enumerate(self._work):
            if self._ended.is_set():
                return
            # What goes wrong here goes wrong as a task of Spark's too, and is said there.
            with contextlib.suppress(Exception):
                self._facts[number] = self._fn(piece)
                self.seconds = time.monotonic() - began

    def end(self) -> None:
        """No further piece is begun; the one under way doesn't count."""
        self._ended.set()

    def facts_of(self, work: Sequence[Work]) -> dict[int, Fact]:
        """Of those pieces of the step's work that were done, by their numbers."""
        facts = dict(self._facts)
        return {number: facts[number] for number, piece in enumerate(work) if self._has_done(number, piece, facts)}

    def _has_done(self, number: int, piece: Work, facts: dict[int, Fact]) -> bool:
        return number in facts and self._work[number] == piece
