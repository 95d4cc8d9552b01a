"""The sizes of a legacy state's maps, against plain counting, and what follows for a migration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import MapType, Scalar, TtlType
from flinkstate.values.codecs import encode
from flinkstate.values.java_values import TtlValue
from stateferry.look.blob_sizes import Backend, BlobSizes, _buckets, _least_of
from stateferry.look.survey import survey
from tests.cli.test_cli import GOLDEN
from tests.support.keyed_blobs import write_blobs
from tests.support.legacy_states import LegacyState
from tests.support.terminal import Terminal


def sizes_of(path: Path, state: str = "mainState") -> BlobSizes:
    surveys = survey(Savepoint.open(str(path)))
    (found,) = [
        one for operator in surveys if operator.keyed for one in operator.keyed.states if one.state.name == state
    ]
    assert found.blobs is not None
    return found.blobs


@pytest.mark.part
@pytest.mark.parametrize("case", ["legacy-2.3-rocksdb", "legacy-ttl-2.3-rocksdb", "legacy-snappy-1.20-hashmap"])
def test_sizes_are_those_of_flinks_blobs(case: str) -> None:
    savepoint = Savepoint.open(str(GOLDEN / case))
    operator = savepoint.operator("main")
    state = savepoint.state(operator, "mainState")
    assert isinstance(state.value, MapType)
    entries, sizes, keys, rows = [], [], [], 0
    for entry in read_entries(savepoint, operator, state):
        value: Any = entry.value if not state.ttl else TtlValue(0, entry.value)
        entries.append(len(entry.value))
        sizes.append(len(encode(TtlType(state.value) if state.ttl else state.value, value)))
        keys.append(1 + len(encode(state.key, entry.key)) + 1)
        for user_key, one in entry.value:
            value_bytes = b"" if one is None else encode(state.value.value, one)
            rows += keys[-1] + len(encode(state.value.key, user_key)) + 1 + (8 if state.ttl else 0) + len(value_bytes)
    found = sizes_of(GOLDEN / case)
    assert (found.blobs, found.total_entries, found.total_bytes) == (len(entries), sum(entries), sum(sizes))
    assert (found.entries.largest, found.bytes.largest) == (max(entries), max(sizes))
    assert found.entries.median == sorted(entries)[(len(entries) - 1) // 2]
    assert found.bytes.ninety == pytest.approx(sorted(sizes)[-(-len(sizes) * 90 // 100) - 1], rel=0.016)
    assert found.access_before == pytest.approx((sum(sizes) + sum(keys)) / len(sizes))
    assert found.access_after == pytest.approx(rows / sum(entries))
    assert found.extra_key_bytes == sum(key * (count - 1) for key, count in zip(keys, entries, strict=True))


def test_buckets_hold_what_they_say() -> None:
    draws = np.random.default_rng(3)
    sizes = np.concatenate([np.arange(2000), 2 ** draws.integers(0, 50, 2000) + draws.integers(0, 2**20, 2000)])
    for size, bucket in zip(sizes.tolist(), _buckets(sizes).tolist(), strict=True):
        assert _least_of(bucket) <= size < _least_of(bucket + 1)
        assert size - _least_of(bucket) <= size * 0.016


@pytest.mark.parametrize(
    ("case", "backend"),
    [
        ("legacy-2.3-rocksdb", Backend.ROCKSDB),
        ("legacy-ttl-1.20-rocksdb", Backend.ROCKSDB),
        ("native-2.3-rocksdb", Backend.ROCKSDB),
        ("legacy-1.20-hashmap", Backend.HASHMAP),
        ("legacy-ttl-inlined-2.3-hashmap", Backend.HASHMAP),
    ],
)
def test_the_order_of_keys_tells_the_backend(case: str, backend: Backend) -> None:
    assert sizes_of(GOLDEN / case).backend is backend


def sizes_of_maps(folder: Path, maps: dict[str, dict[str, str]]) -> BlobSizes:
    blobs = {key: (content, 0) for key, content in sorted(maps.items())}
    LegacyState(blobs=blobs, value=Scalar.STRING, max_parallelism=1).write(str(folder / "savepoint"))
    return sizes_of(folder / "savepoint")


def maps_of(entries: int, length: int) -> dict[str, dict[str, str]]:
    content = {f"item{number}": "x" * length for number in range(entries)}
    return {f"key{number:02d}": content for number in range(40)}


@pytest.mark.parametrize(
    ("entries", "length", "reason"),
    [(50, 10, None), (3, 10, "small maps: 3.0 entries"), (5, 5000, None), (40, 5000, None), (0, 0, "small")],
)
def test_small_maps_are_told_not_to_migrate_and_long_values_do(
    tmp_path: Path, entries: int, length: int, reason: str | None
) -> None:
    found = sizes_of_maps(tmp_path, maps_of(entries, length))
    assert found.backend is Backend.ROCKSDB
    if reason is None:
        assert found.why_not_worth_it is None
    else:
        assert reason in (found.why_not_worth_it or "")


def measured() -> list[tuple[int, int, float]]:
    """Entries, bytes of a value, and how many times as long a change of a ValueState takes, as the docs have them."""
    lines = (Path(__file__).parents[1] / "docs" / "worth-it.md").read_text("utf-8").splitlines()
    cells = [[cell.strip().replace(",", "") for cell in line.strip("|").split("|")] for line in lines]
    return [(int(row[0]), int(row[1]), float(row[8])) for row in cells if len(row) == 9 and row[0].isdigit()]


def test_the_rule_follows_what_was_measured(tmp_path: Path) -> None:
    assert len(measured()) == 24
    for entries, size, times in measured():
        (folder := tmp_path / f"{entries}x{size}").mkdir()
        reason = sizes_of_maps(folder, maps_of(entries, size)).why_not_worth_it
        # Between these bounds it may say either.
        assert times < 1.8 or reason is None, (entries, size, times, reason)
        assert times > 1.3 or reason is not None, (entries, size, times)


def test_a_few_large_maps_among_small_ones_are_worth_it(tmp_path: Path) -> None:
    large = {f"item{number}": "x" for number in range(100)}
    assert sizes_of_maps(tmp_path, {**maps_of(1, 1), "large": large, "larger": large}).why_not_worth_it is None


def test_what_is_before_the_entries_of_a_map_by_kryo_is_shorter(tmp_path: Path) -> None:
    blobs: dict[str, tuple[dict[str, Any], int]] = {f"key{number:03d}": ({}, 0) for number in range(1000)}
    blobs["one"] = {"item": 1}, 0
    LegacyState(blobs=blobs, kryo=2, max_parallelism=1).write(str(tmp_path / "savepoint"))
    assert 5 < sizes_of(tmp_path / "savepoint").entry_bytes < 30


def test_keys_that_are_longer_than_what_they_save_are_told(tmp_path: Path) -> None:
    content = {f"item{number}": "" for number in range(15)}
    maps = {f"{'long ' * 60}{number:02d}": content for number in range(40)}
    assert "little gain" in (sizes_of_maps(tmp_path, maps).why_not_worth_it or "")


def test_inspect_says_it_to_people_and_programs(terminal: Terminal, tmp_path: Path) -> None:
    path = write_blobs(tmp_path / "savepoint", dict.fromkeys(range(100), 30), 2, 128)
    (operator,) = json.loads(terminal.says("inspect", path, "--json"))["operators"]
    (state,) = operator["keyed"]["states"]
    worth = state["worth"]
    assert (worth["worth_it"], worth["reason"], worth["blobs"]) == (True, None, 100)
    assert worth["entries"] == {"median": 30, "p90": 30, "p99": 30, "largest": 30}
    # Key group, key and namespace take 6 bytes; the map 4 and 19 for each entry.
    assert (worth["bytes_per_access_before"], worth["bytes_per_access_after"]) == (6 + 4 + 30 * 19, 6 + 19)
    assert worth["extra_key_bytes"] == 100 * 29 * 6
    text = terminal.says("inspect", path)
    assert "is a migration to MapState worth it?" in text
    assert "17.4 kB" in text
    text = terminal.says("inspect", GOLDEN / "legacy-1.20-hashmap")
    assert "no: the order of the keys is that of the HashMap backend" in text
