"""Which Flink a verdict is asked for, and which one wrote a savepoint, as far as `_metadata` says.

| version of `_metadata` | written by |
|---|---|
| 1 to 3 | Flink before 1.17 |
| 4 | Flink 1.17 to 1.20; 1.20.0 was tried |
| 5 | an early Flink 2 |
| 6 | Flink 2; 2.3.0 was tried |
"""

from __future__ import annotations

from enum import Enum

from flinkstate.did_you_mean import there_are
from flinkstate.errors import UsageError


class Line(Enum):
    """A line of Flink versions with the same Kryo; the value is the version that was tried."""

    ONE = "1.20"
    TWO = "2.3"

    @property
    def number(self) -> str:
        """1 or 2."""
        return self.value[0]

    @property
    def kryo(self) -> str:
        """The Kryo of this line: 2 or 5."""
        return {"1.20": "2", "2.3": "5"}[self.value]


TARGETS = {"flink-1.20": Line.ONE, "flink-2": Line.TWO, "flink-2.3": Line.TWO}
_TRIED = {4: Line.ONE, 6: Line.TWO}
_WRITERS = {4: "Flink 1.17 to 1.20", 5: "an early Flink 2", 6: "Flink 2"}


def target_of(name: str) -> Line:
    """Returns the Flink of a name such as `flink-2.3`."""
    if name not in TARGETS:
        raise UsageError(f"expected a Flink that was tried, found {name!r}. {there_are(name, list(TARGETS))}")
    return TARGETS[name]


def source_of(version: int) -> Line | None:
    """Returns the Flink that wrote `_metadata` of this version; None if savepoints of it were not tried."""
    return _TRIED.get(version)


def writer_of(version: int) -> str:
    """Returns which Flink writes `_metadata` of this version, for people."""
    return _WRITERS.get(version, "Flink before 1.17" if version < 4 else "a newer Flink")
