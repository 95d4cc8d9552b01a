"""Operator state and raw state of two operators, held against each other element by element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.digests import digest_of, new_hasher
from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.compression import STREAM_START, Compression, new_stream
from flinkstate.keyed.header import VALUE_SERIALIZER, BackendKind, StateMeta
from flinkstate.metadata.bytes_read import WHOLE
from flinkstate.metadata.metadata import (
    KeyedHandle,
    Operator,
    OperatorHandle,
    PartitionedState,
    RelativeFile,
    Subtask,
)
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.serializers.built_snapshots import simple_snapshot
from flinkstate.serializers.types import KryoType, Scalar
from flinkstate.writing.operator_file import OperatorHeader, build_operator_header, located
from stateferry.proof import carried_check
from stateferry.proof.carried_check import CarriedResult, CarriedTask, _digest, _Elements, _Rewritten, has_carried_state
from stateferry.proof.keyed_result import Side

SPLIT, UNION, BROADCAST = DistributionMode.SPLIT_DISTRIBUTE, DistributionMode.UNION, DistributionMode.BROADCAST


@dataclass(frozen=True)
class Content:
    """What a subtask has: elements by state with mode, types of described states, raw state, offsets of its parts."""

    states: Mapping[str, tuple[DistributionMode, Sequence[bytes]]] = field(default_factory=dict)
    types: Mapping[str, Scalar] = field(default_factory=dict)
    raw: bytes | None = None
    raw_keyed: bytes | None = None
    offsets: tuple[int, ...] = (0,)
    # States in the list of broadcast state, though their mode is another one, or the reverse.
    swapped: frozenset[str] = frozenset()


def meta(name: str, type_: Scalar) -> StateMeta:
    return StateMeta(name, BackendKind.OPERATOR, (), ((VALUE_SERIALIZER, simple_snapshot(type_)),))


def written(folder: Path, subtask: int, content: Content) -> Subtask:
    made = Subtask(subtask)

    def stored(name: str, data: bytes) -> RelativeFile:
        (folder / f"{name}-{subtask}").write_bytes(data)
        return RelativeFile(f"{name}-{subtask}", len(data))

    if content.states or content.types:
        types = {**dict.fromkeys(content.states, Scalar.LONG), **content.types}
        broadcast = {name for name, (mode, _) in content.states.items() if mode is BROADCAST} ^ content.swapped
        lists, others = (
            [meta(n, t) for n, t in types.items() if (n in broadcast) is is_one] for is_one in (False, True)
        )
        data = build_operator_header(OperatorHeader(False, tuple(lists), tuple(others)))
        states = []
        for name, (mode, elements) in content.states.items():
            offsets = []
            for element in elements:
                offsets.append(len(data))
                data += element
            states.append(PartitionedState(name, mode, tuple(offsets)))
        made = replace(made, managed_operator=OperatorHandle(tuple(states), stored("managed", data)))
    if content.raw is not None:
        parts = (PartitionedState("raw", SPLIT, content.offsets),)
        made = replace(made, raw_operator=OperatorHandle(parts, stored("raw", content.raw)))
    if content.raw_keyed is not None:
        handle = KeyedHandle(KeyGroupRange(0, 1), content.offsets, stored("raw-keyed", content.raw_keyed))
        made = replace(made, raw_keyed=handle)
    return made


def operator(folder: Path, *contents: Content) -> Operator:
    folder.mkdir(exist_ok=True)
    subtasks = tuple(written(folder, number, content) for number, content in enumerate(contents))
    return Operator(b"0123456789abcdef", len(contents), 128, subtasks=subtasks)


def compared(tmp_path: Path, old: Sequence[Content], new: Sequence[Content]) -> CarriedResult:
    one, other = operator(tmp_path / "old", *old), operator(tmp_path / "new", *new)
    return CarriedTask(Location.of(str(tmp_path / "old")), one, Location.of(str(tmp_path / "new")), other).do()


def of(mode: DistributionMode, *elements: bytes, **settings: Any) -> Content:
    return Content({"s": (mode, elements)}, **settings)


A, B, C, D = b"element a", b"element b", b"c", b"ddd"


@pytest.mark.parametrize(
    ("old", "new", "differences"),
    [
        ([of(SPLIT, A, B)], [of(SPLIT, A, B)], []),
        ([of(SPLIT, A, B), Content()], [of(SPLIT, A, B), Content()], []),
        ([of(SPLIT, A, B)], [of(SPLIT, B, A)], ["subtask 0: elements in another order from element 0 on"]),
        ([of(SPLIT, A, B, C)], [of(SPLIT, A, C, B)], ["subtask 0: elements in another order from element 1 on"]),
        ([of(SPLIT, A, B, C)], [of(SPLIT, D, B, D)], ["subtask 0: other bytes in element 0, 2 of 3"]),
        ([of(SPLIT, A)], [of(SPLIT, A, A)], ["subtask 0: expected 1 elements, found 2"]),
        ([of(SPLIT, A), Content()], [Content(), of(SPLIT, A)],
         ["subtask 0: expected 1 elements, found 0", "subtask 1: expected 0 elements, found 1",
          "subtask 1: described differently"]),
        ([of(SPLIT, A)], [of(UNION, A)],
         [f"subtask 0: expected mode {SPLIT}, found {UNION}"]),
        ([of(SPLIT, A)], [of(SPLIT, A, types={"s": Scalar.STRING})], ["subtask 0: described differently"]),
        ([of(SPLIT, A)], [of(SPLIT, A, swapped=frozenset({"s"}))], ["subtask 0: described differently"]),
        ([of(SPLIT, A)], [of(SPLIT, A, types={"t": Scalar.LONG})], ["subtask 0: described differently"]),
        ([Content(raw=b"raw")], [Content(raw=b"raw")], []),
        ([Content(raw=b"raw")], [Content(raw=b"rax")], ["subtask 0: other bytes than in the source"]),
        ([Content(raw=b"raw")], [Content(raw=b"raw", offsets=(1,))], ["subtask 0: other bytes than in the source"]),
        ([Content(raw=b"raw")], [Content()], ["subtask 0: other bytes than in the source"]),
        ([Content(raw_keyed=b"raw", offsets=(0, 1))], [Content(raw_keyed=b"raw", offsets=(0, 1))], []),
        ([Content(raw_keyed=b"raw", offsets=(0, 1))], [Content(raw_keyed=b"raw", offsets=(0, 2))],
         ["subtask 0: other bytes than in the source"]),
        # Distributed anew.
        ([of(SPLIT, A, B), of(SPLIT, C)], [of(SPLIT, A, B, C)], []),
        ([of(SPLIT, A, B), of(SPLIT, C)], [of(SPLIT, C, A, B)],
         ["subtask 0: elements in another order from element 0 on"]),
        ([of(SPLIT, A, B)], [of(SPLIT, A), of(SPLIT, B)], []),
        ([of(SPLIT, A, B)], [of(SPLIT, B), of(SPLIT, A)],
         ["subtask 0: other bytes in element 0 of 1", "subtask 1: other bytes in element 0 of 1"]),
        ([of(UNION, A), of(UNION, B)], [of(UNION, A, B)], []),
        ([of(UNION, A, B)], [of(UNION, A), of(UNION, B)], []),
        ([of(UNION, A, B)], [of(UNION, B), of(UNION, A)],
         ["all subtasks: elements in another order from element 0 on"]),
        ([of(UNION, A, B)], [of(UNION, A), Content()], ["all subtasks: expected 2 elements, found 1"]),
        ([of(UNION, A), Content()], [of(UNION, A, types={"s": Scalar.STRING})],
         ["all subtasks: described differently", "subtask 0: described differently"]),
        ([of(UNION, A), of(UNION, B, types={"s": Scalar.STRING})], [of(UNION, A, B)],
         ["all subtasks: described differently", "subtask 0: described differently"]),
        ([of(BROADCAST, A)], [of(BROADCAST, A), of(BROADCAST, A)], []),
        ([of(BROADCAST, A)], [of(BROADCAST, A), of(BROADCAST, B)], ["subtask 1: other bytes in element 0 of 1"]),
        ([of(BROADCAST, A), of(BROADCAST, A)], [of(BROADCAST, A)], []),
        ([Content({"s": (SPLIT, [A, B]), "u": (UNION, [C])}), Content({"u": (UNION, [D])})],
         [Content({"s": (SPLIT, [A, B]), "u": (UNION, [C, D])})], []),
    ],
)  # fmt: skip
def test_what_differs(tmp_path: Path, old: list[Content], new: list[Content], differences: list[str]) -> None:
    found = compared(tmp_path, old, new)
    assert found.damage is None
    assert (found.operator, found.side) == (b"0123456789abcdef".hex(), Side.STAGED)
    assert [text for _, text in found.differences] == differences
    kinds = {"raw operator state", "raw keyed state", "s", "t"}
    assert {name for name, _ in found.differences} <= kinds


def test_at_most_ten_elements_are_named(tmp_path: Path) -> None:
    found = compared(tmp_path, [of(SPLIT, *[b"a"] * 12)], [of(SPLIT, *[b"b"] * 12)])
    assert found.differences == [("s", "subtask 0: other bytes in element 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 of 12")]


def test_elements_of_a_state_that_is_not_described(tmp_path: Path) -> None:
    """Flink reads no state that the header doesn't have."""
    old = operator(tmp_path / "old", of(SPLIT, A))
    new = operator(tmp_path / "new", of(SPLIT, A))
    (subtask,) = new.subtasks
    assert subtask.managed_operator is not None
    data = (tmp_path / "new" / "managed-0").read_bytes()
    header = build_operator_header(OperatorHeader(False, (), ()))
    elements = data[-len(A) :]
    (tmp_path / "new" / "managed-0").write_bytes(header + elements)
    handle = OperatorHandle(
        (PartitionedState("s", SPLIT, (len(header),)),), RelativeFile("managed-0", len(header + elements))
    )
    bare = replace(new, subtasks=(replace(subtask, managed_operator=handle),))
    task = CarriedTask(Location.of(str(tmp_path / "old")), old, Location.of(str(tmp_path / "new")), bare)
    assert task.do().differences == [("s", "subtask 0: described differently")]
    (tmp_path / "new" / "managed-0").write_bytes(header)
    nothing = OperatorHandle((PartitionedState("s", SPLIT, ()),), RelativeFile("managed-0", len(header)))
    none = replace(new, subtasks=(replace(subtask, managed_operator=nothing),))
    found = replace(task, new=none).do()
    assert found.differences == [("s", "subtask 0: expected 1 elements, found 0")]


