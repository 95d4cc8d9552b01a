"""Maps by Kryo 2 as nullable maps: both ways to them write the same bytes of the maps that both can write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from stateferry.changes.upgrade.for_other_kryo import for_other_kryo
from stateferry.changes.upgrade.nullable_maps import nullable_maps
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from tests.steps.test_for_another_flink import ALONE, GOLDEN

TOLD = {"main/mainState": "Map<String, Long>"}


def maps_of(golden: str) -> Iterator[tuple[Section, KeyedState]]:
    values = {"home": "/home", "source": str(GOLDEN / golden), "target": "/new", "to": "flink-2", "declared": TOLD}
    plan = planned(values | ALONE)
    source = open_source(plan)
    ((operator, states),) = [(one.operator, one.by_kryo) for one in resolve(plan, source).changes if one.by_kryo]
    for file in source.open_files(operator):
        names = [state.name for state in file.header.states]
        for key_group in file.handle.range:
            for section in file.sections(key_group):
                if names[section.state] == "mainState":
                    yield replace(section, data=section.data.copy()).with_own_positions(), states["mainState"]


def with_null(section: Section, size: int) -> Section:
    """The section with null as its last value, of which the first `size` bytes are no part of the map."""
    start, value = int(section.starts[-1]), int(section.value_starts[-1])
    data = np.append(section.data[: value + size], np.zeros(1, np.uint8))
    data[value - 4 : value] = np.frombuffer((size + 1).to_bytes(4, "big"), np.uint8)
    assert start < value
    return replace(section, data=data, ends=np.append(section.ends[:-1], len(data)))


@pytest.mark.parametrize(("golden", "stamp"), [("hint-map-1.20-rocksdb", 0), ("hint-map-ttl-1.20-hashmap", 8)])
def test_both_ways_write_the_same(golden: str, stamp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for section, state in maps_of(golden):
        assert state.stored_value is not None
        for one in (section, with_null(section, stamp)):
            expected, heads = for_other_kryo(one, state), one.value_starts - one.starts
            kept = np.zeros(len(one), np.bool_)
            with monkeypatch.context() as patch:
                patch.setattr("stateferry.changes.upgrade.nullable_maps.has_objects", lambda _: True)
                found = nullable_maps(
                    state.stored_value, one.data, one.value_starts, one.ends, heads, kept, of_lists=False
                )
            assert np.array_equal(found.ends, expected.ends)
            for start, value, end in zip(expected.starts, expected.value_starts, expected.ends, strict=True):
                # The lengths of values are put where they are.
                assert np.array_equal(found.data[start : value - 4], expected.data[start : value - 4])
                assert np.array_equal(found.data[value:end], expected.data[value:end])
            seen += len(one)
    assert seen > 20
