"""Bad input: every byte cut off, flipped or made to lie. Each damage is either named, or it is one of those that the
format lets nobody see, and then all that it didn't touch is still read as it was."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flinkstate.errors import DamagedError, RefusedError, StateferryError, UsageError
from flinkstate.hashing.key_groups import assign_to_key_group
from flinkstate.keyed.compression import Compression
from flinkstate.keyed.key_group_file import KeyGroupFile
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import (
    InlineBytes,
    KeyedHandle,
    Metadata,
    Operator,
    OperatorHandle,
    RelativeFile,
    Subtask,
)
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.metadata.streams import open_stream
from flinkstate.metadata.type_numbers import FULL_CHECKPOINT
from flinkstate.reading.entries import Entry, read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.look.survey import survey
from tests.support.rewriting import rewrite
from tests.support.samples import UID, entry_extents, files_of, java_hash, replaced, write_sample

GOLDEN = Path(__file__).parents[1] / "savepoints"
FORMS = (Compression.NONE, Compression.SNAPPY, Compression.STORED)
Contents = Counter[tuple[str, str]]


def contents(savepoint: Savepoint) -> Contents:
    """Every entry of every keyed state; all figures too, so that whatever is read for them is read here."""
    survey(savepoint)
    found: Contents = Counter()
    for operator in savepoint.keyed_operators():
        for state in savepoint.keyed_states(operator):
            for entry in read_entries(savepoint, operator, state):
                found[state.name, repr(entry)] += 1
    return found


def contents_of(folder: Path) -> Contents:
    return contents(Savepoint.open(str(folder)))


def refused_or(read: Callable[[], Any]) -> Any:
    """What is read, or None where the damage is named."""
    try:
        return read()
    except StateferryError:
        return None


# `_metadata`


def in_sight(metadata: Metadata) -> Metadata:
    """Without what stands there once, and means nothing to anything else: another value is as good as the true one."""

    def operator_state(handle: OperatorHandle | None) -> OperatorHandle | None:
        return handle and replace(handle, states=())

    def keyed_state(handle: KeyedHandle | None) -> KeyedHandle | None:
        """Savepoints from before Flink 1.13 have the same layout under another type."""
        return handle and replace(handle, type=7 if handle.type in FULL_CHECKPOINT else handle.type)

    def described(operator: Operator) -> Operator:
        keyed = any(subtask.managed_keyed or subtask.raw_keyed for subtask in operator.subtasks)
        subtasks = tuple(
            replace(
                subtask,
                index=subtask.index if keyed else 0,
                managed_operator=operator_state(handle),
                raw_operator=raw,
                managed_keyed=keyed_state(subtask.managed_keyed),
            )
            for subtask in operator.subtasks
            for handle, raw in [(subtask.managed_operator, operator_state(subtask.raw_operator))]
        )
        return replace(
            operator,
            id=operator.id if operator.uid else b"",
            name=None,
            coordinator=None,
            parallelism=operator.parallelism if keyed else 0,
            max_parallelism=operator.max_parallelism if keyed else 0,
            subtasks=subtasks,
        )

    operators = tuple(described(operator) for operator in metadata.operators)
    return replace(metadata, checkpoint_id=0, master_states=(), properties=b"", operators=operators)


def flips(data: bytes, positions: range, bits: int) -> Iterator[bytes]:
    """So many bits of the bytes there, each flipped for itself."""
    chosen = random.Random(13)
    for position in positions:
        for bit in chosen.sample(range(8), bits):
            yield replaced(data, position, bytes([data[position] ^ 1 << bit]))


WHOLE = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.mark.matrix(most=1)
@pytest.mark.part
@pytest.mark.parametrize("bits", [1, pytest.param(8, marks=WHOLE)])
@pytest.mark.parametrize("version", [4, 5, 6])
def test_every_flipped_byte_of_metadata(tmp_path: Path, version: int, bits: int) -> None:
    truth = contents(write_sample(tmp_path / "s", keys=1, version=version))
    file = tmp_path / "s" / "_metadata"
    data = file.read_bytes()
    true_metadata = parse_metadata(data, "_metadata")
    unseen = 0
    for flipped in flips(data, range(len(data)), bits):
        file.write_bytes(flipped)
        found = refused_or(lambda: contents_of(tmp_path / "s"))
        if found is None:
            continue
        unseen += 1
        metadata = parse_metadata(flipped, "_metadata")
        # Versions 4 and 5 differ in what follows, versions 5 and 6 in nothing that savepoints have.
        assert {metadata.version, version} <= {5, 6} or metadata.version == version
        assert in_sight(replace(metadata, version=version)) == in_sight(true_metadata)
        assert found == truth
    assert unseen < bits * len(data) * 0.4


@pytest.mark.matrix(most=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "case", ["operator-state-2.3-rocksdb", "finished-2.3-rocksdb", "several-operators-2.3-hashmap"]
)
def test_a_flipped_bit_in_the_metadata_of_flink_is_named_or_changes_nothing_seen_twice(case: str) -> None:
    data = (GOLDEN / case / "_metadata").read_bytes()
    true_metadata = in_sight(parse_metadata(data, "_metadata"))
    chosen = random.Random(5)
    for position in chosen.sample(range(len(data)), 200):
        flipped = replaced(data, position, bytes([data[position] ^ 1 << chosen.randrange(8)]))
        metadata = refused_or(partial(parse_metadata, flipped, "_metadata"))
        if metadata is not None and in_sight(metadata) != true_metadata:
            found = refused_or(partial(contents, checked(GOLDEN / case, metadata)))
            assert found is None or found == contents_of(GOLDEN / case)


def checked(folder: Path, metadata: Metadata) -> Savepoint:
    return replace(Savepoint.open(str(folder)), metadata=metadata)


@pytest.mark.part
@pytest.mark.parametrize("case", ["legacy-2.3-rocksdb", "operator-state-2.3-rocksdb", "legacy-ttl-inlined-2.3-hashmap"])
def test_metadata_cut_anywhere_before_its_properties_is_damage(case: str) -> None:
    data = (GOLDEN / case / "_metadata").read_bytes()
    properties = len(parse_metadata(data, "_metadata").properties)
    for size in range(0, len(data) - properties + 4, 1 if len(data) < 5000 else 17):
        with pytest.raises(DamagedError) as caught:
            parse_metadata(data[:size], "_metadata")
        assert caught.value.file == "_metadata"
        assert caught.value.offset is not None
        assert caught.value.offset <= size


LIES = tuple(bytes.fromhex(lie) for lie in ("7fffffff", "ffffffff", "80000000", "7fffffffffffffff", "ffff"))


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("step", [16, pytest.param(1, marks=WHOLE)])
def test_numbers_that_lie_cost_no_memory(tmp_path: Path, step: int) -> None:
    savepoint = write_sample(tmp_path / "s", parallelism=1, max_parallelism=2, keys=3)
    data = (tmp_path / "s" / "_metadata").read_bytes()
    file = KeyedFile.of(savepoint, 0)
    contents(savepoint)
    tracemalloc.start()
    try:
        for lie in LIES:
            for position in range(len(data)):
                refused_or(partial(parse_metadata, replaced(data, position, lie)[: len(data)], "_metadata"))
            for position in range(0, len(file.data), step):
                refused_or(file.damaged(replaced(file.data, position, lie)).everything)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


# Keyed state files


@dataclass(frozen=True)
class KeyedFile:
    """One subtask's keyed state file, held in memory where it can be damaged."""

    savepoint: Savepoint
    operator: Operator
    subtask: Subtask
    handle: KeyedHandle
    data: bytes

    @classmethod
    def of(cls, savepoint: Savepoint, index: int, operator: str = UID) -> KeyedFile:
        found = savepoint.operator(operator)
        (subtask,) = (subtask for subtask in found.subtasks if subtask.index == index)
        assert subtask.managed_keyed is not None
        with KeyGroupFile(savepoint.folder, subtask.managed_keyed, found.max_parallelism, index) as file:
            file.file.seek(0)
            data = bytes(file.file.read(file.size))
        return cls(savepoint, found, subtask, subtask.managed_keyed, data)

    def damaged(self, data: bytes, offsets: tuple[int, ...] | None = None) -> KeyedFile:
        offsets = self.handle.offsets if offsets is None else offsets
        handle = replace(self.handle, offsets=offsets, stream=InlineBytes("x", data))
        subtask = replace(self.subtask, managed_keyed=handle)
        operator = replace(self.operator, subtasks=(subtask,))
        savepoint = Savepoint(self.savepoint.folder, replace(self.savepoint.metadata, operators=(operator,)))
        return KeyedFile(savepoint, operator, subtask, handle, data)

    def open(self) -> KeyGroupFile:
        return KeyGroupFile(self.savepoint.folder, self.handle, self.operator.max_parallelism, self.subtask.index)

    def everything(self) -> list[str]:
        """All entries, without the names of their states."""
        with self.open() as file:
            savepoint = OneFile(self.savepoint.folder, self.savepoint.metadata, file)
            states = savepoint.keyed_states(self.operator)
            return [repr(entry) for state in states for entry in read_entries(savepoint, self.operator, state)]

    @cached_property
    def header_end(self) -> int:
        return min(offset for offset in self.handle.offsets if offset)


