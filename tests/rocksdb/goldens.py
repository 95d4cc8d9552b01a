"""Native savepoints and checkpoints that Flink wrote, with what they hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import AbsoluteFile, FileSegment, Subtask
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import Savepoint

SAVEPOINTS = Path(__file__).parent / "snapshots"
CANONICAL = "rounds-2.3-rocksdb"
NATIVE = (
    "rounds-native-2.3-rocksdb",
    "rounds-native-1.20-rocksdb",
    "rounds-checkpoint-2.3-rocksdb",
    "rounds-checkpoint-1.20-rocksdb",
    "rounds-2-to-3-2.3-rocksdb",
    "rounds-3-to-2-1.20-rocksdb",
    "rounds-merged-2.3-rocksdb",
    "rounds-merged-heap-timers-1.20-rocksdb",
    "rounds-heap-timers-2.3-rocksdb",
    "rounds-full-1.20-rocksdb",
)

Contents = Counter[tuple[str, bytes, bytes]]


def metadata_of(folder: Path) -> Path:
    """The `_metadata` of a savepoint, or that in the folder of a checkpoint."""
    return next(iter([*folder.glob(METADATA), *folder.glob(f"chk-*/{METADATA}")]))


def roots_of(folder: Path) -> dict[str, str]:
    """Where the absolute addresses in the metadata lead now."""
    metadata = parse_metadata(metadata_of(folder).read_bytes(), "_metadata")
    uris = {
        stream.uri
        for operator in metadata.operators
        for subtask in operator.subtasks
        for stream in subtask.streams()
        if isinstance(stream, AbsoluteFile | FileSegment)
    }
    return {re.sub(r"/(shared|taskowned)/.*", "", uri): str(folder) for uri in uris}


def opened(folder: Path) -> Savepoint:
    return Savepoint.open(str(metadata_of(folder)), files_from=roots_of(folder))


def rows(savepoint: Savepoint) -> Iterator[tuple[int, str, bytes, bytes]]:
    """Every row of keyed state, in the order of the files: key group, state, the bytes of its key and its value."""
    for operator in savepoint.keyed_operators():
        for file in savepoint.open_files(operator):
            names = [state.name for state in file.header.states]
            for key_group in file.handle.range:
                for section in file.sections(key_group):
                    data = section.data.tobytes()
                    positions = (section.starts, section.key_ends, section.ends)
                    for start, key_end, end in zip(*(part.tolist() for part in positions), strict=True):
                        assert int.from_bytes(data[start : start + 4], "big") == key_end - start - 4
                        assert int.from_bytes(data[key_end : key_end + 4], "big") == end - key_end - 4
                        yield key_group, names[section.state], data[start + 4 : key_end], data[key_end + 4 : end]


def contents(savepoint: Savepoint) -> Contents:
    return Counter((state, key, value) for _, state, key, value in rows(savepoint))


def expected_lines(folder: Path) -> Counter[str]:
    """Every entry as the generator of the contents knows it, as text."""
    with (folder / "expected.jsonl").open(encoding="ascii") as lines:
        return Counter(text_of(json.loads(line)) for line in lines)


def text_of(line: dict[str, object]) -> str:
    return json.dumps({name: value for name, value in line.items() if name != "operator"}, sort_keys=True)


def keyed(subtasks: tuple[Subtask, ...]) -> list[Subtask]:
    return [subtask for subtask in subtasks if subtask.native_keyed is not None]
