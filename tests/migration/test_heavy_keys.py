"""Keys of more than a fair share, held against the measurement that reads every key, and against plain sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkstate.reading.reader import Savepoint
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.inventory import heavy_keys
from stateferry.inventory.heavy_key import HeavyKey, heavier
from stateferry.inventory.inventory import Inventory, inventory_tasks, total
from stateferry.look.balance.key_weights import measure_keys
from stateferry.runs.record.key_group_sizes import SourceSizes, StagedSizes
from stateferry.runs.report.balance_facts import balance_of
from stateferry.steps import key_groups
from tests.support.legacy_states import LegacyState

GOLDEN = Path(__file__).parents[1] / "savepoints"


def state(hot: int) -> LegacyState:
    """Sixty keys, of which one has many rows and a large blob."""
    keys = [f"key-{number}" for number in range(60)]
    rows = {key: {f"{part}": (part, 0) for part in range(3)} for key in keys}
    rows["hot"] = {f"{part}": (part, 0) for part in range(hot)}
    return LegacyState(blobs={"hot": ({f"{part}": part for part in range(hot)}, 0)}, rows=rows)


def inventory(source: Savepoint, parallelism: int) -> Inventory:
    found = [
        task.take()
        for operator in source.keyed_operators()
        for changes in [OperatorChanges.none(source, operator)]
        for task in inventory_tasks(source, changes, target_bytes=4096, at_least=3, parallelism=parallelism)
    ]
    return total(found)


@pytest.mark.parametrize("parallelism", [2, 8])
def test_it_is_the_heaviest_key_of_all_with_all_its_bytes(tmp_path: Path, parallelism: int) -> None:
    source = state(hot=200).write(str(tmp_path / "one"))
    (found,) = inventory(source, parallelism).heavy_keys.values()
    measured = measure_keys(source, source.operator("main"), "bytes")
    assert measured is not None
    heaviest = measured.heaviest[0]
    assert found == HeavyKey(heaviest.bytes, heaviest.key_group, '"hot"')
    assert heaviest.text == '"hot"'


def test_a_key_is_found_that_many_sections_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = state(hot=200).write(str(tmp_path / "one"))
    (at_once,) = inventory(source, 4).heavy_keys.values()
    monkeypatch.setattr("stateferry.inventory.inventory.WINDOW", 512)
    monkeypatch.setattr(heavy_keys, "_MOST_KEYS", 3)
    (in_parts,) = inventory(source, 4).heavy_keys.values()
    assert in_parts == at_once


def test_no_key_is_looked_for_where_none_can_be_too_heavy(tmp_path: Path) -> None:
    source = state(hot=200).write(str(tmp_path / "one"))
    assert inventory(source, 1).heavy_keys == {}
    even = LegacyState(rows={f"key-{number}": {"a": (1, 0)} for number in range(3000)}).write(str(tmp_path / "even"))
    assert inventory(even, 4).heavy_keys == {}


@pytest.mark.parametrize("case", ["several-operators-2.3-hashmap", "native-2.3-rocksdb"])
def test_keys_of_any_type_and_format(case: str) -> None:
    source = Savepoint.open(str(GOLDEN / case))
    found = inventory(source, 128)
    for operator in source.keyed_operators():
        measured, key = measure_keys(source, operator, "bytes"), found.heavy_keys[operator.hex_id]
        assert measured is not None
        assert key is not None
        heaviest = measured.heaviest[0]
        assert key.bytes == heaviest.bytes
        assert key.text in {one.text for one in measured.heaviest if one.bytes == key.bytes}


def test_the_heavier_key_is_the_same_in_any_order() -> None:
    keys = [HeavyKey(5, 3, None), HeavyKey(7, 4, None), HeavyKey(7, 2, None), None]
    assert heavier(heavier(keys[0], keys[1]), heavier(keys[2], keys[3])) == keys[2]
    assert heavier(heavier(keys[3], keys[2]), heavier(keys[1], keys[0])) == keys[2]
    assert heavier(None, None) is None


def test_the_balance_says_what_no_layout_can_spread(tmp_path: Path) -> None:
    source = state(hot=200).write(str(tmp_path / "one"))
    found = SourceSizes(key_groups.sizes_of(source, inventory(source, 4)))
    (balance,) = balance_of(found, StagedSizes(key_groups.sizes_of(source)))
    before, heavy = balance.before, balance.too_heavy_key
    assert before is not None
    assert before.rows is not None
    assert (before.rows.total, before.rows.by_subtask) == (60 * 3 + 200 + 1, (381,))
    assert before.bytes.worst_over_mean == before.rows.worst_over_mean == 1.0
    assert before.empty_key_groups == 128 - len({one for one in range(128) if found.operators[0].bytes[one]})
    # One subtask has it all, whatever a key weighs.
    assert heavy is None
    assert list(balance.lines)[1].startswith("balance of main after: 1 subtask, none idle")
