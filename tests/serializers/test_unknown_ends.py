"""Where unknown serializers' descriptions end: held against a reader that tries every end, and what it takes."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.keyed.header import KeyedHeader, StateMeta, parse_header
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.writing.operator_file import parse_operator_header
from tests.serializers.test_snapshots import BASE, LONG, RUNTIME, STRING, composite, i32, pojo, snapshot, utf

MB = 1 << 20
OWN = "com.acme.OwnSnapshot"
I16 = struct.Struct(">h")


def own(body: bytes, name: str = OWN) -> bytes:
    return snapshot(name, 1, body)


def map_of(key: bytes, value: bytes) -> bytes:
    return composite(BASE + "MapSerializerSnapshot", 1, b"", key, value)


def list_of(element: bytes) -> bytes:
    return composite(BASE + "ListSerializerSnapshot", 1, b"", element)


def tuple_of(*fields: bytes) -> bytes:
    return composite(RUNTIME + "TupleSerializerSnapshot", 2, utf("T"), *fields)


def state(name: str, *serializers: bytes, kind: int = 0) -> bytes:
    options = i32(1) + utf("KEYED_STATE_TYPE") + utf("VALUE") if kind == 0 else i32(0)
    keys = ("VALUE_SERIALIZER", "NAMESPACE_SERIALIZER", "KEY_SERIALIZER")
    parts = b"".join(utf(key) + i32(2) + part for key, part in zip(keys, serializers, strict=False))
    return utf(name) + i32(kind) + options + i32(len(serializers)) + parts


def states(*every: bytes) -> bytes:
    return I16.pack(len(every)) + b"".join(every)


def keyed_header(key: bytes, *every: bytes) -> bytes:
    return i32(6) + b"\0" + i32(2) + key + states(*every)


def parsed(data: bytes) -> KeyedHeader:
    return parse_header(data + b"\0\0the first key group", "file", end=len(data))[0]


# What one header was read as: each state's name, and each serializer's bytes with those of all nested in it.
Reading = tuple[tuple[bytes, ...], ...]


def reading_of(header: KeyedHeader) -> Reading:
    return (flat(header.key_serializer), *serializers_of(header.states))


def serializers_of(every: tuple[StateMeta, ...]) -> Iterator[tuple[bytes, ...]]:
    for meta in every:
        yield (marked(meta.name),)
        for _, part in meta.serializers:
            yield flat(part)


def marked(name: str) -> bytes:
    """A state's name among the serializers of a reading."""
    return b"state " + name.encode()


def flat(part: SerializerSnapshot) -> tuple[bytes, ...]:
    return (part.raw, *(raw for inner in part.nested for raw in flat(inner)))


class UnreadableError(Exception):
    """A reading that comes to nothing."""


LEAVES = {BASE + "StringSerializer$StringSerializerSnapshot", BASE + "LongSerializer$LongSerializerSnapshot"}
# The newest version of the outer body, and how many are nested (None: any number, behind a class name).
COMPOSITES: dict[str, tuple[int, int | None]] = {
    BASE + "MapSerializerSnapshot": (1, 2),
    BASE + "ListSerializerSnapshot": (1, 1),
    RUNTIME + "TupleSerializerSnapshot": (2, None),
}


_MOST_STEPS = 1_000_000


