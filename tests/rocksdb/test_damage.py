"""Bad input: every byte of MANIFEST, CURRENT, properties, index and footer flipped, blocks flipped, cut and exchanged.

What RocksDB wrote has a checksum on each block and record, so each damage is named, or nothing is different.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.stored_files import stored_files
from flinkstate.rocksdb.database import Database
from flinkstate.rocksdb.files import StoredFile
from flinkstate.rocksdb.kernels import SLACK
from flinkstate.rocksdb.live_files import ColumnFamily, LiveFile, check_visible
from flinkstate.rocksdb.merge import fragments_of
from flinkstate.rocksdb.sst_file import DeletedRange
from tests.rocksdb import writing
from tests.rocksdb.goldens import NATIVE, SAVEPOINTS, keyed, opened
from tests.rocksdb.writing import stored

GROUPS = 128
Files = Mapping[str, bytes]
Rows = dict[str, list[bytes]]


@cache
def golden(name: str) -> Files:
    """The files of the first subtask's database."""
    savepoint = opened(SAVEPOINTS / name)
    (operator,) = savepoint.keyed_operators()
    handle = keyed(operator.subtasks)[0].native_keyed
    assert handle is not None
    return {name: file.read_all(1 << 30) for name, file in stored_files(savepoint.folder, handle).items()}


def read(files: Mapping[str, StoredFile]) -> Rows:
    """All rows of all column families, as one text of bytes for each key group."""
    database = Database(files, "the database")
    buffer, positions = np.zeros(1 << 16, np.uint8), np.zeros((3, 1000), np.int64)
    found: Rows = {}
    for family in database.families:
        with database.scan(family, 1, 0, GROUPS) as scan:
            needed = 1
            while needed:
                if needed > len(buffer) - SLACK:
                    buffer = np.zeros(needed + SLACK, np.uint8)
                starts, key_ends, ends = positions
                rows = scan.read(GROUPS, buffer, 0, (starts, key_ends, ends))
                found.setdefault(family, []).append(buffer[: rows.position].tobytes())
                needed = rows.needed
    return {family: [b"".join(parts)] for family, parts in found.items()}


def meta_at(data: bytes) -> int:
    """Where the data blocks of an SST file end: behind them are only meta blocks, the index and the footer."""
    entries = [at for at in range(len(data)) if data.startswith(b"rocksdb.", at)]
    return min(entries, default=len(data)) - 200


