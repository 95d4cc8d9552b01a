"""The validation of a catch-up by itself: its list of changed keys, and what it makes of the base and of these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.metadata import NativeHandle, Subtask
from flinkstate.reading.reader import Savepoint
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.serializers.types import Scalar
from flinkstate.values.hash_codes import key_group_of
from stateferry.changes.changed_keys import KeyList
from stateferry.changes.rules import Rules
from stateferry.proof.catch_up import (
    BaseAccount,
    BaseOperator,
    BaseSubtask,
    CatchUpTally,
    ChangedResult,
    ChangedTask,
    sampled_groups,
)
from stateferry.proof.changed_layout import Databases
from stateferry.proof.changed_rows import ChangedRows, Snapshot, changed_rows
from stateferry.proof.expected.check_result import Outcome
from stateferry.proof.expected.content import Account
from stateferry.proof.expected.expected_entries import SourceCounts
from stateferry.proof.keyed_result import KeyedResult, Side
from stateferry.proof.operator_pairs import OperatorPair
from tests.steps.test_nights_since import NOW, first_state
from tests.support.changes import changes_of, conversion_of
from tests.support.legacy_states import FLAG, LEGACY, NEW
from tests.support.native_nights import NightlyDatabase


def handle_of(folder: Path) -> NativeHandle:
    (operator,) = Savepoint.open(str(folder)).keyed_operators()
    handle = operator.subtasks[0].native_keyed
    assert handle is not None
    return handle


def listed(
    before: Path,
    after: Path,
    identities: dict[str, str] | None = None,
    part: KeyGroupRange | None = None,
    most: float = 10.0,
) -> ChangedRows:
    source = Savepoint.open(str(after))
    (operator,) = source.keyed_operators()
    states = {state.name: state for state in source.keyed_states(operator)}
    rules = (Rules(states[LEGACY], NEW, FLAG, None, NOW),)
    conversion = changes_of(rules, states, 128, 128)
    handles = [replace(one, range=part or one.range) for one in map(handle_of, (after, before))]
    new, old = (
        Snapshot(Location.of(str(folder)), handle) for folder, handle in zip((after, before), handles, strict=True)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stateferry.proof.changed_rows._MOST_LISTED", most)
        return changed_rows(new, replace(old, identities=identities), conversion, 128, 0)


def keys_of(found: ChangedRows, state: str = LEGACY) -> Prefixes:
    assert found.keys is not None
    return found.keys[state]


def texts(keys: Prefixes) -> set[str]:
    """The keys without their key groups, as text."""
    bounds = zip(keys.bounds[:-1].tolist(), keys.bounds[1:].tolist(), strict=True)
    return {keys.keys[start + 2 : end].tobytes().decode() for start, end in bounds}


def test_every_key_of_a_file_that_came_or_went_is_listed(tmp_path: Path) -> None:
    database = NightlyDatabase(tmp_path)
    database.flush(first_state(flags={"moved": NOW}))
    first = database.checkpoint(1)
    blobs = {**database.state.blobs, "key-1": ({"u": 1}, NOW), "new": ({"u": 1}, NOW)}
    del blobs["key-2"]
    database.flush(database.state.with_changes(blobs=blobs, flags={"moved": NOW, "key-3": NOW}))
    second = database.checkpoint(2)
    found = listed(first, second)
    assert (found.problems, found.files) == ([], 2)
    for state in (LEGACY, FLAG):
        assert texts(keys_of(found, state)) == {"key-1", "key-2", "key-3", "new"}
    assert KeyList.of(keys_of(found)) == KeyList.of(keys_of(found, FLAG))
    assert KeyList.of(keys_of(found)) != KeyList.of(Prefixes.of(()))
    assert len(keys_of(listed(second, second))) == 0
    # The other way round the same files differ; after a compaction every key is in one.
    assert keys_of(listed(second, first)).bounds.tolist() == keys_of(found).bounds.tolist()
    database.compact()
    third = database.checkpoint(3)
    assert len(keys_of(listed(second, third))) == 401
    # To list them would take longer than to read all rows.
    found = listed(second, third, most=0.25)
    assert (found.keys, found.problems) == (None, [])
    assert found.files > 2


def test_entries_of_key_groups_that_the_subtask_has_not_are_passed_over(tmp_path: Path) -> None:
    """After a rescaling several subtasks have one file."""
    database = NightlyDatabase(tmp_path)
    database.flush(first_state())
    first = database.checkpoint(1)
    blobs = {**database.state.blobs, **{f"key-{number}": ({"u": -1}, NOW) for number in range(30)}}
    database.flush(database.state.with_changes(blobs=blobs))
    second = database.checkpoint(2)
    changed = {f"key-{number}": key_group_of(Scalar.STRING, f"key-{number}", 128) or 0 for number in range(30)}
    parts = [KeyGroupRange(0, 40), KeyGroupRange(41, 127)]
    for part in parts:
        found = listed(first, second, part=part)
        assert found.problems == []
        assert texts(keys_of(found)) == {key for key, group in changed.items() if part.start <= group <= part.end}
    assert {any(part.start <= group <= part.end for group in changed.values()) for part in parts} == {True}


def test_a_database_with_other_states_is_a_problem(tmp_path: Path) -> None:
    one, other = (NightlyDatabase(tmp_path / name) for name in ("one", "other"))
    one.flush(first_state())
    other.state = other.state.with_changes(more_rows={"more": {}})
    other.flush(first_state().with_changes(more_rows={"more": {"key-1": {"u": (1, NOW)}}}))
    found = listed(one.checkpoint(1), other.checkpoint(2))
    assert (found.keys, len(found.problems)) == ({}, 1)
    assert "its states aren't those of" in found.problems[0]


def test_subtasks_without_files_of_their_own_get_no_task(tmp_path: Path) -> None:
    database = NightlyDatabase(tmp_path)
    database.flush(first_state())
    source: Any = Savepoint.open(str(database.checkpoint(1)))
    (operator,) = source.keyed_operators()
    nothing: Any = None
    subtask = operator.subtasks[0]
    assert subtask.native_keyed is not None
    earlier = BaseSubtask(Snapshot(source.folder, subtask.native_keyed), {}, {}, {})
    base = BaseOperator({0: earlier}, {}, Databases(nothing, {0: subtask.native_keyed}))

    def tasks(old: Subtask, new: Subtask, base: BaseOperator) -> list[int]:
        pair = OperatorPair(source, source, replace(operator, subtasks=(old,)), replace(operator, subtasks=(new,)))
        every = pair.changed(conversion_of(source), base, frozenset(), 1)
        return [task.subtask for task in every if isinstance(task, ChangedTask)]

    without = replace(subtask, native_keyed=None)
    assert tasks(subtask, subtask, base) == [0]
    assert tasks(without, subtask, base) == tasks(subtask, without, base) == []
    assert tasks(subtask, subtask, BaseOperator({}, {}, Databases(nothing, {}))) == []


def test_another_file_than_the_base_has_read_is_a_problem(tmp_path: Path) -> None:
    database = NightlyDatabase(tmp_path)
    database.flush(first_state())
    first = database.checkpoint(1)
    (operator,) = Savepoint.open(str(first)).keyed_operators()
    with NativeFile(Location.of(str(first)), handle_of(first), 128, 0) as file:
        streams = {one.name: one.stream for one in file.handle.files}
        known = {streams[table.live.name].name: table.identity for state in range(3) for table in file.tables(state)}
    assert operator.max_parallelism == 128
    assert listed(first, first, known).problems == []
    assert len(listed(first, first, dict.fromkeys(known, "other")).problems) == 1
    assert len(listed(first, first, {}).problems) == 1


def account(**counts: int) -> Account:
    made = Account.of(4)
    for group, count in counts.items():
        made.counts[int(group[1:])], made.sums[int(group[1:])] = count, np.uint64(1000 * count)
    return made


def result(side: Side, found: Account, blob_entries: int = 0) -> KeyedResult:
    counts = {NEW: SourceCounts(blob_entries=blob_entries)} if side is Side.SOURCE else {}
    return KeyedResult("hex", side, 0, accounts={NEW: found}, counts=counts)


NO_RESULT = Databases(Location.of("/base"), {})


def tally(**other: Any) -> CatchUpTally:
    """A base of ten entries, of which three belong to changed keys, that have five now; of the other key group four."""
    nothing: Any = None
    subtask = BaseSubtask(nothing, {}, {}, {})
    base = BaseOperator({0: subtask}, {NEW: BaseAccount(account(g1=6, g2=4), SourceCounts(blob_entries=10))}, NO_RESULT)
    made = CatchUpTally(4, base, frozenset([2]))
    values: dict[str, Any] = {
        "after": (result(Side.SOURCE, account(g1=5), 5), result(Side.STAGED, account(g1=5))),
        "before": (result(Side.SOURCE, account(g1=3), 3), result(Side.STAGED, account(g1=3))),
        "problems": [],
    } | {name: value for name, value in other.items() if name != "whole"}
    made.take(ChangedResult("hex", 0, values["after"], values["before"], values["problems"], 2, 1))
    for side, whole in zip(Side, other.get("whole", (account(g2=4), account(g2=4))), strict=True):
        made.take(result(side, whole))
    return made


def outcomes(of: CatchUpTally) -> list[bool]:
    return [check.outcome is Outcome.PASSED for check in of.checks("main")]


def test_the_result_is_the_base_without_what_was_and_with_what_is() -> None:
    total = tally().total()
    for book in (total.expected, total.found):
        assert book.of(NEW).counts.tolist() == [0, 8, 4, 0]
        assert book.of(NEW).sums.tolist() == [0, 8000, 4000, 0]
    assert total.counts[NEW].blob_entries == 12
    assert outcomes(tally()) == [True] * 5
    assert [(check.expected, check.actual) for check in tally().checks("main")][1:] == [
        ("3 entries, checksum 0000000000000bb8", "3 entries, checksum 0000000000000bb8"),
        ("5 entries, checksum 0000000000001388", "5 entries, checksum 0000000000001388"),
        ("what follows from the base and the changed keys", "4 entries"),
        ("the base's files as they were, and rows of listed keys alone", "0 rows in 0 files"),
    ]
    assert [check.name for check in tally().checks("main")] == [
        "main: changed keys listed", "main: changed keys as they were", "main: changed keys as they are",
        "main: key group 2 read whole", "main: above the base",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("other", "failed"),
    [
        ({"problems": ["one"]}, 0),
        ({"before": (result(Side.SOURCE, account(g1=3)), result(Side.STAGED, account(g1=2)))}, 1),
        ({"after": (result(Side.SOURCE, account(g1=5)), result(Side.STAGED, account(g3=5)))}, 2),
        ({"whole": (account(g2=5), account(g2=4))}, 3),
        ({"whole": (account(g2=4), account(g2=3))}, 3),
    ],
)
def test_what_differs_is_found(other: dict[str, Any], failed: int) -> None:
    assert outcomes(tally(**other)) == [number != failed for number in range(5)]


def test_a_subtask_that_no_task_has_read_is_found() -> None:
    nothing: Any = None
    subtask = BaseSubtask(nothing, {}, {}, {})
    made = CatchUpTally(4, BaseOperator({3: subtask}, {}, replace(NO_RESULT, handles={1: nothing})), frozenset([2]))
    (first, *_, last) = made.checks("main")
    assert (first.outcome, first.actual) == (Outcome.FAILED, "subtask 3 wasn't read")
    assert (last.outcome, last.actual) == (Outcome.FAILED, "subtask 1 of the result wasn't looked at")


def test_key_groups_with_entries_are_read_whole() -> None:
    nothing: Any = None
    accounts = {NEW: BaseAccount(account(g1=6, g3=4))}
    assert {sampled_groups(4, seed, BaseOperator({}, accounts, nothing)) for seed in range(9)} == {
        frozenset([1]), frozenset([3]),
    }  # fmt: skip
    assert sampled_groups(4, 7, BaseOperator({}, {}, nothing)) == {3}
    wide = Account(np.ones(1000, np.int64), np.ones(1000, np.uint64))
    assert len(sampled_groups(1000, 7, BaseOperator({}, {NEW: BaseAccount(wide)}, nothing))) == 7