@dataclass(frozen=True)
class OneFile(Savepoint):
    """Reads a file that is open, again and again."""

    file: KeyGroupFile

    def open_files(self, operator: Operator) -> Iterator[KeyGroupFile]:
        yield self.file


@pytest.mark.parametrize("compression", FORMS)
def test_a_file_cut_at_any_byte_is_damage(tmp_path: Path, compression: Compression) -> None:
    file = KeyedFile.of(
        write_sample(tmp_path / "s", parallelism=1, max_parallelism=3, keys=2, compression=compression), 0
    )
    assert file.damaged(file.data).everything()
    for size in range(len(file.data)):
        with pytest.raises(DamagedError):
            file.damaged(file.data[:size]).everything()


@pytest.mark.slow
@pytest.mark.parametrize(("step", "bits"), [(5, 1), pytest.param(1, 8, marks=WHOLE)])
def test_every_flipped_byte_of_a_header(tmp_path: Path, step: int, bits: int) -> None:
    file = KeyedFile.of(write_sample(tmp_path / "s", parallelism=1, max_parallelism=2, keys=3), 0)
    truth, seen, positions = Counter(file.everything()), 0, range(0, file.header_end, step)
    for flipped in flips(file.data, positions, bits):
        found = refused_or(file.damaged(flipped).everything)
        seen += found is None
        # The names of states are all that may change unseen.
        assert found is None or Counter(found) == truth
    # Beside the names, what timers say of their keys: the header said it before.
    assert seen > 0.9 * bits * len(positions)


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param("composites-2.3-rocksdb", marks=pytest.mark.slow),
        "kryo-1.20-rocksdb",
        "subclasses-2.3-rocksdb",
    ],
)
def test_flips_in_the_headers_of_flink_are_named_or_another_description(case: str) -> None:
    chosen = random.Random(11)
    for operator in Savepoint.open(str(GOLDEN / case)).keyed_operators()[:1]:
        file = KeyedFile.of(Savepoint.open(str(GOLDEN / case)), operator.subtasks[0].index, operator.hex_id)
        for position in range(0, file.header_end, 131):
            data = replaced(file.data, position, bytes([file.data[position] ^ 1 << chosen.randrange(8)]))
            refused_or(file.damaged(data).everything)


