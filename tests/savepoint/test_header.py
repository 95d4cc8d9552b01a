"""Headers of keyed state files: the same bytes again, old ones refused, unknown serializers carried or named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.header import (
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
    build_header,
    parse_header,
)
from flinkstate.keyed.key_group_file import KeyGroupFile
from flinkstate.keyed.state import StateKind, keyed_states
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.binary import ByteWriter
from flinkstate.serializers.built_snapshots import map_snapshot
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import OpaqueType, Scalar
from tests.support.samples import LONG, METAS, STRING, keyed_meta, timers_meta

SAVEPOINTS = Path(__file__).parents[1] / "savepoints"
GOLDEN = sorted(folder.parent for folder in SAVEPOINTS.glob("*/_metadata"))
CANONICAL = [folder for folder in GOLDEN if not folder.name.startswith(("native-", "checkpoint-", "heap-"))]
HEADER = KeyedHeader(False, STRING, METAS)


@pytest.mark.parametrize("folder", CANONICAL, ids=lambda folder: folder.name)
def test_what_flink_wrote_is_built_again_to_the_same_bytes(folder: Path) -> None:
    savepoint, files = Savepoint.open(str(folder)), 0
    for operator in savepoint.keyed_operators():
        for file in savepoint.open_files(operator):
            assert isinstance(file, KeyGroupFile)
            file.file.seek(0)
            assert build_header(file.header) == bytes(file.file.read(file.header_end))
            files += 1
    assert files > 0


@pytest.mark.parametrize("compressed", [False, True])
def test_a_header_is_read_as_it_was_built(compressed: bool) -> None:
    header = replace(HEADER, compressed=compressed)
    data = build_header(header)
    assert parse_header(data, "file", end=len(data)) == (header, len(data))
    assert parse_header(data + b"\0\0 the first key group", "file", end=len(data)) == (header, len(data))


@pytest.mark.parametrize("version", [1, 5])
def test_old_versions_are_refused_and_others_are_damage(version: int) -> None:
    data = build_header(HEADER)
    with pytest.raises(RefusedError, match=f"version {version}"):
        parse_header(bytes([0, 0, 0, version]) + data[4:], "file", end=len(data))
    with pytest.raises(DamagedError, match=r"file, offset 0: expected version 6 of a keyed state file, found 7"):
        parse_header(b"\0\0\0\7" + data[4:], "file", end=len(data))


def test_a_header_must_end_where_the_first_key_group_begins() -> None:
    data = build_header(HEADER)
    for end in (len(data) - 1, len(data) + 3):
        with pytest.raises(DamagedError) as caught:
            parse_header(data + b"more", "file", end=end)
        assert caught.value.file == "file"
        assert caught.value.offset is not None


def unknown(body: bytes, name: str = "com.acme.OwnSnapshot") -> SerializerSnapshot:
    raw = ByteWriter().utf(name).i32(1).raw(body).bytes()
    return SerializerSnapshot(name, 1, OpaqueType(name, "a serializer that is not one of Flink's own"), (), raw)


@pytest.mark.parametrize("body", [b"", b"\1", b"\xff" * 40, bytes(3), b"\x00\x00\x00\x05\xca\xfe"], ids=len)
def test_an_unknown_serializer_is_carried_whole_and_named(body: bytes) -> None:
    own = unknown(body)
    for metas in (
        (keyed_meta("own", "VALUE", own),),
        (*METAS, keyed_meta("own", "VALUE", own)),
        (keyed_meta("own", "VALUE", own), *METAS),
        (keyed_meta("own", "MAP", map_snapshot(STRING, own)), keyed_meta("last", "VALUE", LONG)),
    ):
        data = build_header(KeyedHeader(False, STRING, metas))
        header, _ = parse_header(data, "file", end=len(data))
        assert build_header(header) == data
        state = next(state for state in keyed_states(header, "file") if state.name == "own")
        assert isinstance(state.value, OpaqueType)
        assert state.value.class_name == "com.acme.OwnSnapshot"
        assert "com.acme.OwnSnapshot" in str(state.why_not_migratable) or state.kind is StateKind.MAP
    data = build_header(KeyedHeader(False, own, METAS[:2]))
    assert parse_header(data, "file", end=len(data))[0].key_serializer.raw == own.raw


def test_an_unknown_serializer_that_can_be_read_in_two_ways_is_refused_by_name() -> None:
    # Descriptions end with a 3, and the last three of five states begin behind one: that may be their number too.
    data = build_header(KeyedHeader(False, unknown(b"own"), METAS))
    with pytest.raises(
        RefusedError, match=r"file: the header can be read in more than one way.*com\.acme\.OwnSnapshot"
    ):
        parse_header(data, "file", end=len(data))


def test_headers_of_subtasks_are_merged_by_name() -> None:
    first = KeyedHeader(False, STRING, (METAS[0], METAS[1]))
    second = KeyedHeader(True, STRING, (METAS[2], METAS[1]))
    merged = first.merged_with(second, "second")
    assert merged == KeyedHeader(True, STRING, (METAS[0], METAS[1], METAS[2]))
    options = replace(METAS[1], serializers=METAS[1].serializers[::-1])
    (_, counts) = first.merged_with(replace(second, states=(options,)), "second").states
    assert dict(counts.serializers) == dict(METAS[1].serializers)
    with pytest.raises(RefusedError, match="second: state counts has another description"):
        first.merged_with(replace(second, states=(keyed_meta("counts", "MAP", map_snapshot(STRING, LONG)),)), "second")
    with pytest.raises(RefusedError, match="second: its keys have another description"):
        first.merged_with(replace(second, key_serializer=LONG), "second")


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (replace(METAS[2], kind=BackendKind.OPERATOR), "a keyed state"),
        (replace(METAS[2], options=()), "the kind of state flag"),
        (replace(METAS[2], options=(("KEYED_STATE_TYPE", "TIMERS"),)), "the kind of state flag"),
        (replace(METAS[2], serializers=METAS[2].serializers[:1]), NAMESPACE_SERIALIZER),
        (replace(METAS[2], serializers=METAS[2].serializers[1:]), VALUE_SERIALIZER),
        (keyed_meta("flag", "MAP", LONG), "a map serializer for MapState flag"),
        (keyed_meta("flag", "LIST", LONG), "a list serializer for ListState flag"),
    ],
)
def test_descriptions_that_are_none_are_damage(meta: StateMeta, expected: str) -> None:
    data = build_header(KeyedHeader(False, STRING, (meta,)))
    header, _ = parse_header(data, "file", end=len(data))
    with pytest.raises(DamagedError, match="file: ") as caught:
        keyed_states(header, "file")
    assert expected in str(caught.value)


def test_a_folding_state_is_refused_by_its_name() -> None:
    meta = replace(METAS[2], options=(("KEYED_STATE_TYPE", "FOLDING"),))
    with pytest.raises(RefusedError, match="file: state flag is a FoldingState"):
        keyed_states(KeyedHeader(False, STRING, (meta,)), "file")


def test_kinds_of_states() -> None:
    kinds = [(state.kind.value, state.ttl, state.type_name) for state in keyed_states(HEADER, "file")]
    assert kinds == [
        ("VALUE", True, "Map<String,Long>"),
        ("MAP", True, "Map<String,Long>"),
        ("VALUE", False, "Boolean"),
        ("LIST", False, "List<String>"),
        ("TIMERS", False, "Timer<String,VoidNamespace>"),
    ]
    (timers,) = keyed_states(KeyedHeader(False, LONG, (timers_meta("t", LONG),)), "file")
    assert (timers.key, timers.namespace, timers.value) == (Scalar.LONG, Scalar.VOID_NAMESPACE, None)


def test_the_header_of_some_subtasks_is_not_taken_for_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    savepoint = Savepoint.open(str(SAVEPOINTS / "legacy-2.3-rocksdb"))
    (operator,) = savepoint.keyed_operators()
    whole = savepoint.keyed_header(operator)
    assert whole is not None
    # The first subtask has not used all states yet.
    first = replace(whole, states=whole.states[:1])
    headers = {subtask.index: whole if subtask.index else first for subtask in operator.subtasks}
    monkeypatch.setattr(
        Savepoint, "headers", lambda _, one: [(of.index, "f", headers[of.index]) for of in one.subtasks]
    )
    again = Savepoint.open(str(SAVEPOINTS / "legacy-2.3-rocksdb"))
    assert again.keyed_header(replace(operator, subtasks=operator.subtasks[:1])) == first
    assert again.keyed_header(operator) == whole
