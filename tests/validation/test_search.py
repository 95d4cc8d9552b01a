"""Which tasks there are, and how the entries that differ are found: in few key groups, by slices, with a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkstate.errors import DamagedError
from flinkstate.keyed.compression import Compression
from flinkstate.keyed.header import KeyedHeader
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.chunks import Chunk, plan_chunks
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.changes.operator_changes import Conversion
from stateferry.proof import checks
from stateferry.proof import operator_pairs as pairs_module
from stateferry.proof.carried_check import CarriedTask
from stateferry.proof.checks import (
    CheckResult,
    CheckTask,
    StagedStates,
    _Search,
    find_samples,
    judge,
    open_staged,
    plan_checks,
    tally_up,
    validate,
)
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.expected.content import Account
from stateferry.proof.expected.sample_text import ProbedEntry
from stateferry.proof.expected.sampling import seed_of
from stateferry.proof.keyed_check import KeyedTask
from stateferry.proof.keyed_result import KeyedResult, Probe, Side
from stateferry.proof.operator_pairs import OperatorPair, operator_pairs
from stateferry.proof.tally import Tally
from tests.savepoint.test_moved_files import with_files_at
from tests.support.changes import conversion_of
from tests.support.rewriting import rewrite
from tests.validation.test_checks import GOLDEN, NEW, migrated

ENTRY = ProbedEntry(7, {"key": '"a"'}, False, "5", 55, None, 1, 100, None)


def account(*counts: int, sums: Sequence[int] = ()) -> Account:
    made = Account.of(len(counts))
    made.counts[:] = counts
    made.sums[: len(sums)] = sums
    return made


@pytest.mark.parametrize(
    ("one", "other", "slices"),
    [
        (account(1, 2, 3), account(1, 2, 3), ()),
        (account(1, 2, 3), account(1, 1, 3), (1,)),
        (account(1, 1, sums=(5,)), account(1, 1, sums=(6,)), (0,)),
        (account(*[1] * 12), account(*[0] * 12), tuple(range(10))),
        # As many as have fewer than 20,000 entries on both sides together, and always one.
        (account(10_000, 1), account(9_998, 0), (0, 1)),
        (account(10_000, 1), account(9_999, 0), (0,)),
        (account(30_000, 1), account(0, 0), (0,)),
        (account(1, 30_000, 1), account(0, 0, 0), (0,)),
    ],
)
def test_differing_slices(one: Account, other: Account, slices: tuple[int, ...]) -> None:
    assert _Search._differing_slices(one, other) == _Search._differing_slices(other, one) == slices


@dataclass(frozen=True)
class Task:
    """Stands for a task that reads some key groups."""

    side: Side
    probe: Probe | None = None


class StubPair:
    """An operator of which each side has one task; remembers for which key groups it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[set[int], tuple[Side, ...]]] = []

    def keyed(self, conversion: object, target_bytes: int, wanted: Container[int], sides: Sequence[Side]) -> list[Task]:
        self.asked.append(({group for group in range(100) if group in wanted}, tuple(sides)))
        return [Task(side) for side in sides]


def result(side: Side, **settings: Any) -> KeyedResult:
    return replace(KeyedResult("operator", side, 0, None), **settings)


class Answers:
    """Does probes: source and result have these slices and entries."""

    def __init__(self, slices: dict[Side, Account], entries: dict[Side, list[ProbedEntry]]) -> None:
        self.slices, self.entries, self.probes = slices, entries, list[Probe]()

    def __call__(self, tasks: Sequence[Any]) -> Iterator[KeyedResult]:
        self.probes.append(tasks[0].probe)
        for task in tasks:
            assert task.probe == self.probes[-1]
            if task.probe.slices or task.probe.strays:
                yield result(task.side, entries=self.entries[task.side])
            else:
                size = 1 << task.probe.bits
                yield result(task.side, slices=self.slices.get(task.side, Account.of(2)).resized(size))


