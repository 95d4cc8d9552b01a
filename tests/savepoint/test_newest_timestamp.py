"""The newest timestamp of a small savepoint, by Python alone."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.storage import Location
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading import newest_timestamp as module
from flinkstate.reading.newest_timestamp import newest_timestamp

SAVEPOINTS = Path(__file__).parents[1] / "savepoints"
# Those without expected.jsonl are refused.
WITH_TTL = sorted(file.parent.name for file in SAVEPOINTS.glob("*-ttl-*/expected.jsonl") if "snappy" not in str(file))


def newest_of(folder: Path) -> int | None:
    location = Location.of(str(folder))
    return newest_timestamp(location, parse_metadata(location.child("_metadata").read(), "_metadata"))


@pytest.mark.parametrize("case", WITH_TTL)
def test_it_is_the_newest_of_what_flink_wrote(case: str) -> None:
    entries = map(json.loads, (SAVEPOINTS / case / "expected.jsonl").read_text().splitlines())
    stamps = [one["timestamp"] for one in entries if "value" in one and isinstance(one["timestamp"], int)]
    assert newest_of(SAVEPOINTS / case) == max(stamps, default=None)


def test_without_time_to_live_there_is_none() -> None:
    assert newest_of(SAVEPOINTS / "legacy-2.3-rocksdb") is None


def test_what_takes_compiled_kernels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match="is compressed"):
        newest_of(SAVEPOINTS / "legacy-snappy-2.3-rocksdb")
    monkeypatch.setattr(module, "LARGEST", 100)
    with pytest.raises(RefusedError, match="too many to be read without compiled kernels"):
        newest_of(SAVEPOINTS / "legacy-ttl-2.3-rocksdb")


@pytest.mark.slow
def test_damage_is_told_with_its_place_and_never_goes_round(tmp_path: Path) -> None:
    """Every byte of the entries, one after the other, turned over."""
    source = SAVEPOINTS / "legacy-ttl-2.3-rocksdb"
    file = max(
        (one for one in source.iterdir() if re.fullmatch(r"[0-9a-f-]{36}", one.name)),
        key=lambda one: one.stat().st_size,
    )
    shutil.copytree(source, tmp_path / "copy")
    content = file.read_bytes()
    told = []
    for place in range(len(content) // 2, len(content), 7):
        (tmp_path / "copy" / file.name).write_bytes(
            content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
        )
        try:
            newest_of(tmp_path / "copy")
        except DamagedError as error:
            told.append(str(error))
    assert told
    assert all(str(tmp_path / "copy" / file.name) in words for words in told)