class Naive:
    """Tries every end of every unknown body, with nothing remembered and nothing looked for ahead."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.limit = len(data)
        self.steps = 0

    def take(self, position: int, count: int) -> bytes:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            # Several unknown bodies in each other take this oracle minutes.
            reject()
        if not 0 <= count <= self.limit - position:
            raise UnreadableError
        return self.data[position : position + count]

    def number(self, position: int) -> int:
        return int.from_bytes(self.take(position, 4), "big", signed=True)

    def text(self, position: int) -> tuple[str, int]:
        length = int.from_bytes(self.take(position, 2), "big")
        found = self.take(position + 2, length)
        if not found.isascii() or 0 in found:
            raise UnreadableError
        return found.decode(), position + 2 + length

    def keyed(self) -> Iterator[Reading]:
        for key, position, unknown in self.snapshot(9, 64):
            yield from ((key, *rest) for rest in self.a_list(position, unknown, 0))

    def operator(self) -> Iterator[Reading]:
        yield from self.a_list(5, False, 1)

    def a_list(self, position: int, unknown: bool, lists: int) -> Iterator[Reading]:
        try:
            count = int.from_bytes(self.take(position, 2), "big", signed=True)
        except UnreadableError:
            return
        if count >= 0:
            yield from self.states(position + 2, count, unknown, lists)

    def states(self, position: int, count: int, unknown: bool, lists: int) -> Iterator[Reading]:
        if count == 0:
            if lists:
                yield from self.a_list(position, unknown, lists - 1)
            elif position == self.limit:
                yield ()
            return
        try:
            name, at = self.text(position)
            kind, options = self.number(at), self.number(at + 4)
            if not 0 <= kind <= 4 or options < 0 or (unknown and options > 15):
                return
            at += 8
            for _ in range(options):
                option, at = self.text(at)
                if unknown and not option:
                    return
                _, at = self.text(at)
            serializers = self.number(at)
        except UnreadableError:
            return
        if serializers < 0 or (unknown and not 1 <= serializers <= 15):
            return
        for parts, after, now_unknown in self.serializers(at + 4, serializers, unknown):
            for rest in self.states(after, count - 1, now_unknown, lists):
                yield ((marked(name),), *parts, *rest)

    def serializers(self, position: int, count: int, unknown: bool) -> Iterator[tuple[Reading, int, bool]]:
        if count == 0:
            yield (), position, unknown
            return
        try:
            key, at = self.text(position)
            if self.number(at) != 2 or (unknown and not key):
                return
        except UnreadableError:
            return
        for part, after, now_unknown in self.snapshot(at + 4, 64):
            for parts, end, last in self.serializers(after, count - 1, unknown or now_unknown):
                yield (part, *parts), end, last

    def snapshot(self, position: int, levels: int) -> Iterator[tuple[tuple[bytes, ...], int, bool]]:
        try:
            name, at = self.text(position)
            version = self.number(at)
        except UnreadableError:
            return
        if not name or not levels or any(not "!" <= character <= "~" for character in name):
            return
        start, at = position, at + 4
        if name in LEAVES:
            try:
                end = self.text(at)[1] if version == 2 else at if version == 3 else None
            except UnreadableError:
                return
            if end is not None:
                yield (self.data[start:end],), end, False
        elif name in COMPOSITES:
            for parts, end, unknown in self.composite(name, version, at, levels):
                yield (self.data[start:end], *parts), end, unknown
        elif 0 <= version < 1 << 28:
            for end in range(at, self.limit + 1):
                yield (self.data[start:end],), end, True

    def composite(self, name: str, version: int, at: int, levels: int) -> Iterator[tuple[tuple[bytes, ...], int, bool]]:
        most_outer, arity = COMPOSITES[name]
        try:
            outer = version
            if version == 3:
                if self.number(at) != 911108:
                    return
                outer, at = self.number(at + 4), at + 8
            if version > 3 or not 1 <= outer <= most_outer:
                return
            if arity is None:
                _, at = self.text(at)
            if (self.number(at), self.number(at + 4)) != (1333245, 1):
                return
            count = self.number(at + 8)
        except UnreadableError:
            return
        if arity in (None, count):
            yield from self.parts(at + 12, count, levels - 1)

    def parts(self, position: int, count: int, levels: int) -> Iterator[tuple[tuple[bytes, ...], int, bool]]:
        if count <= 0:
            if count == 0:
                yield (), position, False
            return
        for one, at, unknown in self.snapshot(position, levels):
            for others, end, further in self.parts(at, count - 1, levels):
                yield (*one, *others), end, unknown or further


def answer(read: Callable[[], Reading]) -> Reading | type[StateferryError]:
    try:
        return read()
    except StateferryError as error:
        return type(error)


def expected(readings: Iterator[Reading]) -> Reading | type[StateferryError]:
    """The only reading, or what has to be raised: also where a state is described twice."""
    first = next(readings, None)
    if first is None:
        return DamagedError
    if next(readings, None) is not None:
        return RefusedError
    names = [part for part in first if part[0].startswith(b"state ")]
    return first if len(set(names)) == len(names) else DamagedError


HEADS = (map_of(b"", b""), list_of(b""), tuple_of(b"", b""))
FRAGMENTS = (
    b"",
    b"\0",
    b"\0\3",
    bytes(12),
    b"\xff\xfe",
    i32(0, 0, 1),
    i32(1),
    utf("A"),
    utf("A") + i32(7),
    utf("VALUE_SERIALIZER") + i32(2),
    LONG,
    state("fake", LONG),
    state("f", own(b"")),
    states(state("f", LONG, LONG)),
    *HEADS,
)
BODIES = st.lists(st.sampled_from(FRAGMENTS), max_size=2).map(b"".join)
OWNS = st.builds(own, BODIES, st.sampled_from([OWN, "A"]))
SNAPSHOTS = st.recursive(
    st.sampled_from([LONG, STRING]) | OWNS,
    lambda parts: st.builds(list_of, parts) | st.builds(map_of, parts, parts) | st.builds(tuple_of, parts, parts),
    max_leaves=3,
)
STATES = st.builds(state, st.sampled_from(["a", "", "two words"]), SNAPSHOTS, SNAPSHOTS) | st.builds(
    state, st.just("timers"), SNAPSHOTS, kind=st.just(3)
)
CHANGES = st.none() | st.tuples(st.integers(0, 10**6), st.sampled_from([b"", b"\0", b"\1", b"\xff", LONG]))


def changed(data: bytes, start: int, change: tuple[int, bytes] | None) -> bytes:
    """With a byte behind the start of the header taken out, and something in its place."""
    if change is None:
        return data
    position = start + change[0] % (len(data) - start)
    return data[:position] + change[1] + data[position + 1 :]


@settings(deadline=None)
@given(SNAPSHOTS, st.lists(STATES, max_size=3), CHANGES)
def test_every_end_tried_gives_the_same_keyed_header(
    key: bytes, every: list[bytes], change: tuple[int, bytes] | None
) -> None:
    data = changed(keyed_header(key, *every), 9, change)
    assert answer(lambda: reading_of(parsed(data))) == expected(Naive(data).keyed())


@settings(deadline=None)
@given(st.lists(STATES, max_size=2), st.lists(STATES, max_size=2), CHANGES)
def test_every_end_tried_gives_the_same_operator_header(
    lists: list[bytes], broadcasts: list[bytes], change: tuple[int, bytes] | None
) -> None:
    data = changed(i32(6) + b"\0" + states(*lists) + states(*broadcasts), 5, change)

    def read() -> Reading:
        header = parse_operator_header(data, "file")
        return (*serializers_of(header.lists), *serializers_of(header.broadcasts))

    assert answer(read) == expected(Naive(data).operator())


MANY_NAMES = utf("name") + i32(0, 0, 1)
BEGINNING = (
    utf("s") + i32(0, 1) + utf("KEYED_STATE_TYPE") + utf("VALUE") + i32(2) + utf("NAMESPACE_SERIALIZER") + i32(2)
)
FAKE = state("fake", own(b"body"), STRING)


def plain(*bodies: bytes) -> bytes:
    return keyed_header(STRING, *(state(f"own{number}", own(body), STRING) for number, body in enumerate(bodies)))


def nested(levels: int, body: bytes, around: Callable[[bytes], bytes]) -> bytes:
    raw = own(body)
    for _ in range(levels):
        raw = around(raw)
    return raw


def pojo_around(raw: bytes) -> bytes:
    return pojo("A", [("a", map_of(own(b"own"), raw))], [], [])


WIDE_POJO = pojo("A", [(f"f{number}", LONG) for number in range(99)], [], [])
# What comes of a header of so many bytes: how many states it has, or that it is refused.
LARGE: dict[str, tuple[Callable[[int], bytes], bool]] = {
    "zeros": (lambda size: plain(bytes(size), b""), True),
    "zeros in twenty": (lambda size: plain(*[bytes(size // 20)] * 20), True),
    "a key of zeros": (lambda size: keyed_header(own(bytes(size)), state("a", STRING, STRING)), True),
    "numbers that a state's head has": (lambda size: plain(i32(0, 1) * (size // 8), b""), True),
    "noise": (lambda size: plain(random.Random(size).randbytes(size), b""), True),
    "names": (lambda size: plain(MANY_NAMES * (size // len(MANY_NAMES)), b""), True),
    "beginnings of states": (
        lambda size: plain(*[BEGINNING * (size // 200 // len(BEGINNING))] * 200),
        False,
    ),
    "text": (lambda size: plain(b"~" * size, b""), True),
    "control characters": (lambda size: plain(b"\1\2" * (size // 2), b""), True),
    "snapshots": (lambda size: plain((utf("A") + i32(7)) * (size // 7), b""), True),
    "many states": (lambda size: plain(*[bytes(size // 1000)] * 1000), True),
    "many maps": (
        lambda size: keyed_header(
            STRING, *(state(f"s{number}", map_of(own(bytes(size // 500)), own(b"")), STRING) for number in range(500))
        ),
        True,
    ),
    "known ones behind it": (
        lambda size: keyed_header(
            STRING,
            state("own", own(b"")),
            *(state(f"s{number}", tuple_of(*[LONG] * 99), STRING) for number in range(size // 9000)),
        ),
        True,
    ),
    "known ones in one state with it": (
        lambda size: keyed_header(
            STRING,
            *(state(f"s{number}", own(b"body"), STRING, tuple_of(*[LONG] * 99)) for number in range(size // 9300)),
        ),
        True,
    ),
    "small states behind it": (
        lambda size: keyed_header(
            STRING,
            state("own", own(b"")),
            *(state(f"s{number}", LONG, STRING, STRING) for number in range(min(size // 500, 32000))),
        ),
        True,
    ),
    "POJOs behind it": (
        lambda size: keyed_header(
            STRING,
            state("own", own(b"")),
            *(state(f"s{number}", WIDE_POJO, STRING) for number in range(size // 12000)),
        ),
        True,
    ),
    "deep in lists": (lambda size: keyed_header(STRING, state("a", nested(30, bytes(size // 30), list_of))), True),
    "snapshots in a map": (
        lambda size: keyed_header(STRING, state("a", map_of(own((utf("A") + i32(7)) * (size // 7)), LONG), STRING)),
        False,
    ),
    "names in a map": (
        lambda size: keyed_header(STRING, state("a", map_of(own(MANY_NAMES * (size // 14)), LONG), STRING)),
        False,
    ),
    "whole states": (lambda size: plain(FAKE * (size // len(FAKE)), b""), False),
    "whole states in many": (lambda size: plain(*[FAKE * (size // len(FAKE) // 300)] * 300), False),
    "a tuple of unknown ones": (
        lambda size: keyed_header(STRING, state("a", tuple_of(*[own(b"")] * (size // 40)))),
        False,
    ),
    "tuples of unknown ones": (
        lambda size: keyed_header(STRING, *[state("a", tuple_of(*[own(bytes(9))] * 25), STRING)] * (size // 1000)),
        False,
    ),
    "deep in POJOs": (
        lambda size: keyed_header(
            STRING, state("own", own(b"")), state("a", nested(30, bytes(size // 30), pojo_around))
        ),
        False,
    ),
}


def peak_memory() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) << 10


def assert_within_limits(name: str, size: int, seconds: float) -> None:
    """Of processor time, in the best of three; on a machine that is busy with other things, twice as long."""
    make, is_readable = LARGE[name]
    data, took = make(size), []
    for _ in range(3):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak from here on
        before, start = peak_memory(), time.process_time()
        found = answer(lambda: reading_of(parsed(data)))
        took.append(time.process_time() - start)
        assert peak_memory() - before < 200 * MB
        assert (found is not RefusedError) is is_readable
        assert found is not DamagedError
        if took[-1] < seconds:
            return
    assert min(took) < 2 * seconds


@pytest.mark.matrix(most=8)
@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_header_of_a_megabyte_takes_a_second(name: str) -> None:
    assert_within_limits(name, MB, 1)


@pytest.mark.full
@pytest.mark.parametrize("name", LARGE)
def test_a_header_of_16_megabytes_takes_10_seconds(name: str) -> None:
    for size in (2, 4, 8, 16):
        assert_within_limits(name, size * MB, size * 10 / 16)


def test_thousands_of_unknown_states() -> None:
    assert len(parsed(plain(*[b""] * 3000)).states) == 3000


def test_unknown_ones_in_frames_end_with_what_fills_the_frame() -> None:
    raw = pojo("A", [("a", map_of(own(b"own"), LONG)), ("b", own(bytes(9)))], [("A", own(b""))], [])
    for data in (keyed_header(raw), keyed_header(STRING, state("own", own(b"")), state("a", raw, STRING))):
        assert own(b"own") in sum(reading_of(parsed(data)), ())
        assert own(bytes(9)) in sum(reading_of(parsed(data)), ())


def test_a_frame_that_can_be_filled_in_several_ways_is_refused_by_name() -> None:
    raw = pojo("A", [("a", map_of(own(b"own"), list_of(LONG)))], [], [])
    for data in (keyed_header(raw), keyed_header(STRING, state("own", own(b"")), state("a", raw, STRING))):
        with pytest.raises(RefusedError, match=r"file: .* in more than one way.*com\.acme\.OwnSnapshot"):
            parsed(data)


def test_only_the_class_that_is_certainly_there_is_named() -> None:
    """The others are of readings that may be wrong."""
    fields = [own(own(b"", "com.acme.Inner") if number == 0 else b"", f"com.acme.Own{number}") for number in range(9)]
    with pytest.raises(RefusedError, match=r"snapshot of com\.acme\.Own0, and perhaps others behind it, and the file"):
        parsed(keyed_header(tuple_of(*fields)))


def test_damage_behind_an_unknown_description_is_located_at_its_begin() -> None:
    data = plain(b"own body", b"")
    with pytest.raises(DamagedError, match=r"file, offset 192: expected an end of the description of com\.acme\.Own"):
        parse_header(data[:-1] + b"\4", "file", end=len(data))
