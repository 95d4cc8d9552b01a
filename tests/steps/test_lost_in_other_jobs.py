"""What isn't lost: of a job that was started from what stateferry wrote, and of states newer than the upgrade."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from flinkstate.errors import RefusedError
from flinkstate.keyed.keyed_file import WINDOW, Section
from flinkstate.keyed.state import KeyedState, keyed_states
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.group_sections import GroupSections
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import KryoType
from stateferry.changes.counts import LossCounts
from stateferry.changes.upgrade.before_upgrade import BeforeUpgrade, StateBefore
from stateferry.changes.upgrade.flat_maps import flat_map
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo, all_by_kryo_2, for_other_kryo, states_by_kryo
from stateferry.changes.upgrade.kryo_keys import key_type
from stateferry.changes.upgrade.restore_lost import GroupLosses
from stateferry.changes.upgrade.section_rows import value_of, with_values
from stateferry.inventory.inventory import Inventory
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.guards.lost_values import expect_same_job, losses_line, lost_notes
from tests.steps.test_for_another_flink import GOLDEN
from tests.steps.test_lost_entries import ALONE, BEFORE, UPGRADED, _kept
from tests.steps.test_native_source import run


def _groups(savepoint: Savepoint, operator: Operator) -> Iterator[tuple[int, Iterator[tuple[KeyedState, Section]]]]:
    window = np.empty(WINDOW, np.uint8)
    for file in savepoint.open_files(operator):
        states = keyed_states(file.header, file.name)
        for key_group in file.handle.range:
            yield key_group, iter(GroupSections(file, key_group, states, window))


def _by_kryo(savepoint: Savepoint, operator: Operator) -> dict[str, KeyedState]:
    """The states whose keys aren't by Kryo."""
    found = states_by_kryo({state.name: state for state in savepoint.keyed_states(operator)}, None)
    return {name: state for name, state in found.items() if key_type(state) is None}


def _compared(
    folder: Path, change: Callable[[KeyedState, Section], Section], *, restores: bool
) -> dict[str, LossCounts]:
    """Compares a savepoint with what `--to flink-2` makes of it, and a job then changes."""
    old, counts = Savepoint.open(str(folder)), dict[str, LossCounts]()
    for operator in old.keyed_operators():
        states = _by_kryo(old, operator)
        by_2 = {name: all_by_kryo_2(state) for name, state in states.items()}
        before = BeforeUpgrade(
            old, operator, {name: StateBefore(state, None, 0) for name, state in by_2.items()}, restores=restores
        )
        for key_group, group in _groups(old, operator):
            made = [
                (state, change(by_2[state.name], for_other_kryo(section, by_2[state.name])))
                for state, section in group
                if state.name in by_2 and len(section)
            ]
            losses = GroupLosses(before, key_group, counts).sections(states, iter(made), lambda _, one: one)
            contents = [[one.raw.tobytes() for _, one in sections] for sections in (made, losses)]
            assert contents[0] == contents[1]
    return counts


def _without_last_entries(state: KeyedState, section: Section) -> Section:
    """Every third key stays as it is."""
    assert isinstance(state.value, KryoType)
    left: dict[int, bytes] = {}
    for row in range(len(section)):
        map_ = flat_map(state.value, value_of(section, row), five=True)
        if map_ is not None and map_.entries and (section.key_group + row) % 3:
            left[row] = map_.with_entries(map_.entries[:-1])
    return with_values(section, left) if left else section


def test_what_a_job_removed_after_a_right_upgrade_is_not_lost() -> None:
    counts = _compared(BEFORE, _without_last_entries, restores=False)
    assert counts["mainState"].lost
    assert counts["mainState"].unread
    assert not counts["mainState"].misread
    with pytest.raises(RefusedError, match=r"isn't the savepoint .* was restored from one that stateferry wrote"):
        expect_same_job("/old", counts.values())


