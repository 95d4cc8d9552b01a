"""Snapshots of Flink that can't be read are refused by the name of what wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkstate.errors import RefusedError
from flinkstate.reading.reader import Savepoint
from flinkstate.rocksdb.manifest import read_manifest
from tests.rocksdb.test_damage import read as read_rows
from tests.rocksdb.writing import VALUE, database, log, new_file, numbers, sized, stored, varint

REFUSED = Path(__file__).parent / "refused"
CASES = {
    "changelog-checkpoint-2.3": r"operator main has a changelog handle \(type 14\).*state\.changelog\.enabled.*"
    "--type canonical",
    "forst-asynchronous-checkpoint-2.3": r"state window-contents is asynchronous \(V2\) state, as the "
    "ForSt backend writes it.*Flink takes no canonical savepoint of it",
    "hashmap-checkpoint-2.3": r"this file has the HashMap backend's own layout.*--type canonical",
}


def test_each_snapshot_has_a_case() -> None:
    assert {folder.name for folder in REFUSED.iterdir()} == CASES.keys()


@pytest.mark.parametrize("case", CASES)
def test_they_are_refused_by_name(case: str) -> None:
    with pytest.raises(RefusedError, match=CASES[case]):
        read(REFUSED / case)


def read(folder: Path) -> None:
    savepoint = Savepoint.open(str(folder))
    for operator in savepoint.keyed_operators():
        savepoint.keyed_states(operator)


ROWS = [(b"\0key", 1, VALUE, b"value")]
FOOTERS = {
    0xDB4775248B80FB57: "000010.sst: an SST file of version 0; SST files of versions 2 to 5 are read",
    0x8242229663BF9564: "000010.sst: a plain table;",
    0x4F3418EB7A8F13B8: "000010.sst: a plain table;",
}


@pytest.mark.parametrize("magic", FOOTERS)
def test_tables_of_other_kinds_are_refused_and_not_damaged(magic: int) -> None:
    files = database([[ROWS]], [6])
    files["000010.sst"] = files["000010.sst"][:-8] + magic.to_bytes(8, "little")
    with pytest.raises(RefusedError, match=rf"{FOOTERS[magic]}.*; take a canonical savepoint: flink savepoint"):
        read_rows(stored(files))


def of_a_file() -> bytes:
    """A file that refers to blob file 9."""
    return new_file(11, 6, 100, ROWS)[:-1] + varint(4) + sized(varint(9)) + varint(1)


@pytest.mark.parametrize(
    "change", [of_a_file(), varint(400) + varint(9), varint(401) + varint(9)], ids=["file", "new", "garbage"]
)
def test_blob_files_are_named(change: bytes) -> None:
    manifest = log([numbers(12, 1), change])
    with pytest.raises(RefusedError, match=r"values are in blob files .*; take a canonical savepoint: flink savepoint"):
        read_manifest(stored({"MANIFEST-000001": manifest})["MANIFEST-000001"])
