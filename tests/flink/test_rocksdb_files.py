"""Files that RocksDB itself wrote, with options that a job's own factory may set: every entry is what RocksDB finds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flinkstate.errors import RefusedError
from flinkstate.rocksdb.database import Database
from flinkstate.rocksdb.files import StoredFile
from tests.flink.harness import FlinkHarness
from tests.flink.jars import VERSIONS
from tests.rocksdb.test_merge import scanned
from tests.rocksdb.writing import stored

pytestmark = pytest.mark.flink

GROUPS = 6
Operation = tuple[str, ...]
# What Flink's own options lead to is in `test_native.py`.
READ: dict[str, dict[str, object]] = {
    "as it comes": {},
    "no compression": {"compression": "NO_COMPRESSION"},
    "lz4hc": {"compression": "LZ4HC_COMPRESSION"},
    "zstd": {"compression": "ZSTD_COMPRESSION"},
    "zlib": {"compression": "ZLIB_COMPRESSION"},
    "crc32c": {"checksum": "kCRC32c"},
    "format 2": {"format": 2},
    "format 3": {"format": 3},
    "format 4": {"format": 4, "restarts": 1},
    "restarts": {"restarts": 4},
    "keys in full": {"delta": "false"},
    "two levels": {"index": "kTwoLevelIndexSearch", "metadata block": 100},
    "filters in parts": {
        "index": "kTwoLevelIndexSearch", "bloom": 10, "partitioned filters": "true", "metadata block": 64,
    },
    "bloom": {"bloom": 10},
    "prefix": {"prefix": 1, "bloom": 3},
}  # fmt: skip
# RocksDB 6.20 doesn't have it.
ONLY_8: dict[str, dict[str, object]] = {"xxh3": {"checksum": "kXXH3"}}
CASES = [(version, options) for version in VERSIONS for options in READ] + [("2.3.0", options) for options in ONLY_8]
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "xxhash": ({"checksum": "kxxHash"}, "an SST file with xxHash32"),
    "xxhash64": ({"checksum": "kxxHash64"}, "an SST file with xxHash64"),
    "no checksums": ({"checksum": "kNoChecksum"}, "an SST file with no checksums"),
    "hash index": ({"index": "kHashSearch", "prefix": 1}, "a hash index"),
    "hash index of blocks": ({"data index": "kDataBlockBinaryAndHash"}, "a block with a hash index"),
    "backwards": ({"comparator": "REVERSE_BYTEWISE_COMPARATOR"}, "ordered by rocksdb.ReverseBytewiseComparator"),
    "dictionary": ({"compression": "ZSTD_COMPRESSION", "dictionary": 4096}, "compressed with a dictionary"),
    "bzip2": ({"compression": "BZLIB2_COMPRESSION"}, r"compressed by bzip2 \(type 3\)"),
}


def key(chosen: random.Random) -> bytes:
    return bytes([chosen.randrange(GROUPS)]) + b"key-%02d" % chosen.randrange(40)


def operations(seed: int, *, count: int = 1500) -> Iterator[Operation]:
    """Writes of all kinds, with files and compactions in between. A key that is deleted singly is written once."""
    chosen, alone = random.Random(seed), 0
    for number in range(count):
        one, value = key(chosen), chosen.randbytes(chosen.choice((0, 5, 30))) + b"content" * chosen.randrange(9)
        kind = chosen.randrange(100)
        if kind < 55:
            yield "put", one.hex(), value.hex()
        elif kind < 75:
            yield "merge", one.hex(), value.hex()
        elif kind < 90:
            yield "delete", one.hex()
        elif kind < 95:
            single, alone = bytes([chosen.randrange(GROUPS)]) + b"single-%d" % alone, alone + 1
            yield "put", single.hex(), value.hex()
            if chosen.random() < 0.5:
                yield ("flush",)
            yield "single delete", single.hex()
        elif kind < 97:
            yield "range delete", one.hex(), (one[:-2] + b"%02d" % (int(one[-2:]) + chosen.randrange(1, 9))).hex()
        else:
            yield ("flush",)
        if number == count // 2:
            yield ("compact",)


def files_in(folder: Path) -> dict[str, StoredFile]:
    """The files of a database as a snapshot has them: without a write-ahead log."""
    return stored({file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith(".log")})


def check(flink: FlinkHarness, folder: Path, options: dict[str, object], seed: int) -> None:
    truth = flink.database(folder, list(operations(seed)), options)
    assert len(truth) > 100
    files = {name: file.read_all(1 << 30) for name, file in files_in(folder).items()}
    assert dict(scanned(files, 0, GROUPS, 1 << 16, 500)) == truth
    # Through a small buffer, and a part of the key groups.
    part = {one: value for one, value in truth.items() if 2 <= one[0] < 4}
    assert dict(scanned(files, 2, 4, 300, 3)) == part


@pytest.mark.matrix(most=4)
@pytest.mark.parametrize(("version", "options"), CASES)
def test_every_entry_is_what_rocksdb_finds(
    version: str, options: str, flink: Callable[[str], FlinkHarness], tmp_path: Path
) -> None:
    check(flink(version), tmp_path / "database", (READ | ONLY_8)[options], seed=len(options))


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_many_random_databases(version: str, flink: Callable[[str], FlinkHarness], tmp_path: Path) -> None:
    for seed in range(40):
        check(flink(version), tmp_path / f"{seed}", list(READ.values())[seed % len(READ)], seed)


@pytest.mark.matrix(most=3)
@pytest.mark.parametrize("options", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(options: str, flink_2: FlinkHarness, tmp_path: Path) -> None:
    wanted, refusal = REFUSED[options]
    written = [one for one in operations(3) if one[0] != "range delete"]
    flink_2.database(tmp_path / "database", written, wanted)
    with pytest.raises(RefusedError, match=refusal):
        read_all(tmp_path / "database")


def test_a_file_from_outside_is_refused(flink_2: FlinkHarness, tmp_path: Path) -> None:
    written = [*operations(1, count=100), ("ingest", b"\1key-01".hex(), b"new".hex())]
    flink_2.database(tmp_path / "database", written, {})
    with pytest.raises(RefusedError, match="an SST file from outside, with one sequence number for all its entries"):
        read_all(tmp_path / "database")


def read_all(folder: Path) -> None:
    files = files_in(folder)
    Database(files, "the database")
    list(scanned({name: file.read_all(1 << 30) for name, file in files.items()}, 0, GROUPS, 1 << 16, 500))