def test_the_bytes_of_the_source_are_counted_and_digested(tmp_path: Path) -> None:
    content = Content({"s": (SPLIT, [A, B])}, raw=b"raw", raw_keyed=b"keyed")
    old = operator(tmp_path / "old", content, Content(raw=b"more"))
    new = operator(tmp_path / "new", content, Content(raw=b"more"))
    task = CarriedTask(Location.of(str(tmp_path / "old")), old, Location.of(str(tmp_path / "new")), new)
    names = ("managed-0", "raw-0", "raw-keyed-0", "raw-1")
    assert task.size == task.do().size == sum((tmp_path / "old" / name).stat().st_size for name in names)
    digests = {}
    for name in names:
        hasher = new_hasher()
        hasher.update((tmp_path / "old" / name).read_bytes())
        digests[name] = {WHOLE: digest_of(hasher)}
    assert task.do().read.files == digests


@pytest.mark.parametrize("has", ["states", "raw", "raw_keyed"])
def test_which_operators_have_such_state(tmp_path: Path, has: str) -> None:
    content = {"states": of(SPLIT, A), "raw": Content(raw=b"r"), "raw_keyed": Content(raw_keyed=b"k")}[has]
    assert has_carried_state(operator(tmp_path / "one", Content(), content))
    assert not has_carried_state(operator(tmp_path / "other", Content(), Content()))


