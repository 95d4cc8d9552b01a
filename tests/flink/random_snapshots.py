"""Snapshots of a job at random, as RocksDB writes them, each with a file of what is to be expected of it.

RocksDB's own crash tests keep such a file, too. RocksDB also says what is in a result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
    build_header,
)
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import (
    InlineBytes,
    Metadata,
    NamedFile,
    NativeHandle,
    Operator,
    OperatorHandle,
    RelativeFile,
    Subtask,
)
from flinkstate.metadata.streams import open_stream
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.built_snapshots import (
    kryo_snapshot,
    list_snapshot,
    map_snapshot,
    simple_snapshot,
    ttl_snapshot,
)
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import Scalar
from tests.flink.harness import FlinkHarness
from tests.flink.random_job import TIMERS, TTL, Expected, Kind, RandomJob
from tests.validation.test_checks import GOLDEN

WITH_TIMERS = GOLDEN / "operator-state-2.3-rocksdb"


def header_of(kind: Kind) -> KeyedHeader:
    string, number, boolean = map(simple_snapshot, (Scalar.STRING, Scalar.LONG, Scalar.BOOLEAN))

    def stamped(snapshot: SerializerSnapshot) -> SerializerSnapshot:
        return ttl_snapshot(snapshot) if kind.ttl else snapshot

    map_ = map_snapshot(string, number) if kind.flavour == "flink" else kryo_snapshot("java.util.HashMap")
    kinds = {
        **dict.fromkeys(("mainState", "second"), ("VALUE", stamped(map_))),
        "newMainState": ("MAP", map_snapshot(string, stamped(number))),
        "isMigratedState": ("VALUE", boolean),
        "other": ("MAP", map_snapshot(string, number)),
        "list": ("LIST", list_snapshot(number)),
        "sum": ("REDUCING", number),
        "windowed": ("VALUE", number),
    }

    def meta(name: str) -> StateMeta:
        if name == TIMERS:
            return _timers()
        sort, snapshot = kinds[name]
        namespace = simple_snapshot(Scalar.TIME_WINDOW if name == "windowed" else Scalar.VOID_NAMESPACE)
        serializers = ((VALUE_SERIALIZER, snapshot), (NAMESPACE_SERIALIZER, namespace))
        return StateMeta(name, BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, sort),), serializers)

    return KeyedHeader(False, string, tuple(map(meta, kind.states)))


def _timers() -> StateMeta:
    opened = Savepoint.open(str(WITH_TIMERS))
    headers = (header for operator in opened.keyed_operators() for _, _, header in opened.headers(operator))
    return next(meta for header in headers for meta in header.states if meta.name == TIMERS)


def _operator_state() -> OperatorHandle:
    """Operator state as Flink wrote it, broadcast state included."""
    opened = Savepoint.open(str(WITH_TIMERS))
    subtasks = [one for operator in opened.metadata.operators for one in operator.subtasks if one.managed_operator]
    found = subtasks[0].managed_operator
    assert found is not None
    stream, _, _ = open_stream(opened.folder, found.stream)
    with stream:
        return OperatorHandle(found.states, InlineBytes("operator-state", stream.read()))


def write_expected(path: Path, expected: Expected) -> None:
    lines = (json.dumps([state, key.hex(), value.hex(), gone]) for (state, key), (value, gone) in expected.items())
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


def read_expected(path: Path) -> Expected:
    lines = (json.loads(line) for line in path.read_text(encoding="ascii").splitlines())
    return {(state, bytes.fromhex(key)): (bytes.fromhex(value), gone) for state, key, value, gone in lines}


def ranges(kind: Kind) -> list[KeyGroupRange]:
    """The key groups of the subtasks, by Flink's rule."""
    width, count = kind.max_parallelism, kind.parallelism
    return [
        KeyGroupRange((number * width + count - 1) // count, ((number + 1) * width - 1) // count)
        for number in range(count)
    ]


def snapshots(flink: FlinkHarness, job: RandomJob, counts: Sequence[int], folder: Path) -> list[Path]:
    """Snapshots of the job, after so many things each; beside each is what is expected of it."""
    steps: list[tuple[int, list[tuple[str, str, bytes, bytes]]]] = []
    found = [folder / f"snapshot-{number}" for number in range(len(counts))]
    for path, count in zip(found, counts, strict=True):
        job.goes_on(count)
        steps.append((job.clock, list(job.operations)))
        job.operations.clear()
        write_expected(path.with_suffix(".expected"), job.expected())
    states, wide = job.kind.states, 1 if job.kind.max_parallelism <= 128 else 2
    for subtask, part in enumerate(ranges(job.kind)):
        described = [
            {
                "now": now,
                "target": str(folder / f"files-{number}-{subtask}"),
                "operations": [
                    [name, states.index(state), key.hex(), value.hex()]
                    for name, state, key, value in operations
                    if not key or int.from_bytes(key[:wide], "big") in part
                ],
            }
            for number, (now, operations) in enumerate(steps)
        ]
        expiring = {"mainState": "value", "second": "value", "newMainState": "map"} if job.kind.ttl else {}
        flink.chain([{"name": name, "expiring": expiring.get(name, "")} for name in states], TTL, described)
    operator_state, header = _operator_state(), build_header(header_of(job.kind))
    for number, path in enumerate(found):
        path.mkdir()
        _write_snapshot(path, number, job.kind, header, operator_state, folder)
    return found


def _write_snapshot(
    path: Path, number: int, kind: Kind, header: bytes, operator_state: OperatorHandle, folder: Path
) -> None:
    subtasks = []
    for index, part in enumerate(ranges(kind)):
        shared, private = list[NamedFile](), list[NamedFile]()
        for file in sorted((folder / f"files-{number}-{index}").iterdir()):
            name = f"{index}-{file.name}"
            file.rename(path / name)
            named = NamedFile(file.name, RelativeFile(name, (path / name).stat().st_size))
            (shared if file.suffix == ".sst" else private).append(named)
        meta = path / f"{index}-meta"
        meta.write_bytes(header)
        stream = RelativeFile(meta.name, len(header))
        handle = NativeHandle(part, number + 1, f"backend-{index}", stream, tuple(shared), tuple(private))
        subtasks.append(Subtask(index, managed_operator=operator_state if not index else None, native_keyed=handle))
    operator = Operator(
        operator_id("main"), kind.parallelism, kind.max_parallelism, "main", "main", subtasks=tuple(subtasks)
    )
    metadata = Metadata(6, number + 1, (operator,), properties=b"\xac\xed\x00\x05\x70")
    (path / METADATA).write_bytes(build_metadata(metadata))


def shown(flink: FlinkHarness, savepoint: Path, folder: Path) -> dict[tuple[str, bytes], bytes]:
    """What RocksDB itself finds in a native savepoint; its files get the names in `folder` that they have for it."""
    found: dict[tuple[str, bytes], bytes] = {}
    for index, files in enumerate(_databases(savepoint)):
        database = folder / f"{index}"
        database.mkdir(parents=True)
        for name, file in files:
            (database / name).hardlink_to(file)
        found |= flink.shown(database)
    return found


def _databases(savepoint: Path) -> Iterator[list[tuple[str, Path]]]:
    for operator in Savepoint.open(str(savepoint)).keyed_operators():
        for subtask in operator.subtasks:
            assert subtask.native_keyed is not None
            yield [(one.name, savepoint / one.stream.name) for one in subtask.native_keyed.files]


def difference(expected: Expected, found: Mapping[tuple[str, bytes], bytes]) -> list[str]:
    """Where what was found isn't what is expected."""
    return [
        f"{place[0]} {place[1].hex()}: expected {expected.get(place)}, found {found.get(place)!r}"
        for place in sorted(expected.keys() | found.keys())
        if (of := expected.get(place)) is None or (found.get(place) != of[0] and not (of[1] and place not in found))
    ]
