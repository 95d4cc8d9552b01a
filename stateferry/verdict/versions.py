"""Which Flink a verdict is asked for, and which one wrote a savepoint, as far as `_metadata` says.

| version of `_metadata` | written by | tried |
|---|---|---|
| 2 | Flink 1.3 to 1.10 | |
| 3, canonical with handles of savepoints (type 7) | Flink 1.13 to 1.15 | 1.13.6, 1.14.6, 1.15.4 |
| 3, native with all files beside it | Flink 1.15 | 1.15.4 |
| 3, otherwise | Flink 1.11 or 1.12, or a checkpoint of one up to 1.15 | |
| 4 | Flink 1.16 to 1.20 | 1.16.3, 1.17.2, 1.18.1, 1.19.3, 1.20.0 |
| 5 | Flink 2.0 | 2.0.0 |
| 6 | Flink 2.1 to 2.3 | 2.1.1, 2.2.0, 2.3.0 |

Of each version that is named as tried there are savepoints in `tests/earlier_savepoints` or `tests/savepoints`. They
don't say which of the versions in one row wrote them: the bytes are alike.
"""

from __future__ import annotations

from enum import Enum

from flinkstate.basics.did_you_mean import there_are
from flinkstate.errors import UsageError
from flinkstate.metadata.metadata import AbsoluteFile, FileSegment, KeyedHandle, Metadata, NativeHandle
from flinkstate.metadata.type_numbers import KEYED_SAVEPOINT


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
_LINES = {3: Line.ONE, 4: Line.ONE, 5: Line.TWO, 6: Line.TWO}
_WRITERS = {2: "Flink 1.3 to 1.10", 4: "Flink 1.16 to 1.20", 5: "Flink 2.0", 6: "Flink 2.1 to 2.3"}


def target_of(name: str) -> Line:
    """Returns the Flink of a name such as `flink-2.3`."""
    if name not in TARGETS:
        raise UsageError(f"expected a Flink that was tried, found {name!r}. {there_are(name, list(TARGETS))}")
    return TARGETS[name]


def source_of(version: int) -> Line | None:
    """Returns the line of the Flink that wrote `_metadata` of this version; None if none of it was tried."""
    return _LINES.get(version)


def was_tried(metadata: Metadata) -> bool:
    """Whether savepoints of each Flink that may have written this one were tried."""
    return metadata.version in _LINES and not may_be_before_1_13(metadata)


def may_be_before_1_13(metadata: Metadata) -> bool:
    """Whether a Flink before 1.13 may have written the savepoint. Checkpoints of Flink 1.13 to 1.15 look alike."""
    return metadata.version <= 3 and not (_canonical(metadata) or _native(metadata))


def writer_of(metadata: Metadata) -> str:
    """Returns which Flink wrote the savepoint, for people."""
    if metadata.version != 3:
        return _WRITERS.get(metadata.version, "a newer Flink")
    if _canonical(metadata):
        return "Flink 1.13 to 1.15"
    return "Flink 1.15" if _native(metadata) else "Flink 1.11 to 1.15"


def _canonical(metadata: Metadata) -> bool:
    return any(handle.type == KEYED_SAVEPOINT for handle in _keyed(metadata))


def _native(metadata: Metadata) -> bool:
    """Whether there are files of RocksDB, all of them beside `_metadata`: a checkpoint has shared ones elsewhere."""
    files = [file.stream for one in _keyed(metadata) if isinstance(one, NativeHandle) for file in one.files]
    return bool(files) and not any(isinstance(one, AbsoluteFile | FileSegment) for one in files)


def _keyed(metadata: Metadata) -> list[KeyedHandle | NativeHandle]:
    subtasks = (subtask for operator in metadata.operators for subtask in operator.subtasks)
    return [subtask.keyed for subtask in subtasks if subtask.keyed is not None]
