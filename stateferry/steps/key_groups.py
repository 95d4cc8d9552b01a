"""Measures how the bytes of keyed state are spread over key groups and subtasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from flinkstate.metadata.key_group_extents import key_group_extents
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from stateferry.inventory.heavy_key import HeavyKey
from stateferry.inventory.inventory import Inventory
from stateferry.runs.record.key_group_sizes import OperatorSizes, bins

_FULLEST = 3


def sizes_of(savepoint: Savepoint, inventory: Inventory | None = None) -> tuple[OperatorSizes, ...]:
    """The sizes of the operators with keyed state; with an inventory also entries and heavy keys."""
    entries, raw = (
        _by_operator(inventory.entries if inventory else {}),
        _by_operator(inventory.sizes if inventory else {}),
    )
    return tuple(
        _sizes(
            savepoint,
            one,
            entries.get(one.hex_id),
            raw.get(one.hex_id, Counter()).total(),
            inventory.heavy_keys.get(one.hex_id) if inventory else None,
        )
        for one in savepoint.keyed_operators()
    )


def _by_operator(counted: Mapping[tuple[str, str, int], int]) -> dict[str, Counter[int]]:
    """By operator id and key group what was counted by operator id, state and key group."""
    found: dict[str, Counter[int]] = {}
    for (operator, _, key_group), count in counted.items():
        found.setdefault(operator, Counter())[key_group] += count
    return found


def _sizes(
    savepoint: Savepoint, operator: Operator, entries: Mapping[int, int] | None, raw: int, heavy_key: HeavyKey | None
) -> OperatorSizes:
    found: Counter[int] = Counter()
    by_subtask, entries_by_subtask = [0] * operator.parallelism, [0] * operator.parallelism
    for placed in savepoint.placed(operator):
        for extent in key_group_extents(placed.file):
            found[extent.key_group] += extent.end - extent.start
            if placed.file.subtask < operator.parallelism:
                by_subtask[placed.file.subtask] += extent.end - extent.start
                entries_by_subtask[placed.file.subtask] += (entries or {}).get(extent.key_group, 0)
    key_groups = range(operator.max_parallelism)
    return OperatorSizes(
        operator.label,
        operator.parallelism,
        operator.max_parallelism,
        tuple(map(sum, bins([found[key_group] for key_group in key_groups]))),
        tuple(map(max, bins(by_subtask))),
        tuple(found.most_common(_FULLEST)),
        () if entries is None else tuple(map(sum, bins([entries.get(key_group, 0) for key_group in key_groups]))),
        () if entries is None else tuple(map(max, bins(entries_by_subtask))),
        by_subtask.count(0),
        operator.max_parallelism - len(+found),
        raw,
        heavy_key,
    )
