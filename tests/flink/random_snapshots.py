"""Snapshots of a job at random, as RocksDB writes them, each with a file of what is to be expected of it.

RocksDB's own crash tests keep such a file, too. RocksDB also says what is in a result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from stateferry.runs.record.runs import Run
from tests.flink.harness import FlinkHarness
from tests.flink.random_job import AGING, BY_KRYO, TIMERS, TTL, UIDS, Expected, Kind, RandomOperator
from tests.support.lazy_choices import choices_of
from tests.validation.test_checks import GOLDEN

WITH_TIMERS = GOLDEN / "operator-state-2.3-rocksdb"
_Step = tuple[int, list[tuple[str, str, bytes, bytes]]]


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
        BY_KRYO: ("MAP", map_snapshot(kryo_snapshot("java.lang.Object"), kryo_snapshot("java.util.HashMap"))),
        "list": ("LIST", list_snapshot(number)),
        "sum": ("REDUCING", number),
        AGING: ("VALUE", ttl_snapshot(number)),
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


def of_lazy_run(path: Path, found: Mapping[tuple[str, bytes], bytes], base: Run) -> Expected:
    """What is expected of keys that are moved or left, as the blobs say that a lazy run has left.

    An operator of which the base moves all keys has no flags any more.
    """
    all_moved = {one.operator for one in choices_of(base) if one.last is None}
    full = {f"{uid}/isMigratedState" for uid in UIDS if operator_id(uid).hex() in all_moved}
    moved, left = (read_expected(path.with_suffix(suffix)) for suffix in (".expected", ".left"))
    stay = {(state.split("/")[0], key) for state, key in found if state.endswith("/mainState")}

    def stays(state: str, key: bytes) -> bool:
        uid = state.split("/")[0]
        return any((uid, key[:end]) in stay for end in range(len(key) + 1))

    return {
        place: of
        for every, is_left in ((moved, False), (left, True))
        for place, of in every.items()
        if stays(*place) == is_left and place[0] not in full
    }


def ranges(kind: Kind) -> list[KeyGroupRange]:
    """The key groups of the subtasks, by Flink's rule."""
    width, count = kind.max_parallelism, kind.parallelism
    return [
        KeyGroupRange((number * width + count - 1) // count, ((number + 1) * width - 1) // count)
        for number in range(count)
    ]


def snapshots(flink: FlinkHarness, job: list[RandomOperator], counts: Sequence[int], folder: Path) -> list[Path]:
    """Snapshots of the job, after so many things of each operator; beside each is what is expected of it."""
    steps: list[list[_Step]] = [[] for _ in job]
    found = [folder / f"snapshot-{number}" for number in range(len(counts))]
    for path, count in zip(found, counts, strict=True):
        for one, of_operator in zip(job, steps, strict=True):
            one.goes_on(count)
            of_operator.append((one.clock, list(one.operations)))
            one.operations.clear()
        for suffix, moves in ((".expected", True), (".left", False)):
            every = {place: of for one in job for place, of in one.expected(moves=moves).items()}
            write_expected(path.with_suffix(suffix), every)
    for one, of_operator in zip(job, steps, strict=True):
        _carry_out(flink, one, of_operator, folder)
    state = _operator_state()
    for number, path in enumerate(found):
        path.mkdir()
        operators = tuple(_operator(path, number, one, state, folder) for one in job)
        metadata = Metadata(
            4 if job[0].kind.for_flink_2 else 6, number + 1, operators, properties=b"\xac\xed\x00\x05\x70"
        )
        (path / METADATA).write_bytes(build_metadata(metadata))
    return found


def _carry_out(flink: FlinkHarness, one: RandomOperator, steps: list[_Step], folder: Path) -> None:
    states, wide = one.kind.states, 1 if one.kind.max_parallelism <= 128 else 2
    for subtask, part in enumerate(ranges(one.kind)):
        described = [
            {
                "now": now,
                "target": str(folder / f"{one.uid}-{number}-{subtask}"),
                "operations": [
                    told
                    for name, state, key, value in operations
                    if not key or int.from_bytes(key[:wide], "big") in part
                    for told in (
                        [name, states.index(state), key.hex(), value.hex()],
                        *(_clipped(len(states), part, wide) if name == "restart" else ()),
                    )
                ],
            }
            for number, (now, operations) in enumerate(steps)
        ]
        expiring = {"mainState": "value", "second": "value", "newMainState": "map"} if one.kind.ttl else {}
        expiring[AGING] = "value"
        flink.chain([{"name": name, "expiring": expiring.get(name, "")} for name in states], TTL, described)


def _clipped(states: int, part: KeyGroupRange, wide: int) -> Iterator[list[Any]]:
    """Ranges of other key groups, which Flink deletes when it has restored a database at another parallelism."""
    low, after = (number.to_bytes(wide, "big").hex() for number in (part.start, part.end + 1))
    for state in range(states):
        if part.start:
            yield ["range delete", state, "00" * wide, low]
        yield ["range delete", state, after, "ff" * wide]
        yield ["flush", state]


def _operator(path: Path, number: int, one: RandomOperator, state: OperatorHandle, folder: Path) -> Operator:
    kind, header, subtasks = one.kind, build_header(header_of(one.kind)), list[Subtask]()
    for index, part in enumerate(ranges(kind)):
        shared, private = list[NamedFile](), list[NamedFile]()
        for file in sorted((folder / f"{one.uid}-{number}-{index}").iterdir()):
            name = f"{one.uid}-{index}-{file.name}"
            file.rename(path / name)
            named = NamedFile(file.name, RelativeFile(name, (path / name).stat().st_size))
            (shared if file.suffix == ".sst" else private).append(named)
        meta = path / f"{one.uid}-{index}-meta"
        meta.write_bytes(header)
        stream = RelativeFile(meta.name, len(header))
        handle = NativeHandle(part, number + 1, f"backend-{index}", stream, tuple(shared), tuple(private))
        subtasks.append(Subtask(index, managed_operator=state if not index else None, native_keyed=handle))
    id_, uid = operator_id(one.uid), one.uid
    return Operator(id_, kind.parallelism, kind.max_parallelism, uid, uid, subtasks=tuple(subtasks))


def shown(flink: FlinkHarness, savepoint: Path, folder: Path) -> dict[tuple[str, bytes], bytes]:
    """What RocksDB itself finds in a native savepoint; its files get the names in `folder` that they have for it."""
    found: dict[tuple[str, bytes], bytes] = {}
    for index, (uid, files) in enumerate(_databases(savepoint)):
        database = folder / f"{index}"
        database.mkdir(parents=True)
        for name, file in files:
            (database / name).hardlink_to(file)
        found |= {(f"{uid}/{state}", key): value for (state, key), value in flink.shown(database).items()}
    return found


def _databases(savepoint: Path) -> Iterator[tuple[str, list[tuple[str, Path]]]]:
    # `_metadata` of Flink 1 says no names.
    names = {operator_id(uid): uid for uid in UIDS}
    for operator in Savepoint.open(str(savepoint)).keyed_operators():
        for subtask in operator.subtasks:
            assert subtask.native_keyed is not None
            yield names[operator.id], [(one.name, savepoint / one.stream.name) for one in subtask.native_keyed.files]


def difference(expected: Expected, found: Mapping[tuple[str, bytes], bytes]) -> list[str]:
    """Where what was found isn't what is expected."""
    return [
        f"{place[0]} {place[1].hex()}: expected {expected.get(place)}, found {found.get(place)!r}"
        for place in sorted(expected.keys() | found.keys())
        if (of := expected.get(place)) is None or (found.get(place) != of[0] and not (of[1] and place not in found))
    ]