@pytest.mark.parametrize("side", [Side.SOURCE, Side.STAGED])
def test_what_cannot_be_read_is_named_with_its_side(tmp_path: Path, side: Side) -> None:
    old, new = operator(tmp_path / "old", of(SPLIT, A)), operator(tmp_path / "new", of(SPLIT, A))
    (tmp_path / ("old" if side is Side.SOURCE else "new") / "managed-0").unlink()
    task = CarriedTask(Location.of(str(tmp_path / "old")), old, Location.of(str(tmp_path / "new")), new)
    found = task.do()
    assert found.side is side
    assert isinstance(found.damage, DamagedError)
    assert found.differences == []


def with_offsets(folder: Path, offsets: tuple[int, ...]) -> CarriedResult:
    old, new = operator(folder / "old", of(SPLIT, A)), operator(folder / "new", of(SPLIT, A))
    (subtask,) = new.subtasks
    assert subtask.managed_operator is not None
    handle = replace(subtask.managed_operator, states=(PartitionedState("s", SPLIT, offsets),))
    changed = replace(new, subtasks=(replace(subtask, managed_operator=handle),))
    return CarriedTask(Location.of(str(folder / "old")), old, Location.of(str(folder / "new")), changed).do()


def test_elements_begin_inside_the_file(tmp_path: Path) -> None:
    size = len(build_operator_header(OperatorHeader(False, (meta("s", Scalar.LONG),), ()))) + len(A)
    for offsets in ((0,), (size,), (size - len(A), size)):
        damage = with_offsets(tmp_path, offsets).damage
        assert isinstance(damage, DamagedError)
        assert (damage.expected, damage.found) == (
            f"offsets of elements inside the file's {size} bytes",
            f"{list(offsets)}",
        )
        assert damage.file is not None
        assert damage.file.endswith("managed-0")
    many = with_offsets(tmp_path, tuple(range(size, size + 20))).damage
    assert isinstance(many, DamagedError)
    assert many.found == f"{list(range(size, size + 10))}"
    assert with_offsets(tmp_path, (size - len(A), size - 1)).damage is None
    # The header says what is wrong with one of a single byte.
    short = with_offsets(tmp_path, (1,)).damage
    assert isinstance(short, DamagedError)
    assert "offsets" not in short.expected