def search_of(answers: Any) -> tuple[_Search, StubPair]:
    pair: Any = StubPair()
    return _Search(pair, Conversion(Layout(), {}, 0), answers, 1), pair


def tally_of(expected: Sequence[int], found: Sequence[int]) -> Tally:
    tally = Tally(len(expected))
    tally.expected.take({"s": account(*expected)})
    tally.found.take({"s": account(*found)})
    return tally


def test_entries_that_differ_are_looked_for_in_slices_that_differ() -> None:
    answers = Answers({Side.SOURCE: account(3, 4), Side.STAGED: account(3, 3)}, {Side.SOURCE: [ENTRY], Side.STAGED: []})
    search, pair = search_of(answers)
    found = search.differences("s", [7, 9], tally_of([0] * 10, [0] * 10))
    assert found == [(7, 'key "a": missing, with the value 5')]
    assert answers.probes == [Probe("s", (7, 9), 1), Probe("s", (7, 9), 1, slices=(1,))]
    assert pair.asked == [({7, 9}, tuple(Side))] * 2


def test_without_slices_that_differ_nothing_is_looked_for() -> None:
    answers = Answers({}, {})
    assert search_of(answers)[0].differences("s", [7], tally_of([0] * 10, [0] * 10)) == []
    assert len(answers.probes) == 1


@pytest.mark.parametrize(
    ("expected", "found", "bits"),
    [(0, 0, 1), (63, 0, 1), (64, 0, 1), (127, 127, 1), (128, 0, 2), (0, 128, 2), (255, 254, 2), (256, 0, 3),
     (64 << 14, 0, 15), (64 << 15, 0, 16), (64 << 20, 0, 16)],
)  # fmt: skip
def test_slices_are_as_many_as_have_about_64_entries(expected: int, found: int, bits: int) -> None:
    """Of the key groups that are probed alone."""
    answers = Answers({}, {})
    search_of(answers)[0].differences("s", [1], tally_of([999, expected], [999, found]))
    assert answers.probes == [Probe("s", (1,), bits)]


def test_at_most_32_key_groups_are_probed() -> None:
    answers = Answers({}, {Side.STAGED: []})
    search, _ = search_of(answers)
    search.differences("s", list(range(40)), tally_of([1] * 40, [0] * 40))
    search.strays("s", list(range(40)))
    assert [probe.key_groups for probe in answers.probes] == [tuple(range(32))] * 2


def test_damage_ends_the_search() -> None:
    def damaged(tasks: Sequence[Any]) -> list[KeyedResult]:
        return [result(Side.STAGED, damage=DamagedError("a row", "nothing"))]

    search, _ = search_of(damaged)
    with pytest.raises(DamagedError):
        search.differences("s", [7], tally_of([0] * 10, [0] * 10))
    assert search.strays("s", [7]) == []


def test_strays_are_named_by_the_result() -> None:
    answers = Answers({}, {Side.STAGED: [ENTRY] * 12, Side.SOURCE: []})
    search, pair = search_of(answers)
    assert search.strays("s", [7]) == [(7, 'key "a": its hash leads to another key group')] * 10
    assert answers.probes == [Probe("s", (7,), strays=True)]
    assert pair.asked == [({7}, (Side.STAGED,))]


# Of real savepoints.


@pytest.fixture(scope="module", params=[None, 300], ids=["same", "max300"])
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Savepoint, Savepoint, Conversion]:
    folder = tmp_path_factory.mktemp("search")
    made = migrated(GOLDEN / "legacy-2.3-rocksdb", folder / "new", "main", Layout(max_parallelism=request.param))
    return made.source, Savepoint.open(str(folder / "new")), made.conversion


def groups_of(tasks: Sequence[KeyedTask], side: Side) -> set[int]:
    parts = [part for task in tasks if task.side is side for part in task.chunk.parts]
    return {group for part in parts for group in part.key_groups}