@dataclass
class Hunt:
    """Damages a file's key groups at random, and holds what is read against the truth."""

    file: KeyedFile
    random: random.Random

    def __post_init__(self) -> None:
        self.opened = self.file.open()
        self.savepoint = OneFile(self.file.savepoint.folder, self.file.savepoint.metadata, self.opened)
        self.states = self.savepoint.keyed_states(self.file.operator)
        self.groups = list(self.opened.extents.values())
        self.truth = {group.key_group: self._read(group.key_group) for group in self.groups}
        self.opened.file.close()
        self.compressed = self.opened.header.compressed
        self.refused = self.unseen = 0

    def _read(self, key_group: int) -> list[list[Entry]]:
        return [list(read_entries(self.savepoint, self.file.operator, state, key_group)) for state in self.states]

    def run(self, times: int) -> None:
        for _ in range(times):
            group = self.random.choice(self.groups)
            start = self.random.randrange(group.start, group.end)
            data = self.file.data
            flip = self.random.random() < 0.7
            if flip:
                piece = bytes([data[start] ^ 1 << self.random.randrange(8)])
            else:
                size = self.random.randrange(1, min(60, group.end - start) + 1)
                source = self.random.randrange(0, len(data) - size)
                piece = data[source : source + size] if self.random.random() < 0.7 else self.random.randbytes(size)
            self.opened.file = pa.BufferReader(replaced(data, start, piece))
            try:
                found = self._read(group.key_group)
            except StateferryError:
                self.refused += 1
            else:
                self.unseen += 1
                self._compare(group, start, start + len(piece), found, flip)

    def _compare(self, group: Any, start: int, end: int, found: list[list[Entry]], flip: bool) -> None:
        truth = self.truth[group.key_group]
        if self.compressed:
            assert repr(found) == repr(truth)
            return
        extents = entry_extents(self.file.data, group.start, group.end)
        for state, entries in enumerate(found):
            of_state = [extent for extent in extents if extent.state == state]
            if flip:
                assert len(entries) == len(of_state)
            lost = Counter(map(repr, truth[state]))
            lost.subtract(map(repr, entries))
            touched = sum(extent.start < end and start < extent.end for extent in of_state)
            assert sum(lost[line] for line in lost if lost[line] > 0) <= touched
            for entry in entries:
                if isinstance(entry.key, str):
                    code = java_hash(entry.key)
                    assert assign_to_key_group(code, self.file.operator.max_parallelism) == group.key_group