def test_a_header_has_no_more_than_64_mib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(build_operator_header(OperatorHeader(False, (meta("s", Scalar.LONG),), ())))
    monkeypatch.setattr(carried_check, "_LARGEST_HEADER", size)
    assert compared(tmp_path, [of(SPLIT, A)], [of(SPLIT, A)]).damage is None
    monkeypatch.setattr(carried_check, "_LARGEST_HEADER", size - 1)
    assert compared(tmp_path, [of(SPLIT, A)], [of(SPLIT, A)]).damage is not None


class Short:
    """A file that ends before it should."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.asked = data, 0, list[int]()

    def seek(self, at: int) -> None:
        self.at = at

    def read(self, size: int) -> bytes:
        self.asked.append(size)
        found = self.data[self.at : self.at + size]
        self.at += len(found)
        return found


def test_bytes_are_digested_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_check, "_READ", 4)
    hasher, file = new_hasher(), Short(b"0123456789")
    digest = _digest(file, "f", 1, 10, hasher)
    assert file.asked == [4, 4, 1]
    whole = new_hasher()
    whole.update(b"123456789")
    assert digest_of(hasher) == digest_of(whole)
    assert digest == _digest(Short(b"x123456789"), "f", 1, 10, new_hasher())
    assert digest != _digest(Short(b"0123456788"), "f", 1, 10, new_hasher())
    with pytest.raises(DamagedError) as caught:
        _digest(Short(b"0123456789"), "f", 1, 12, new_hasher())
    error = caught.value
    assert (error.expected, error.found, error.file, error.offset) == ("2 more bytes", "the end", "f", 10)


def test_an_element_that_is_rewritten_is_read_where_it_begins() -> None:
    # The UUID 00000000-0000-0001-0000-000000000002 as Kryo 2 writes it.
    element = b"\x54\x01\x02\x04"
    of_state = _Rewritten(KryoType("java.util.UUID"))
    rewritten = _Elements({"o": of_state}, is_result=False)
    uuid = rewritten.make_of("o", "f", is_compressed=False)
    alone = _digest(Short(element), "f", 0, len(element), new_hasher(), uuid)
    hasher, whole = new_hasher(), new_hasher()
    assert _digest(Short(b"abcde" + element), "f", 5, 5 + len(element), hasher, uuid) == alone
    # The digest of the file is that of its own bytes.
    whole.update(element)
    assert digest_of(hasher) == digest_of(whole)
    assert rewritten.make_of("other", "f", is_compressed=False) is None
    # Plain code reads both of each.
    assert (of_state.plain.read, of_state.plain.differences, of_state.plain.refusals) == (2, [], [])


def _chunks(content: bytes, stored: bool) -> bytes:
    found: list[bytes] = []
    stream = new_stream(Compression.STORED if stored else Compression.SNAPPY, lambda part: found.append(bytes(part)))
    stream.add(content)
    stream.end()
    return b"".join(found)[len(STREAM_START) :]


def test_compressed_elements_are_compared_by_their_content() -> None:
    element = b"\x54\x01\x02\x04"
    types = {"o": _Rewritten(KryoType("java.util.UUID"))}
    source, result = (_Elements(types, is_result=one).make_of("o", "f", is_compressed=True) for one in (False, True))
    assert source is not None
    assert result is not None
    five = source(_chunks(element, stored=False), 0)
    assert five == b"\x54\x01\1" + bytes(7) + b"\2" + bytes(7)
    assert {result(_chunks(five, stored), 0) for stored in (False, True)} == {five}
    # Bytes of the result that aren't compressed are compared as they are.
    assert _Elements(types, is_result=True).make_of("o", "f", is_compressed=False) is None
    with pytest.raises(RefusedError, match="in an element of operator state: f, offset 90"):
        source(_chunks(element[:-1], stored=False), 90)
    with pytest.raises(DamagedError, match="a snappy chunk"):
        result(_chunks(five, stored=False)[:-1], 90)


@pytest.mark.parametrize(
    ("is_compressed", "found", "offset"), [(False, "b", 97), (True, "b (byte 7 of the uncompressed element)", 90)]
)
def test_damage_in_an_element_has_its_place(is_compressed: bool, found: str, offset: int) -> None:
    with pytest.raises(DamagedError) as caught, located("f", 90, is_compressed=is_compressed):
        raise DamagedError("a", "b", offset=7)
    assert (caught.value.found, caught.value.file, caught.value.offset) == (found, "f", offset)