def test_tasks_read_both_savepoints_and_share_the_sample(case: tuple[Savepoint, Savepoint, Conversion]) -> None:
    source, staged, conversion = case
    tasks = [task for task in plan_checks(source, staged, conversion, target_bytes=3000) if isinstance(task, KeyedTask)]
    for side, savepoint in ((Side.SOURCE, source), (Side.STAGED, staged)):
        own = [task for task in tasks if task.side is side]
        assert len(own) > 1
        assert all(task.folder == savepoint.folder for task in own)
        specs = [task.sample for task in own if task.sample is not None]
        assert {spec.seed for spec in specs} == {seed_of(source)}
        assert sum(spec.share for spec in specs) == pytest.approx(1)
        assert [spec.share for spec in specs] == pytest.approx(
            [task.size / sum(one.size for one in own) for task in own]
        )
    assert all(task.check_keys for task in tasks)
    assert {task.operator for task in tasks} == {
        operator.hex_id for operator in source.metadata.operators if operator.label == "main"
    }


def test_a_search_reads_the_key_groups_that_it_wants(case: tuple[Savepoint, Savepoint, Conversion]) -> None:
    """If keys get other key groups, those of the new ones may come from any."""
    source, staged, conversion = case
    pair = next(pair for pair in operator_pairs(source, staged) if pair.old.label == "main")
    every = pair.keyed(conversion, 1 << 20)
    wanted = set(sorted(groups_of(every, Side.SOURCE) & groups_of(every, Side.STAGED))[2:4])
    some = pair.keyed(conversion, 1 << 20, wanted)
    assert groups_of(some, Side.STAGED) == wanted
    moves = conversion.layout.max_parallelism is not None
    assert groups_of(some, Side.SOURCE) == (groups_of(every, Side.SOURCE) if moves else wanted)
    assert len(groups_of(every, Side.SOURCE)) > 10
    alone = pair.keyed(conversion, 1 << 20, sides=(Side.STAGED,))
    assert {task.side for task in alone} == {Side.STAGED}
    assert all(task.sample is None for task in (*every, *alone))


@pytest.mark.parametrize("max_parallelism", [None, 300])
def test_keys_are_checked_where_they_may_have_moved(max_parallelism: int | None, tmp_path: Path) -> None:
    source = Savepoint.open(str(GOLDEN / "legacy-2.3-rocksdb"))
    layout = Layout(max_parallelism=max_parallelism, compression=Compression.NONE)
    rewrite(source, str(tmp_path / "new"), layout)
    staged = Savepoint.open(str(tmp_path / "new"))
    for tasks in (plan_checks(source, staged, conversion_of(source, layout)),):
        assert {task.check_keys for task in tasks if isinstance(task, KeyedTask)} == {max_parallelism is not None}
    pair = next(pair for pair in operator_pairs(source, staged) if pair.old.label == "main")
    stateless = replace(pair.old, subtasks=())
    bare = OperatorPair(source, staged, stateless, pair.new)
    assert not bare.checks_keys(conversion_of(source, layout))
    nothing = OperatorPair(source, staged, stateless, replace(pair.new, subtasks=()))
    assert nothing.keyed(conversion_of(source, layout), 1 << 20) == []


