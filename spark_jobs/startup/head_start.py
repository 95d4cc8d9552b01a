"""Pieces of work of the first step that the driver does while Spark starts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Work = TypeVar("Work")
Fact = TypeVar("Fact")


class HeadStart(Generic[Work, Fact]):
    """Does tasks one after the other in one thread, which uses at most one core."""

    def __init__(self, step: str, work: Sequence[Work], fn: Callable[[Work], Fact]) -> None:
        self.step, self.seconds = step, 0.0
        self._work, self._fn = work, fn
        self._facts: dict[int, Fact] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._do, daemon=True, name=f"{step} ahead of Spark")

    def start(self) -> None:
        """Begins with the first task."""
        self._thread.start()

    def _do(self) -> None:
        began = time.monotonic()
        for number, piece in enumerate(self._work):
            if self._ended.is_set():
                return
            # An error is ignored here: Spark's workers do the piece again, and report the error.
            with contextlib.suppress(Exception):
                self._facts[number] = self._fn(piece)
                self.seconds = time.monotonic() - began

    def end(self) -> None:
        """Begins no further piece; the piece in progress counts if it is done when the facts are asked for."""
        self._ended.set()

    def facts_of(self, work: Sequence[Work], fn: Callable[[Work], Fact]) -> dict[int, Fact]:
        """The facts of the pieces of `work` on which `fn` was done, by their numbers."""
        if fn != self._fn:
            return {}
        facts = dict(self._facts)
        return {number: facts[number] for number, piece in enumerate(work) if self._has_done(number, piece, facts)}

    def _has_done(self, number: int, piece: Work, facts: dict[int, Fact]) -> bool:
        return number in facts and self._work[number] == piece