@pytest.mark.parametrize("restores", [False, True])
@pytest.mark.parametrize("name", ["kryo-parts-1.20-rocksdb", "in-pojos-1.20-rocksdb", "in-pojos-ttl-1.20-rocksdb"])
def test_what_kryo_5_writes_of_the_old_values_has_lost_nothing(name: str, restores: bool) -> None:
    """Also where nobody can tell what Flink 2 would have read."""
    counts = _compared(GOLDEN / name, lambda _, section: section, restores=restores)
    assert sum(one.agreeing for one in counts.values())
    assert [losses_line(one) for one in counts.values()] == [None] * len(counts)


def test_a_repair_may_be_repeated(tmp_path: Path) -> None:
    wanted: dict[str, Any] = {**ALONE, "before": str(BEFORE), "restore_lost": True, "restore_keys": True}
    _, first = run(UPGRADED, tmp_path / "first", **wanted)
    report, again = run(Path(first.plan.target), tmp_path / "again", **wanted)
    assert report.is_green, report
    (counts,) = (_kept(again).losses or {}).values()
    assert (counts.found, counts.lost, counts.gone, counts.untold) == (17, 0, 0, 0)
    assert counts.unread
    contents = [
        sorted(one.read_bytes() for one in Path(made.plan.target).iterdir() if one.name != "_metadata")
        for made in (first, again)
    ]
    assert contents[0] == contents[1]


def _newer(value: bytes) -> tuple[dict[str, KeyedState], list[tuple[KeyedState, Section]], BeforeUpgrade]:
    """A state that the savepoint from before the upgrade hasn't, with one value in all rows of a section."""
    now = Savepoint.open(str(UPGRADED))
    (operator,) = now.keyed_operators()
    state, section = next(one for _, group in _groups(now, operator) for one in group if len(one[1]))
    known = {state.name: replace(state, value=KryoType("java.lang.Object"))}
    changed = with_values(section, dict.fromkeys(range(len(section)), value))
    return known, [(state, changed)], BeforeUpgrade(now, operator, {})


def test_of_a_state_that_is_newer_than_the_upgrade_all_is_by_kryo_5() -> None:
    by_kryo, found, before = _newer(b"\x0a" + struct.pack("<d", 1.5))
    rewritten, key_group = ForOtherKryo(by_kryo).section, found[0][1].key_group
    with pytest.raises(RefusedError, match="could both have written"):
        rewritten(*found[0])
    ((_, made),) = GroupLosses(before, key_group, {}).sections(by_kryo, found, rewritten)
    assert made.raw.tobytes() == found[0][1].raw.tobytes()
    by_kryo, found, before = _newer(b"\x57\x01\x02\x03\x01\xe1")
    with pytest.raises(RefusedError, match="Kryo 5 has not written this value"):
        list(GroupLosses(before, key_group, {}).sections(by_kryo, found, rewritten))


def test_a_class_that_is_not_known_is_named() -> None:
    name = b"com.acme.Totals"
    by_kryo, found, before = _newer(b"\x01\x00" + name[:-1] + bytes([name[-1] | 0x80]) + b"\x01\x05")
    with pytest.raises(RefusedError, match=r"com\.acme\.Totals can't be read .* --classes job\.jar"):
        list(GroupLosses(before, found[0][1].key_group, {}).sections(by_kryo, found, lambda _, one: one))


def test_what_a_run_has_not_compared_is_noted() -> None:
    source, old = Savepoint.open(str(UPGRADED)), GOLDEN / "kryo-1.20-rocksdb"
    changes = [
        SimpleNamespace(operator=operator, by_kryo=_by_kryo(source, operator)) for operator in source.keyed_operators()
    ]
    plan = SimpleNamespace(before=str(old), files_from=None, job_classes=None, restore_lost=False)
    resolved = cast("ResolvedPlan", SimpleNamespace(plan=plan, source=source, changes=changes))
    notes = [note for note in lost_notes(resolved, Inventory()) if note.startswith("not compared")]
    assert [note for note in notes if "operator main has keyed state by Kryo, and no keyed state in" in note]