def flipped(data: bytes, position: int, bit: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def is_named(files: Files, truth: Rows, name: str) -> bool:
    """Whether the damage is named, with the file; if not, nothing is different."""
    try:
        found = read(stored(files))
    except (DamagedError, RefusedError) as error:
        return any(part in str(error) for part in (name, ".sst", "MANIFEST"))
    assert found == truth
    return False


def sst_files(files: Files) -> list[str]:
    return sorted(name for name in files if name.endswith(".sst"))


WHOLE = pytest.param(1, marks=[pytest.mark.full, pytest.mark.timeout(900)])


@pytest.mark.slow
@pytest.mark.parametrize("step", [11, WHOLE])
@pytest.mark.parametrize("name", [NATIVE[0], NATIVE[5]])
def test_every_flipped_byte_of_manifest_and_current(name: str, step: int) -> None:
    files, chosen = golden(name), random.Random(1)
    truth = read(stored(files))
    for damaged in files:
        if damaged.startswith(("MANIFEST", "CURRENT")):
            for position in range(0, len(files[damaged]), step):
                wrong = flipped(files[damaged], position, chosen.randrange(8))
                assert is_named({**files, damaged: wrong}, truth, damaged), (damaged, position)


@pytest.mark.slow
@pytest.mark.parametrize("step", [5, WHOLE])
@pytest.mark.parametrize("name", [NATIVE[0], NATIVE[5]])
def test_every_flipped_byte_of_properties_index_and_footer(name: str, step: int) -> None:
    files, chosen = golden(name), random.Random(2)
    damaged = max(sst_files(files), key=lambda name: len(files[name]))
    alone = {damaged: files[damaged]}
    truth = read(stored(files))
    data = alone[damaged]
    unnamed = []
    for position in range(max(meta_at(data), 0), len(data), step):
        if not is_named({**files, damaged: flipped(data, position, chosen.randrange(8))}, truth, damaged):
            unnamed.append(position)
    # A footer of version 5 has no checksum. For a reader version 4 differs only in the Bloom filter, which isn't read;
    # `is_named` has compared the rows.
    version_at = len(data) - 12
    assert set(unnamed) <= {version_at}


@pytest.mark.slow
@pytest.mark.parametrize(
    "count", [300, pytest.param(20_000, marks=[pytest.mark.full, pytest.mark.timeout(3600)])], ids=["some", "many"]
)
def test_random_flips_cuts_and_splices_of_blocks(count: int) -> None:
    chosen = random.Random(3)
    truths = {name: read(stored(golden(name))) for name in NATIVE}
    unnamed = 0
    for _ in range(count):
        name = chosen.choice(NATIVE)
        files = golden(name)
        damaged = chosen.choice(sst_files(files))
        data = files[damaged]
        position = chosen.randrange(len(data))
        kind = chosen.randrange(4)
        if kind == 0:
            wrong = flipped(data, position, chosen.randrange(8))
        elif kind == 1:
            wrong = data[:position]
        elif kind == 2:
            wrong = data[:position] + chosen.randbytes(len(data) - position)
        else:
            size = chosen.randrange(1, 200)
            other = chosen.randrange(len(data))
            wrong = (data[:position] + data[other : other + size] + data[position + size :])[: len(data)]
            wrong += data[len(wrong) :]
        unnamed += not is_named({**files, damaged: wrong}, truths[name], damaged) and wrong != data
    assert unnamed == 0


def test_blocks_that_change_places_are_out_of_order() -> None:
    entries: list[writing.Entry] = [(b"\1%04d" % number, 1, 1, b"v" * 10) for number in range(100)]
    files = writing.database([[entries]], [6], compression=writing.NONE, block_bytes=100)
    truth = read(stored(files))
    (name,) = sst_files(files)
    data = files[name]
    size = data.index(b"\1" + b"0000") and _block_size(data)
    named = 0
    for one, other in ((0, 1), (1, 2), (2, 3), (0, 5)):
        first, second = data[one * size : (one + 1) * size], data[other * size : (other + 1) * size]
        wrong = bytearray(data)
        wrong[one * size : (one + 1) * size], wrong[other * size : (other + 1) * size] = second, first
        named += is_named({**files, name: bytes(wrong)}, truth, name)
    assert named == 4


def _block_size(data: bytes) -> int:
    """The bytes of the first block, from the index of equal blocks: where a block like it begins again."""
    return next(at for at in range(1, len(data)) if data[at : at + 3] == data[:3] and data[at + 3 : at + 4] == b"\1")


def test_missing_and_additional_files() -> None:
    files = dict(golden(NATIVE[2]))
    for name in [*sst_files(files), "CURRENT", next(name for name in files if name.startswith("MANIFEST"))]:
        with pytest.raises(DamagedError, match=name):
            read(stored({other: data for other, data in files.items() if other != name}))
    with pytest.raises(DamagedError, match=r"999999.sst: one that isn't live"):
        read(stored({**files, "999999.sst": b""}))


def _lying_blocks() -> Iterator[tuple[str, bytes]]:
    """Contents of blocks with right checksums that are as no block can be."""
    yield "no restart points", b""
    yield "too many restart points", b"\xff\xff\xff\x7f"
    yield "an entry that goes on behind its block", writing.varint(0) + writing.varint(2**31) + b"\0" + bytes(8)
    yield "a key without a tag", b"\0\3\0abc" + bytes(4) + b"\1\0\0\0"
    yield "shared bytes of no key", b"\7\3\0abc" + bytes(4) + b"\1\0\0\0"
    yield "a number without an end", b"\xff" * 9 + bytes(4) + b"\1\0\0\0"


@pytest.mark.parametrize(("what", "content"), list(_lying_blocks()), ids=[what for what, _ in _lying_blocks()])
def test_blocks_that_lie(what: str, content: bytes) -> None:
    files = writing.database([[[(b"\1a", 1, 1, b"v")]]], [0], first_block=(writing.NONE, content))
    (name,) = sst_files(files)
    with pytest.raises(DamagedError, match=f"^{name}, offset 0: "):
        read(stored(files))


@pytest.mark.parametrize("kind", [writing.SNAPPY, writing.ZLIB, writing.LZ4, writing.ZSTD])
@pytest.mark.parametrize("size", [1 << 30, (1 << 35) - 1, 100])
def test_sizes_are_checked_before_memory_is_taken(kind: int, size: int) -> None:
    """A block that says that it has more content than it can have, or other content than it has."""
    size = size if kind != writing.ZSTD else min(size, 100)
    block = writing.varint(size) + bytes(50)
    files = writing.database([[[(b"\1a", 1, 1, b"v")]]], [0], first_block=(kind, block))
    (name,) = sst_files(files)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match=f"^{name}, offset 0: "):
            read(stored(files))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_handles_whose_sums_are_beyond_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index with a right checksum, of whose first block offset and size are more together than a number can be."""
    index = writing.Table._index

    def lying(table: writing.Table, blocks: list[tuple[bytes, bytes]]) -> bytes:
        (first, _), *rest = blocks
        return index(table, [(first, writing.varint(1) + writing.varint(2**63 - 2)), *rest])

    monkeypatch.setattr(writing.Table, "_index", lying)
    entries: list[writing.Entry] = [(b"\1%04d" % number, 1, 1, b"v" * 100) for number in range(9)]
    files = writing.database([[entries]], [6])
    with pytest.raises(DamagedError, match=r"\.sst, offset \d+: .*blocks inside the file"):
        read(stored(files))


def test_a_sequence_number_that_no_entry_can_have() -> None:
    for number in (2**56 - 1, 2**63 - 1, 2**64 - 1):
        entries: list[writing.Entry] = [(b"\1a", 1, 1, b"v")]
        edits = [
            writing.varint(1) + writing.sized(b"leveldb.BytewiseComparator"),
            writing.varint(200) + writing.varint(1) + writing.varint(201) + writing.sized(b"state"),
            writing.numbers(10, number),
            writing.varint(200) + writing.varint(1) + writing.new_file(9, 0, 100, entries, sequences=(1, number)),
        ]
        files = {"CURRENT": b"MANIFEST-000001\n", "MANIFEST-000001": writing.log(edits), "000009.sst": b""}
        with pytest.raises(DamagedError, match=f"^MANIFEST-000001: .* {number} in 000009.sst of state"):
            read(stored(files))


def test_many_files_of_level_0_and_many_deleted_ranges_take_no_time() -> None:
    """Each pair of them was looked at."""
    files = [LiveFile(n, 0, 1, b"%09d\1\5" % n + bytes(6), b"%09d\1\5" % n + bytes(6), (5, 5)) for n in range(20_000)]
    ranges = [(0, DeletedRange(b"%09d" % n, b"%09d" % (99_999 - n), n)) for n in range(20_000)]
    began = time.process_time()
    check_visible([ColumnFamily(1, "state", {file.number: file for file in files})], 5, 20_001, "MANIFEST")
    found = fragments_of(ranges)
    assert time.process_time() - began < 10
    # The innermost range is the newest.
    assert found.sequences.tolist() == [*range(20_000), *reversed(range(19_999))]
