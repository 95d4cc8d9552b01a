"""Two rows with the same key are red, also where the source has both: Flink would keep one of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from flinkstate.serializers.types import Scalar
from flinkstate.values.codecs import decode
from flinkstate.writing.operator_rewrite import Layout
from stateferry.proof import equal_rows
from stateferry.proof.equal_rows import EqualRows
from stateferry.proof.expected.check_result import Outcome
from tests.support.alterations import Scene
from tests.support.saboteur import Groups
from tests.validation.test_checks import GOLDEN, assert_green, failed, migrated

ONCE = ": each key once in a state"


@pytest.mark.parametrize(
    ("golden", "uid", "state"),
    [
        ("legacy-2.3-rocksdb", "main", "mainState"),
        ("legacy-2.3-rocksdb", "main", "newMainState"),
        ("legacy-ttl-2.3-rocksdb", "main", "newMainState"),
        ("legacy-snappy-2.3-rocksdb", "main", "mainState"),
        ("operator-state-2.3-rocksdb", "keyed", "_timer_state/event_user-timers"),
    ],
)
@pytest.mark.parametrize("layout", [Layout(), Layout(max_parallelism=300)], ids=["same", "max300"])
def test_a_key_twice_in_the_source_is_red(golden: str, uid: str, state: str, layout: Layout, tmp_path: Path) -> None:
    scene = Scene(GOLDEN / golden, tmp_path / "source", Random(1))
    groups = scene.rows(uid)
    moved = {row.key for rows in groups.values() for row in rows if row.state == "isMigratedState"}
    group, place, row = next(
        (group, place, row)
        for group, rows in groups.items()
        for place, row in enumerate(rows)
        if row.state == state and row.key not in moved and row.value[:4] != bytes(4)
    )
    values = [one.value for rows in groups.values() for one in rows if one.state == state and one.value != row.value]
    # Two maps of a key become rows together; where these differ, none is lost.
    other = replace(row, value=values[0]) if state == "newMainState" else row

    def change(groups: Groups) -> None:
        groups[group].insert(place + 1, other)

    scene.change_rows(uid, change)
    case = migrated(scene.folder, tmp_path / "result", uid, layout, keep_expired="-ttl" in golden)
    red = failed(case.checks(case.folder))
    assert set(red) == {f"{uid}{ONCE}"}
    check = red[f"{uid}{ONCE}"]
    assert "of which Flink would keep one" in check.actual
    made = "newMainState" if state == "mainState" else state
    assert all(f"{made}, key " in sample for sample in check.samples)
    assert check.samples
    assert layout.max_parallelism or check.key_groups == (group,)


def test_all_but_one_of_equal_rows_count_and_ten_are_named(tmp_path: Path) -> None:
    scene = Scene(GOLDEN / "legacy-2.3-rocksdb", tmp_path / "source", Random(1))
    groups, firsts = scene.rows("main"), dict[bytes, tuple[int, int]]()
    for group, rows in groups.items():
        for place, row in enumerate(rows):
            if row.state == "newMainState" and len(firsts) < 12:
                firsts[bytes([group])] = group, place

    def change(groups: Groups) -> None:
        for group, place in firsts.values():
            groups[group][place:place] = [replace(groups[group][place]) for _ in range(2)]

    keys = {decode(Scalar.STRING, groups[group][place].key[1:])[0] for group, place in firsts.values()}
    scene.change_rows("main", change)
    case = migrated(scene.folder, tmp_path / "result", "main", Layout())
    (check,) = [one for one in case.checks(case.folder) if one.name == f"main{ONCE}"]
    assert len(firsts) == 12
    assert check.actual == "24 rows with the key of another one, of which Flink would keep one"
    assert check.key_groups == tuple(sorted(group for group, _ in firsts.values()))
    assert len(set(check.samples)) == 10
    assert all(json.loads(sample.partition(", key ")[2]) in keys for sample in check.samples)


def test_no_key_twice_is_green(tmp_path: Path) -> None:
    case = migrated(GOLDEN / "legacy-2.3-rocksdb", tmp_path / "result", "main", Layout())
    checks = {check.name: check for check in case.checks(case.folder)}
    assert_green(list(checks.values()))
    assert checks[f"main{ONCE}"].outcome is Outcome.PASSED


def test_of_too_many_rows_a_part_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of two equal rows are in it, or none."""
    monkeypatch.setattr(equal_rows, "_MOST_HASHES", 1000)
    found = equal_rows._Seen()
    drawn = np.random.default_rng(3).integers(0, 1 << 63, 20_000).astype(np.uint64) << np.uint64(1)
    for part in np.split(np.concatenate([drawn, drawn[::-1]]), 40):
        found.meet(part)
        assert found._count <= 1000
    equal = found.equal()
    assert 200 < len(equal) <= 500
    assert found._zeros == 6
    assert not (equal >> np.uint64(58)).any()
    assert np.isin(equal, drawn).all()


def test_hashes_that_are_equal_by_chance_are_no_equal_rows(tmp_path: Path) -> None:
    case = migrated(GOLDEN / "legacy-2.3-rocksdb", tmp_path / "result", "main", Layout())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            EqualRows,
            "meet",
            lambda self, state, hashes: self._seen.setdefault(state, equal_rows._Seen()).meet(
                np.concatenate([hashes, hashes[:1]])
            ),
        )
        assert_green(case.checks(case.folder))