@pytest.mark.parametrize("side", ["old", "new"])
def test_carried_state_that_one_side_alone_has_is_compared(
    side: str, case: tuple[Savepoint, Savepoint, Conversion], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, staged, conversion = case
    has_it = next(getattr(pair, side) for pair in operator_pairs(source, staged) if pair.old.label == "main")
    monkeypatch.setattr(checks, "has_carried_state", lambda operator: operator is has_it)
    carried = [task for task in plan_checks(source, staged, conversion) if isinstance(task, CarriedTask)]
    assert [task.operator for task in carried] == [has_it.hex_id]


def test_a_source_that_cannot_be_cut_into_chunks_is_an_error(
    case: tuple[Savepoint, Savepoint, Conversion], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, staged, conversion = case
    pair = next(pair for pair in operator_pairs(source, staged) if pair.old.label == "main")
    damaged: list[Operator] = []

    def planned(operator: Operator, *others: Any, **settings: Any) -> tuple[Chunk, ...]:
        if operator in damaged:
            raise DamagedError("offsets that grow", "others")
        return plan_chunks(operator, *others, **settings)

    monkeypatch.setattr(pairs_module, "plan_chunks", planned)
    assert pair.uncuttable() is None
    found = result(Side.STAGED, operator=pair.old.hex_id, strays={"s": Counter({3: 2})})
    tallies = tally_up(source, staged, conversion, [found])
    assert tallies[pair.old.hex_id].strays == {"s": Counter({3: 2})}
    assert not any(tally.damage for tally in tallies.values())
    damaged.append(pair.new)
    assert {task.side for task in pair.keyed(conversion, 1 << 20)} == {Side.SOURCE}
    assert isinstance(pair.uncuttable(), DamagedError)
    noted = tally_up(source, staged, conversion, [])[pair.old.hex_id].damage
    assert [text for _, text in noted] == [f"{pair.uncuttable()}"]
    damaged[:] = [pair.old]
    with pytest.raises(DamagedError, match="offsets that grow"):
        pair.keyed(conversion, 1 << 20)


def test_a_result_has_its_files_where_a_person_has_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / METADATA).write_bytes(build_metadata(with_files_at("s3://b/shared/file")))
    assert isinstance(open_staged(str(tmp_path)), Check)
    assert isinstance(open_staged(str(tmp_path), ["s3://b/shared"]), Savepoint)
    # Key groups that two subtasks have are for a later check to name.
    metadata = with_files_at("s3://b/shared/file")
    *others, last = metadata.operators
    twice = replace(last, subtasks=(*last.subtasks[:-1], replace(last.subtasks[0], index=last.subtasks[-1].index)))
    (tmp_path / METADATA).write_bytes(build_metadata(replace(metadata, operators=(*others, twice))))
    with pytest.raises(DamagedError):
        Savepoint.open(str(tmp_path), places=["s3://b/shared"])
    assert isinstance(open_staged(str(tmp_path), ["s3://b/shared"]), Savepoint)
    refused = open_staged(str(tmp_path))
    assert isinstance(refused, Check)
    assert "on another store than the savepoint" in refused.actual
    # It doesn't depend on the order in which a savepoint is checked when it is opened.

    def contradictory(name: str, places: Sequence[str]) -> Savepoint:
        raise DamagedError("an id", "another")

    monkeypatch.setattr(Savepoint, "open", contradictory)
    refused = open_staged(str(tmp_path))
    assert isinstance(refused, Check)
    assert "on another store than the savepoint" in refused.actual


def test_headers_that_cannot_be_read_are_a_failed_check(
    case: tuple[Savepoint, Savepoint, Conversion], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, staged, conversion = case
    pair = next(pair for pair in operator_pairs(source, staged) if pair.old.label == "main")
    assert checks._headers(pair, conversion).outcome is Outcome.PASSED
    read = checks._headers_by_subtask
    compared = list[set[int]]()

    def compare(label: str, expected: KeyedHeader, own: dict[int, KeyedHeader], found: dict[int, KeyedHeader]) -> Any:
        compared.append(set(own))
        return ()

    with monkeypatch.context() as patch:
        patch.setattr(checks, "compare_headers", compare)
        checks._headers(pair, conversion)
    # Where key groups move, no subtask has a header of its own.
    moves = conversion.layout.max_parallelism is not None
    assert compared == [set() if moves else set(read(source, pair.old))]
    assert read(source, pair.old)

    def damaged(savepoint: Savepoint, operator: Operator) -> dict[int, KeyedHeader]:
        if savepoint is staged:
            raise DamagedError("a header", "nothing")
        return read(savepoint, operator)

    monkeypatch.setattr(checks, "_headers_by_subtask", damaged)
    found = checks._headers(pair, conversion)
    assert (found.name, found.outcome, found.expected) == ("main: headers", Outcome.FAILED, "as planned")
    assert "expected a header, found nothing" in found.actual
    without: Any = SimpleNamespace(keyed_header=lambda operator: None)
    of_none = checks._headers(replace(pair, source=without), conversion)
    assert (of_none.outcome, of_none.expected, of_none.actual) == (Outcome.FAILED, "no keyed state", "keyed state")


def test_metadata_may_be_of_another_version_if_the_conversion_says_so(
    case: tuple[Savepoint, Savepoint, Conversion],
) -> None:
    source, staged, conversion = case
    tallies = {pair.old.hex_id: Tally(300) for pair in operator_pairs(source, staged)}
    version = source.metadata.version
    for told, outcome in ((version, Outcome.PASSED), (version + 1, Outcome.FAILED)):
        check, *_ = judge(source, staged, replace(conversion, version=told), tallies, {})
        assert (check.name, check.outcome) == ("_metadata", outcome)


def test_chunks_are_of_the_size_that_is_asked_for(case: tuple[Savepoint, Savepoint, Conversion]) -> None:
    asked: list[Sequence[CheckTask]] = []

    def do(tasks: Sequence[CheckTask]) -> Iterator[CheckResult]:
        asked.append(tasks)
        return checks.do_here(tasks)

    accounts: StagedStates = {}
    validate(*case, do=do, target_bytes=3000, accounts=accounts)
    assert accounts.keys() == {(case[0].operator("main").hex_id, NEW)}
    assert all(one.counts.any() for one in accounts.values())
    assert asked == [plan_checks(*case, target_bytes=3000)]
    assert len(asked[0]) > len(plan_checks(*case))


def test_samples_are_looked_for_where_states_differ_or_keys_stray(
    case: tuple[Savepoint, Savepoint, Conversion], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, staged, conversion = case
    asked: list[tuple[str, str, list[int]]] = []

    def differences(self: _Search, state: str, groups: list[int], tally: Tally) -> list[tuple[int, str]]:
        asked.append(("differing", state, groups))
        return [(1, "differs")]

    def strays(self: _Search, state: str, groups: list[int]) -> list[tuple[int, str]]:
        asked.append(("strays", state, groups))
        return [(1, "strays")]

    monkeypatch.setattr(_Search, "differences", differences)
    monkeypatch.setattr(_Search, "strays", strays)

    def tallies() -> dict[str, Tally]:
        made = {pair.old.hex_id: Tally(300) for pair in operator_pairs(source, staged)}
        main = made[source.operator("main").hex_id]
        main.found.of("a").counts[3] = 1
        main.strays = {"a": Counter({9: 1}), NEW: Counter({9: 1, 4: 2}), "none": Counter()}
        return made

    hex_id = source.operator("main").hex_id
    found = find_samples(source, staged, conversion, tallies(), lambda _: (), 1)
    assert found == {(hex_id, "a"): [(1, "differs")], (hex_id, NEW): [(1, "strays")]}
    assert asked == [("differing", "a", [3]), ("strays", NEW, [4, 9])]
    damaged = tallies()
    damaged[hex_id].note_damage(DamagedError("a row", "nothing"))
    assert find_samples(source, staged, conversion, damaged, lambda _: (), 1) == {}
    first, *_, last = [pair.old.hex_id for pair in operator_pairs(source, staged)]
    damaged = {hex_id: Tally(300) for hex_id in tallies()}
    damaged[first].note_damage(DamagedError("a row", "nothing"))
    damaged[last].strays = {"b": Counter({2: 1})}
    assert find_samples(source, staged, conversion, damaged, lambda _: (), 1) == {(last, "b"): [(1, "strays")]}
