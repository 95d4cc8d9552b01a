"""`_metadata`: read, built again to the same bytes, and refused where it isn't a canonical savepoint's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.metadata import parse_metadata as parser
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import (
    AbsoluteFile,
    EmptySegment,
    FileSegment,
    InlineBytes,
    KeyedHandle,
    MergedFolders,
    Metadata,
    Operator,
    OperatorHandle,
    PartitionedState,
    RelativeFile,
    StreamHandle,
    Subtask,
    without_empty_handles,
)
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.metadata.savepoint_properties import CANONICAL_SAVEPOINT, NATIVE_SAVEPOINT, canonical_properties
from flinkstate.metadata.type_numbers import MAGIC
from flinkstate.reading.reader import operator_id
from flinkstate.serializers.binary import ByteWriter

GOLDEN = sorted((Path(__file__).parents[1] / "savepoints").glob("*/_metadata"))
PROPERTIES = b"\xac\xed\x00\x05p"


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.parent.name)
def test_what_flink_wrote_is_built_again_to_the_same_bytes(file: Path) -> None:
    data = file.read_bytes()
    metadata = parse_metadata(data, str(file))
    assert build_metadata(metadata) == data
    for operator in metadata.operators:
        if operator.uid is not None:
            assert operator.id == operator_id(operator.uid)


names = st.text(st.characters(exclude_categories=()), max_size=8)
sizes = st.integers(0, 2**63 - 1)
segments = st.builds(FileSegment, names, sizes, sizes, st.sampled_from((0, 1)), names) | st.just(EmptySegment())
streams: st.SearchStrategy[StreamHandle] = st.one_of(
    segments,
    st.builds(InlineBytes, names, st.binary(max_size=20)),
    st.builds(AbsoluteFile, names, st.integers(0, 2**63 - 1)),
    st.builds(RelativeFile, names.filter(lambda name: "/" not in name and name != ".."), st.integers(0, 2**63 - 1)),
)
offsets = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(tuple)
partitioned = st.lists(st.builds(PartitionedState, names, st.sampled_from(DistributionMode), offsets), max_size=3)
operator_handles = st.builds(OperatorHandle, partitioned.map(tuple), streams) | st.builds(
    OperatorHandle, partitioned.map(tuple), segments, st.builds(MergedFolders, names, names, st.booleans())
)


@st.composite
def keyed_handles(draw: st.DrawFn, max_parallelism: int) -> KeyedHandle:
    start = draw(st.integers(0, max_parallelism - 1))
    end = draw(st.integers(start, min(start + 4, max_parallelism - 1)))
    places = tuple(draw(st.lists(st.integers(0, 2**63 - 1), min_size=end - start + 1, max_size=end - start + 1)))
    kind = draw(st.sampled_from((7, 3, 12)))
    id_ = draw(names) if kind == 12 else None
    return KeyedHandle(KeyGroupRange(start, end), places, draw(streams), kind, id_)


@st.composite
def operators(draw: st.DrawFn, number: int, named: bool) -> Operator:
    max_parallelism = draw(st.integers(1, 32768))
    parallelism = draw(st.integers(1, max_parallelism))
    name, uid = (draw(names.map(lambda name: name or None)) if named else None for _ in range(2))
    coordinator = draw(st.none() | st.builds(InlineBytes, names, st.binary(max_size=9)))
    described = Operator(bytes([number]) * 16, parallelism, max_parallelism, name, uid, coordinator)
    if draw(st.integers(0, 9)) == 0:
        return replace(described, fully_finished=True)
    indexes = draw(st.lists(st.integers(0, parallelism - 1), max_size=3, unique=True))
    subtasks = [
        Subtask(
            index,
            managed_operator=draw(st.none() | operator_handles),
            raw_operator=draw(st.none() | operator_handles),
            managed_keyed=draw(st.none() | keyed_handles(max_parallelism)),
            raw_keyed=draw(st.none() | keyed_handles(max_parallelism)),
        )
        if draw(st.booleans())
        else Subtask(index, finished=True)
        for index in indexes
    ]
    return replace(described, subtasks=tuple(subtasks))


@st.composite
def metadatas(draw: st.DrawFn) -> Metadata:
    version = draw(st.sampled_from((3, 4, 5, 6)))
    count = draw(st.integers(0, 3))
    return Metadata(
        version,
        draw(st.integers(0, 2**63 - 1)),
        tuple(draw(operators(number, version >= 5)) for number in range(count)),
        tuple(draw(st.lists(st.binary(max_size=9), max_size=2))),
        PROPERTIES if version >= 4 else b"",
    )


def without_marks(metadata: Metadata) -> Metadata:
    """Without what is read beside: which operators have the name of another one."""
    operators = tuple(replace(one, shares_name=False) for one in metadata.operators)
    return replace(metadata, operators=operators)


@given(metadatas())
def test_every_version_and_handle_is_read_as_it_was_built(metadata: Metadata) -> None:
    data = build_metadata(metadata)
    assert without_marks(parse_metadata(data, "_metadata")) == metadata
    assert build_metadata(parse_metadata(data, "_metadata")) == data


@given(metadatas(), st.data())
def test_a_cut_is_damage(metadata: Metadata, data: st.DataObject) -> None:
    whole = build_metadata(metadata)
    cut = data.draw(st.integers(0, len(whole) - len(metadata.properties) - 1))
    with pytest.raises(DamagedError) as caught:
        parse_metadata(whole[:cut], "_metadata")
    assert (caught.value.file, caught.value.offset is not None) == ("_metadata", True)


def said_of(data: bytes) -> object:
    """What is read, or the error."""
    try:
        return parse_metadata(data, "_metadata")
    except StateferryError as error:
        return type(error), str(error)


def read_field_by_field(data: bytes) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "usual_subtask", lambda *_: None)
        patch.setattr(parser, "_stream", parser._any_stream)
        return said_of(data)


plain = st.text("ab/.-0", max_size=5)
usual_files: st.SearchStrategy[StreamHandle] = st.builds(
    RelativeFile, plain.filter(lambda name: not name.startswith("/") and ".." not in name), sizes
)
usual_files |= st.builds(AbsoluteFile, plain, sizes)


@st.composite
def usual_metadatas(draw: st.DrawFn) -> Metadata:
    """Of subtasks as nearly all are; each has the operator states of another one, or its own."""
    states = st.sampled_from(draw(st.lists(partitioned, min_size=1, max_size=3)))
    subtasks = [
        Subtask(
            index,
            managed_operator=draw(st.none() | st.builds(OperatorHandle, states.map(tuple), usual_files)),
            managed_keyed=draw(
                st.none()
                | st.builds(KeyedHandle, st.just(KeyGroupRange(index, index)), st.tuples(sizes), usual_files | streams)
            ),
        )
        for index in draw(st.lists(st.integers(0, 3), max_size=4, unique=True))
    ]
    return Metadata(6, 1, (Operator(b"i" * 16, 4, 4, subtasks=tuple(subtasks)),), (), PROPERTIES)


@given(metadatas() | usual_metadatas(), st.data())
def test_usual_subtasks_are_read_as_field_by_field(metadata: Metadata, data: st.DataObject) -> None:
    whole = build_metadata(metadata)
    found = parse_metadata(whole, "_metadata")
    assert found == read_field_by_field(whole)
    assert without_marks(found) == metadata
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 :]
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    for altered in (changed, cut):
        assert said_of(altered) == read_field_by_field(altered)


@pytest.mark.slow
def test_each_byte_of_usual_subtasks_counts_as_it_does_field_by_field() -> None:
    states = (PartitionedState("state", DistributionMode(1), (3, 4)), PartitionedState("", DistributionMode(0), ()))
    subtasks = (
        Subtask(
            index,
            managed_operator=OperatorHandle(states, AbsoluteFile("/a/b", 70)),
            managed_keyed=KeyedHandle(KeyGroupRange(index, index), (5,), RelativeFile(f"a/.b{index}", 9)),
        )
        for index in range(2)
    )
    whole = build_metadata(Metadata(6, 1, (Operator(b"i" * 16, 4, 4, subtasks=tuple(subtasks)),), (), PROPERTIES))
    for at, byte in enumerate(whole):
        for other in {0, 1, 2, 6, 0x2E, 0x2F, 0xFF, byte ^ 0x80, byte + 1 & 0xFF, byte - 1 & 0xFF}:
            altered = whole[:at] + bytes([other]) + whole[at + 1 :]
            assert said_of(altered) == read_field_by_field(altered), (at, other)
        assert said_of(whole[:at]) == read_field_by_field(whole[:at]), at


def start(version: int, operators: int = 1) -> ByteWriter:
    return ByteWriter().i32(MAGIC).i32(version).i64(1).i32(0).i32(operators)


def test_version_2_is_read_and_not_written() -> None:
    writer = start(2).raw(b"i" * 16).i32(2).i32(128).i32(-1).i32(1)
    writer.i32(1).i64(77).i32(0).i32(0).i32(0).i8(7).i32(64).i32(1).i64(99).i8(2).i64(5).utf("file:/s").i8(0)
    metadata = parse_metadata(writer.bytes(), "_metadata")
    handle = KeyedHandle(KeyGroupRange(64, 64), (99,), AbsoluteFile("file:/s", 5))
    assert metadata == Metadata(2, 1, (Operator(b"i" * 16, 2, 128, subtasks=(Subtask(1, managed_keyed=handle),)),))
    with pytest.raises(RefusedError, match="version 2 can be read, but not written"):
        build_metadata(metadata)


def keyed(kind: int, *, raw: bool = False) -> ByteWriter:
    writer = start(4).raw(b"i" * 16).i32(1).i32(4).i8(0).i32(1).i32(0).i32(0).i32(0)
    return (writer.i8(0) if raw else writer).i8(kind).i32(0).i32(4)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("kind", [8, 9, 10, 13, 14])
def test_changelogs_are_refused_with_the_way_to_a_canonical_savepoint(kind: int, raw: bool) -> None:
    with pytest.raises(RefusedError, match=rf"changelog handle \(type {kind}\).*flink savepoint --type canonical"):
        parse_metadata(keyed(kind, raw=raw).bytes(), "_metadata")


@pytest.mark.parametrize("kind", [5, 11])
def test_raw_state_is_never_that_of_rocksdb(kind: int) -> None:
    with pytest.raises(RefusedError, match=rf"\(type {kind}\)"):
        parse_metadata(keyed(kind, raw=True).bytes(), "_metadata")


def test_contradictions_in_segments_are_damage() -> None:
    folders = MergedFolders("/task", "/shared", False)
    good = FileSegment("/shared/one", 7, 9, 1, "id")
    wrong = {
        "where a segment of a merged file begins": replace(good, start=-1),
        "a file's size": replace(good, size=-1),
        "a scope": replace(good, scope=2),
    }
    for expected, segment in wrong.items():
        handle = OperatorHandle((), segment, folders)
        data = build_metadata(one(replace(GOOD, subtasks=(Subtask(0, managed_operator=handle),))))
        with pytest.raises(DamagedError, match=expected):
            parse_metadata(data, "_metadata")
    data = build_metadata(one(replace(GOOD, subtasks=(Subtask(0, managed_operator=OperatorHandle((), FILE)),))))
    merged = data.replace(b"\0\0\0\1\4", b"\0\0\0\1\x11").replace(b"\6\0\1f", b"\0\0\0\0\0\6\0\1f")
    with pytest.raises(DamagedError, match="operator state in a merged file, found RelativeFile"):
        parse_metadata(merged, "_metadata")


def test_handles_of_no_state_are_left_out() -> None:
    empty = OperatorHandle((), EmptySegment(), MergedFolders("/task", "/shared", True))
    full = OperatorHandle((), FileSegment("/task/one", 7, 9, 0, "id"), MergedFolders("/task", "/shared", False))
    with_both = one(replace(GOOD, subtasks=(Subtask(0, managed_operator=empty, raw_operator=full),)))
    with_one = one(replace(GOOD, subtasks=(Subtask(0, raw_operator=full),)))
    assert without_empty_handles(with_both) == with_one


def one(operator: Operator) -> Metadata:
    return Metadata(6, 1, (operator,), properties=PROPERTIES)


GOOD = Operator(b"i" * 16, 2, 4, subtasks=(Subtask(0),))
FILE = RelativeFile("f", 9)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (one(replace(GOOD, parallelism=0)), "1 <= parallelism <= max parallelism"),
        (one(replace(GOOD, parallelism=5)), "1 <= parallelism <= max parallelism"),
        (one(replace(GOOD, max_parallelism=32769)), "1 <= parallelism <= max parallelism"),
        (one(replace(GOOD, subtasks=(Subtask(2),))), "a subtask below 2"),
        (one(replace(GOOD, subtasks=(Subtask(0), Subtask(0)))), "each subtask once"),
        (one(replace(GOOD, subtasks=tuple(map(Subtask, range(3))))), "0 to 2 subtasks"),
        (
            one(replace(GOOD, subtasks=(Subtask(0, managed_keyed=KeyedHandle(KeyGroupRange(2, 4), (0,) * 3, FILE)),))),
            "a non-empty range of key groups below 4",
        ),
        (
            one(
                replace(
                    GOOD,
                    subtasks=(
                        Subtask(0, managed_keyed=KeyedHandle(KeyGroupRange(0, 0), (0,), RelativeFile("../f", 1))),
                    ),
                )
            ),
            "a path inside the savepoint's folder",
        ),
        (replace(one(GOOD), checkpoint_id=-1), "a checkpoint id >= 0"),
        (replace(one(GOOD), properties=b"PK"), "Java-serialized properties"),
        (replace(one(GOOD), version=3, properties=b"x"), "the end of _metadata"),
    ],
)
def test_contradictions_are_damage(metadata: Metadata, expected: str) -> None:
    with pytest.raises(DamagedError) as caught:
        parse_metadata(build_metadata(metadata), "_metadata")
    assert expected in caught.value.expected
    assert caught.value.offset is not None


def test_an_operator_twice_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"69696969.* is described more than once"):
        parse_metadata(build_metadata(Metadata(6, 1, (GOOD, GOOD), properties=PROPERTIES)), "_metadata")


def test_an_unaligned_checkpoint_is_refused() -> None:
    data = build_metadata(one(GOOD))
    channels = len(data) - len(PROPERTIES) - 8
    for at in (channels, channels + 4):
        with pytest.raises(RefusedError, match=r"channel state, so this is an unaligned checkpoint"):
            parse_metadata(data[: at + 3] + b"\1" + data[at + 4 :], "_metadata")


def test_a_canonical_savepoint_that_is_made_of_a_snapshot_says_that_it_is_one() -> None:
    """Also where no state is in native files: a full checkpoint has canonical ones, operator state always has."""
    checkpoint = parse_metadata((GOLDEN[0].parents[1] / "checkpoint-2.3-rocksdb/_metadata").read_bytes(), "").properties
    stopped = CANONICAL_SAVEPOINT.replace(b"t\x00\tSavepoint", b"t\x00\x11Suspend Savepoint")
    for of_source, expected in (
        (checkpoint, CANONICAL_SAVEPOINT),
        (NATIVE_SAVEPOINT, CANONICAL_SAVEPOINT),
        (stopped, stopped),
        (b"", b""),
    ):
        assert canonical_properties(Metadata(4, 1, (), properties=of_source)) == expected