def hunts(folder: Path) -> Iterator[Hunt]:
    seeded = random.Random(20)
    for compression in FORMS:
        sample = write_sample(folder / compression, max_parallelism=20, keys=4, compression=compression)
        yield Hunt(KeyedFile.of(sample, 1), seeded)
    cases = (
        "legacy-ttl-1.20-rocksdb",
        "legacy-snappy-1.20-hashmap",
        "kinds-ttl-1.20-hashmap",
        "kinds-in-strings-2.3-rocksdb",
    )
    for case in cases:
        savepoint = Savepoint.open(str(GOLDEN / case))
        operator = savepoint.keyed_operators()[0]
        yield Hunt(KeyedFile.of(savepoint, 0, operator.hex_id), seeded)


def hunt(folder: Path, times: int) -> None:
    for one in hunts(folder):
        one.run(times)
        assert one.refused > times * (0.9 if one.compressed else 0.25)
        assert one.unseen > 0 or one.compressed


@pytest.mark.slow
def test_random_damage_in_key_groups(tmp_path: Path) -> None:
    hunt(tmp_path, 400)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_hundred_thousand_random_damages_in_key_groups(tmp_path: Path) -> None:
    hunt(tmp_path, 100_000 // 6 + 1)


# Classes of damage, and what is said of each


def inside(file: KeyedFile, change: Callable[[bytes, int, int], bytes], key_group: int = 1) -> DamagedError:
    """The damage of a key group whose bytes were changed; its first entry begins at the position that is passed."""
    start = file.handle.offsets[key_group]
    with pytest.raises(DamagedError) as caught:
        file.damaged(change(file.data, start, start + 2)).everything()
    return caught.value


@pytest.mark.parametrize(
    ("change", "expected", "found", "at"),
    [
        (lambda data, start, entry: replaced(data, start, b"\x00\x09"), "the id of one of 5 states", "9", 0),
        (lambda data, start, entry: replaced(data, entry + 4, b"\x02"), "the key group's own number", "2", 6),
        (
            lambda data, start, entry: replaced(data, entry, b"\0\0\0\1"),
            "a key behind the key group",
            "a key length of 1",
            2,
        ),
        (lambda data, start, entry: replaced(data, entry, b"\xff" * 4), "a key behind the key group", "-1", 2),
        (
            lambda data, start, entry: replaced(data, entry, b"\x7f" + b"\xff" * 3),
            "2147483655 bytes of an entry",
            "until",
            2,
        ),
        (
            lambda data, start, entry: replaced(data, entry + 4 + data[entry + 3], b"\x80\0\0\0"),
            "a length that fits",
            "-2147483648",
            None,
        ),
        (
            lambda data, start, entry: replaced(data, entry + 7, b"9"),
            "keys whose hash gives key group 1 (max parallelism 4)",
            "a key whose hash gives",
            7,
        ),
        (
            lambda data, start, entry: replaced(data, entry + 5, b"\0"),
            "a key of type String",
            "a null, which can't be a key",
            8,
        ),
    ],
)
def test_damage_in_a_key_group_is_named_with_its_place(
    tmp_path: Path, change: Callable[[bytes, int, int], bytes], expected: str, found: str, at: int | None
) -> None:
    file = KeyedFile.of(write_sample(tmp_path / "s", parallelism=1, max_parallelism=4), 0)
    error = inside(file, change)
    assert expected in error.expected
    assert found in error.found
    assert error.key_group == 1
    assert error.file is not None
    if at is not None:
        assert error.offset == file.handle.offsets[1] + at
    assert all(part in str(error) for part in (error.file, "key group 1", f"offset {error.offset}", error.expected))


@pytest.mark.parametrize("compression", [Compression.SNAPPY, Compression.STORED])
def test_a_snappy_chunk_that_isn_t_what_its_checksum_says(tmp_path: Path, compression: Compression) -> None:
    file = KeyedFile.of(write_sample(tmp_path / "s", parallelism=1, max_parallelism=4, compression=compression), 0)
    error = inside(file, lambda data, start, entry: replaced(data, start + 14, bytes([data[start + 14] ^ 1])))
    assert "checksum" in error.expected
    assert error.offset == file.handle.offsets[1] + 10
    error = inside(file, lambda data, start, entry: replaced(data, start + 4, b"Snappy"))
    assert "the start of a snappy stream" in error.expected


@pytest.mark.parametrize("compression", FORMS)
@pytest.mark.parametrize(
    "change",
    [
        lambda offsets, size: (offsets[1], offsets[0], *offsets[2:]),
        lambda offsets, size: (*offsets[:2], offsets[3], offsets[2]),
        lambda offsets, size: (0, *offsets[1:]),
        lambda offsets, size: (*offsets[:3], 0),
        lambda offsets, size: (offsets[0], 0, *offsets[2:]),
        lambda offsets, size: (*offsets[:3], size),
        lambda offsets, size: (*offsets[:3], size + 1),
        lambda offsets, size: (*offsets[:3], 2**63 - 1),
        lambda offsets, size: (*offsets[:3], -1),
        lambda offsets, size: (offsets[0], offsets[0], *offsets[2:]),
        lambda offsets, size: (offsets[0] - 1, *offsets[1:]),
        lambda offsets, size: (offsets[0] + 1, *offsets[1:]),
        lambda offsets, size: (*offsets[:2], offsets[2] + 3, offsets[3]),
        lambda offsets, size: (0, 0, 0, 0),
        lambda offsets, size: (1, *offsets[1:]),
    ],
)
def test_offsets_that_lie_are_damage(
    tmp_path: Path, change: Callable[[tuple[int, ...], int], tuple[int, ...]], compression: Compression
) -> None:
    sample = write_sample(tmp_path / "s", parallelism=1, max_parallelism=4, compression=compression)
    file = KeyedFile.of(sample, 0)
    with pytest.raises(DamagedError) as caught:
        file.damaged(file.data, change(file.handle.offsets, len(file.data))).everything()
    assert caught.value.file is not None


def test_key_groups_of_the_wrong_subtask_are_damage(tmp_path: Path) -> None:
    metadata = write_sample(tmp_path / "s").metadata
    (operator,) = metadata.operators
    first, second = operator.subtasks
    swapped = (replace(first, index=1), replace(second, index=0))
    for wrong in (
        replace(operator, subtasks=swapped),
        replace(operator, subtasks=(replace(first, index=1),)),
        replace(operator, parallelism=3),
        replace(operator, max_parallelism=16),
    ):
        with pytest.raises(DamagedError, match=r"_metadata: expected the key groups \[.*operator main.*found \["):
            open_with(tmp_path / "s", replace(metadata, operators=(wrong,)))
    with pytest.raises(DamagedError, match=r"expected the id [0-9a-f]{32} of the operator with uid 'Main'"):
        open_with(tmp_path / "s", replace(metadata, operators=(replace(operator, uid="Main"),)))


def open_with(folder: Path, metadata: Metadata) -> Savepoint:
    (folder / "_metadata").write_bytes(build_metadata(metadata))
    return Savepoint.open(str(folder))


# Files and folders


def test_files_that_are_not_what_metadata_says(tmp_path: Path) -> None:
    savepoint = write_sample(tmp_path / "s")
    name, data = next((name, data) for name, data in files_of(tmp_path / "s").items() if name != "_metadata")
    file = tmp_path / "s" / name
    for wrong in (data + b"\0", data[:-1], b""):
        file.write_bytes(wrong)
        with pytest.raises(DamagedError, match=f"{name}: expected {len(data)} bytes.*found {len(wrong)}"):
            contents(savepoint)
    file.unlink()
    with pytest.raises(DamagedError, match=f"{name}: expected a file, found none"):
        contents(savepoint)
    file.mkdir()
    with pytest.raises(DamagedError, match=f"{name}: expected a file"):
        contents(savepoint)


def test_a_size_that_lies_is_damage_even_where_the_content_would_do(tmp_path: Path) -> None:
    metadata = write_sample(tmp_path / "s", parallelism=1).metadata
    (operator,) = metadata.operators
    handle = operator.subtasks[0].managed_keyed
    assert handle is not None
    assert isinstance(handle.stream, RelativeFile)
    for size in (0, handle.stream.size - 1, handle.stream.size + 1, 2**63 - 1):
        lying = replace(handle, stream=replace(handle.stream, size=size))
        subtask = replace(operator.subtasks[0], managed_keyed=lying)
        wrong = replace(metadata, operators=(replace(operator, subtasks=(subtask,)),))
        with pytest.raises(DamagedError, match=f"expected {size} bytes, as _metadata says"):
            contents(open_with(tmp_path / "s", wrong))


def test_what_is_no_savepoint_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        Savepoint.open(str(tmp_path / "nowhere"))
    with pytest.raises(DamagedError, match=r"a folder with a complete _metadata, found a folder without one$"):
        Savepoint.open(str(tmp_path))
    for number, name in enumerate(("newer", "older", "unfinished")):
        (tmp_path / name).mkdir()
        if name != "unfinished":
            (tmp_path / name / "_metadata").touch()
            os.utime(tmp_path / name / "_metadata", (9 - number, 9 - number))
    with pytest.raises(DamagedError, match=f"found a folder without one: .* the newest is {tmp_path}/newer$"):
        Savepoint.open(str(tmp_path))
    with pytest.raises(DamagedError, match=r"a folder with a complete _metadata, found a file$"):
        Savepoint.open(str(tmp_path / "newer" / "_metadata" / "_metadata"))
    (tmp_path / "_metadata").write_bytes(b"")
    with pytest.raises(DamagedError, match=r"_metadata, offset 0: expected 4 bytes"):
        Savepoint.open(str(tmp_path))
    (tmp_path / "_metadata").write_bytes(b"PK\3\4" + bytes(20))
    with pytest.raises(DamagedError, match="magic number"):
        Savepoint.open(str(tmp_path))


@pytest.mark.parametrize(
    ("version", "error"), [(7, RefusedError), (1, RefusedError), (-1, DamagedError), (0, DamagedError)]
)
def test_other_versions_are_refused(tmp_path: Path, version: int, error: type[StateferryError]) -> None:
    write_sample(tmp_path / "s")
    data = (tmp_path / "s" / "_metadata").read_bytes()
    (tmp_path / "s" / "_metadata").write_bytes(replaced(data, 4, version.to_bytes(4, "big", signed=True)))
    with pytest.raises(error, match=str(version)):
        Savepoint.open(str(tmp_path / "s"))


# Operator state, whose elements nobody here looks into


@pytest.mark.parametrize("case", ["operator-state-2.3-rocksdb", "operator-state-1.20-hashmap"])
def test_flips_in_operator_state_are_named_or_carried_along(tmp_path: Path, case: str) -> None:
    savepoint = Savepoint.open(str(GOLDEN / case))
    operator = next(operator for operator in savepoint.metadata.operators if has_operator_state(operator))
    subtask = next(subtask for subtask in operator.subtasks if subtask.managed_operator)
    assert subtask.managed_operator is not None
    opened, _, _ = open_stream(savepoint.folder, subtask.managed_operator.stream)
    with opened:
        data = bytes(opened.read())
    chosen = random.Random(3)
    for number, position in enumerate(range(0, len(data), len(data) // 60)):
        flipped = replaced(data, position, bytes([data[position] ^ 1 << chosen.randrange(8)]))
        handle = replace(subtask.managed_operator, stream=InlineBytes("x", flipped))
        changed = replace(operator, subtasks=(replace(subtask, managed_operator=handle, managed_keyed=None),))
        damaged = replace(savepoint, metadata=replace(savepoint.metadata, operators=(changed,)))
        refused_or(partial(survey, damaged))
        layout = Layout(parallelism={operator.id: 2 if operator.parallelism != 2 else 3})
        refused_or(partial(rewrite, damaged, str(tmp_path / str(number)), layout))


def has_operator_state(operator: Operator) -> bool:
    return any(subtask.managed_operator for subtask in operator.subtasks)
