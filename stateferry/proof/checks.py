"""The validation: compares a staged savepoint with its source, from the bytes of both and nothing else.

Tasks (`plan_checks`, `do_check`) may run anywhere and return small results. `validate` adds up the results and judges
them. Only where they differ, the savepoints are read twice more: first to find the slices that differ, then to find the
entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import gcd

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.storage import Location
from flinkstate.keyed.header import KeyedHeader
from flinkstate.metadata.chunks import TARGET_BYTES
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.moved_files import check_stores
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.metadata.savepoint_properties import in_version
from flinkstate.reading.reader import Savepoint, has_keyed_state
from stateferry.basics.state_ref import StateRef
from stateferry.changes.operator_changes import Conversion
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo
from stateferry.proof.above_base import AboveBase, AboveBaseTask
from stateferry.proof.carried_check import CarriedResult, CarriedTask, has_carried_state
from stateferry.proof.catch_up import (
    BaseAccount,
    BaseOperator,
    CatchUpTally,
    ChangedResult,
    ChangedTask,
    sampled_groups,
)
from stateferry.proof.changed_layout import WholeGroups
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.expected.content import Account
from stateferry.proof.expected.sample_text import MOST_SAMPLES, ProbedEntry, compare
from stateferry.proof.expected.sampling import SampleSpec, seed_of
from stateferry.proof.judgement import OperatorJudge, Samples
from stateferry.proof.keyed_check import KeyedTask
from stateferry.proof.keyed_result import KeyedResult, Probe, Side
from stateferry.proof.metadata_check import (
    Mismatch,
    compare_headers,
    compare_metadata,
    expected_header,
    moving,
)
from stateferry.proof.operator_pairs import OperatorPair, operator_pairs
from stateferry.proof.tally import Derived, Tally

CheckTask = KeyedTask | CarriedTask | ChangedTask | AboveBaseTask
CheckResult = KeyedResult | CarriedResult | ChangedResult | AboveBase
# The accounts of the staged savepoint by operator and new state.
StagedStates = dict[StateRef, Account]
# What a catch-up can build on, by operator and state; and what one builds on, by operator id.
BaseStates = dict[StateRef, BaseAccount]
Base = Mapping[bytes, BaseOperator]


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What a catch-up builds on, if the savepoint is of one; and what another one can build on, once it is known."""

    base: Base | None = None
    found: BaseStates = field(default_factory=dict)


DoTasks = Callable[[Sequence[CheckTask]], Iterable[CheckResult]]

_MOST_GROUPS_PROBED = 32
_MOST_BITS = 16
_ENTRIES_OF_A_SLICE = 64
_MOST_PROBED = 20_000


def do_check(task: CheckTask) -> CheckResult:
    """Does one task."""
    return task.do()


def do_here(tasks: Sequence[CheckTask]) -> Iterator[CheckResult]:
    """Does tasks in this process."""
    return map(do_check, tasks)


def open_staged(name: str, places: Sequence[str] = ()) -> Savepoint | Check:
    """The staged savepoint, or a failed check if it can't be read; its files may be in `places`."""
    try:
        try:
            return Savepoint.open(name, places=places)
        except DamagedError:
            # Contradictions inside `_metadata` are found by later checks, which name them.
            folder = Location.of(name)
            file = folder.child(METADATA)
            metadata = parse_metadata(file.read(), file.shown)
            check_stores(metadata, file.shown, (folder.shown, *places))
            return Savepoint(folder, metadata)
    except (DamagedError, RefusedError) as error:
        return Check("readable", Outcome.FAILED, "a savepoint", f"{error}")


def plan_checks(
    source: Savepoint,
    staged: Savepoint,
    conversion: Conversion,
    *,
    target_bytes: int = TARGET_BYTES,
    base: Base | None = None,
) -> list[CheckTask]:
    """All tasks. Of the operators in `base` only changed keys are read, and some key groups.

    Keyed state of the staged savepoint that can't be cut into chunks gets none; `tally_up` records it as damage.
    """
    tasks: list[CheckTask] = []
    seed = seed_of(source)
    for pair in operator_pairs(source, staged):
        if base and pair.old.id in base:
            whole = _whole(pair, conversion, base[pair.old.id], seed)
            # The changed keys have a sample of their own; of these key groups plain code reads RocksDB's files alone.
            keyed = pair.keyed(conversion, target_bytes, whole.result, seed=seed, of_source=whole.source)
            tasks += [replace(task, sample=SampleSpec(seed, 0.0)) for task in keyed]
            tasks += pair.changed(conversion, base[pair.old.id], whole.source, seed)
        else:
            tasks += pair.keyed(conversion, target_bytes, seed=seed)
        if has_carried_state(pair.old) or has_carried_state(pair.new):
            elements = conversion.of(pair.old).elements
            tasks.append(CarriedTask(source.folder, pair.old, staged.folder, pair.new, elements))
    return tasks


def _whole(pair: OperatorPair, conversion: Conversion, base: BaseOperator, seed: int) -> WholeGroups:
    own = conversion.of(pair.old)
    divisor = gcd(own.old_max, own.new_max)
    return WholeGroups.of(sampled_groups(divisor, seed, base), divisor, own)


def validate(
    source: Savepoint,
    staged: Savepoint,
    conversion: Conversion,
    *,
    do: DoTasks = do_here,
    target_bytes: int = TARGET_BYTES,
    accounts: StagedStates | None = None,
    derived: Mapping[str, Derived] | None = None,
    catch_up: CatchUp | None = None,
) -> list[Check]:
    """Does all checks. Damage in the source raises an error; damage in the staged savepoint is a failed check.

    The accounts of the new states in the staged savepoint are put into `accounts`, of a lazy run those of all keys.
    `derived` is what the snapshot didn't read, by operator and legacy state. With `catch_up` only changed keys
    are read where that has a base.
    """
    base = None if catch_up is None else catch_up.base
    caught_up: dict[str, CatchUpTally] = {}
    tasks = plan_checks(source, staged, conversion, target_bytes=target_bytes, base=base)
    tallies = tally_up(source, staged, conversion, do(tasks), base, caught_up)
    if catch_up is not None:
        catch_up.found.update(
            (
                StateRef(pair.old.hex_id, state),
                BaseAccount(tally.found.of(state), tally.counts.get(state), tally.aging.get(state)),
            )
            for pair in operator_pairs(source, staged)
            if conversion.of(pair.old).writes_rows
            for tally in [tallies[pair.old.hex_id]]
            # Maps that are empty, or have expired, have no row in the result.
            for state in sorted(tally.found.accounts.keys() | tally.counts.keys() | tally.aging.keys())
        )
    if accounts is not None:
        accounts |= {
            StateRef(pair.old.hex_id, rules.new_name): tallies[pair.old.hex_id].of_all_keys(
                rules.new_name, is_lazy=bool(conversion.of(pair.old).flags)
            )
            for pair in operator_pairs(source, staged)
            for rules in conversion.of(pair.old).rules
            if rules.fills_tables
        }
    samples = find_samples(source, staged, conversion, tallies, do, target_bytes)
    labels = {pair.old.hex_id: pair.old.label for pair in operator_pairs(source, staged)}
    own = [check for id_, tally in caught_up.items() for check in tally.checks(labels[id_])]
    return judge(source, staged, conversion, tallies, samples, derived) + own


def tally_up(
    source: Savepoint,
    staged: Savepoint,
    conversion: Conversion,
    results: Iterable[CheckResult],
    base: Base | None = None,
    caught_up: dict[str, CatchUpTally] | None = None,
) -> dict[str, Tally]:
    """Adds up the results of each operator; those of operators in `base` go into `caught_up` as well."""
    tallies, of_base = {}, {} if caught_up is None else caught_up
    for pair in operator_pairs(source, staged):
        # The staged savepoint may have another max parallelism than it should.
        size = max(conversion.layout.of(pair.old).max_parallelism, pair.new.max_parallelism)
        tallies[pair.old.hex_id] = Tally(size)
        if base and pair.old.id in base:
            whole = _whole(pair, conversion, base[pair.old.id], seed_of(source))
            of_base[pair.old.hex_id] = CatchUpTally(size, base[pair.old.id], whole.result)
    for result in results:
        if isinstance(result, ChangedResult | AboveBase) or result.operator in of_base:
            of_base[result.operator].take(result)
        else:
            tallies[result.operator].take(result)
    tallies |= {id_: tally.total() for id_, tally in of_base.items()}
    for pair in operator_pairs(source, staged):
        error = pair.uncuttable()
        if error is not None:
            tallies[pair.old.hex_id].note_damage(error)
    return tallies


def judge(
    source: Savepoint,
    staged: Savepoint,
    conversion: Conversion,
    tallies: dict[str, Tally],
    samples: Samples,
    derived: Mapping[str, Derived] | None = None,
) -> list[Check]:
    """The checks that follow from the results."""
    described = in_version(source.metadata, conversion.version)
    rehashed = {id_ for id_, one in conversion.operators.items() if one.rehashes}
    found = compare_metadata(described, staged.metadata, conversion.layout, rehashed)
    checks = [_of_differences("_metadata", list(found))]
    seed = seed_of(source)
    for pair in operator_pairs(source, staged):
        tally = tallies[pair.old.hex_id]
        own, label = conversion.of(pair.old), pair.old.label
        of_operator = OperatorJudge(
            pair.old.hex_id, label, own, pair.checks_keys(conversion), seed, tally, samples, derived or {}
        )
        keyed = has_keyed_state(pair.old) or has_keyed_state(pair.new)
        carried = has_carried_state(pair.old) or has_carried_state(pair.new)
        if keyed:
            checks.append(_headers(pair, conversion))
        if keyed or tally.damage:
            checks.append(of_operator.readable())
        checks += [*(of_operator.checks() if keyed else ()), *(of_operator.carried() if carried else ())]
    return checks


def _of_differences(name: str, found: list[Mismatch]) -> Check:
    if not found:
        return Check(name, Outcome.PASSED, "as planned", "as planned")
    groups = tuple(sorted({group for difference in found for group in difference.key_groups}))
    texts = tuple(f"{one.what}: expected {one.expected}, found {one.found}" for one in found)
    return Check(name, Outcome.FAILED, "as planned", texts[0], groups, texts[:MOST_SAMPLES])


def _headers(pair: OperatorPair, conversion: Conversion) -> Check:
    name = f"{pair.old.label}: headers"
    merged = pair.source.keyed_header(pair.old)
    if merged is None:
        return Check(name, Outcome.FAILED, "no keyed state", "keyed state")
    changes = conversion.of(pair.old)
    moved = moving(pair.old, conversion.layout, rehashed=changes.rehashes)
    rewrite = ForOtherKryo(changes.by_kryo)
    before = {} if moved else _headers_by_subtask(pair.source, pair.old)
    own = {subtask: rewrite.header(header) for subtask, header in before.items()}
    try:
        found = _headers_by_subtask(pair.staged, pair.new)
    except (DamagedError, RefusedError) as error:
        return Check(name, Outcome.FAILED, "as planned", f"{error}")
    expected = expected_header(merged, changes)
    return _of_differences(name, list(compare_headers(pair.old.label, expected, own, found)))


def _headers_by_subtask(savepoint: Savepoint, operator: Operator) -> dict[int, KeyedHeader]:
    return {subtask: header for subtask, _, header in savepoint.headers(operator)}


def find_samples(
    source: Savepoint,
    staged: Savepoint,
    conversion: Conversion,
    tallies: dict[str, Tally],
    do: DoTasks,
    target_bytes: int,
) -> Samples:
    """Finds up to ten wrong entries in each state that differs, and says what is wrong with them."""
    samples: dict[StateRef, list[tuple[int, str]]] = {}
    for pair in operator_pairs(source, staged):
        tally = tallies[pair.old.hex_id]
        if tally.damage:
            continue
        search = _Search(pair, conversion, do, target_bytes)
        differing = tally.differing()
        for state, groups in differing.items():
            samples[StateRef(pair.old.hex_id, state)] = search.differences(state, groups, tally)
        for state, strays in tally.strays.items():
            if strays and state not in differing:
                samples[StateRef(pair.old.hex_id, state)] = search.strays(state, sorted(strays))
    return samples


@dataclass(frozen=True, slots=True)
class _Search:
    """Finds the wrong entries of one operator."""

    pair: OperatorPair
    conversion: Conversion
    do: DoTasks
    target_bytes: int

    def _probed(self, probe: Probe, sides: Sequence[Side] = tuple(Side)) -> Iterator[KeyedResult]:
        wanted = set(probe.key_groups)
        tasks = self.pair.keyed(self.conversion, self.target_bytes, wanted, sides)
        for result in self.do([replace(task, probe=probe) for task in tasks]):
            assert isinstance(result, KeyedResult)
            if result.damage is not None:
                raise result.damage
            yield result

    def differences(self, state: str, groups: list[int], tally: Tally) -> list[tuple[int, str]]:
        """Finds differing entries in the state's key groups: by slices first, then by entries."""
        probed = tuple(groups[:_MOST_GROUPS_PROBED])
        entries = max(int(book.of(state).counts[list(probed)].sum()) for book in (tally.expected, tally.found))
        bits = min(max((entries // _ENTRIES_OF_A_SLICE).bit_length(), 1), _MOST_BITS)
        probe = Probe(state, probed, bits)
        accounts = {side: Account.of(1 << bits) for side in Side}
        for result in self._probed(probe):
            assert result.slices is not None
            accounts[result.side].take(result.slices)
        slices = self._differing_slices(accounts[Side.SOURCE], accounts[Side.STAGED])
        found: dict[Side, list[ProbedEntry]] = {side: [] for side in Side}
        for result in self._probed(replace(probe, slices=slices)) if slices else ():
            found[result.side] += result.entries
        return compare(found[Side.SOURCE], found[Side.STAGED])

    @staticmethod
    def _differing_slices(one: Account, other: Account) -> tuple[int, ...]:
        """Up to ten differing slices, fewer if they hold too many entries."""
        different = one.differences(other)[:MOST_SAMPLES]
        sizes = np.cumsum(one.counts[different] + other.counts[different])
        return tuple(different[: max(int(np.searchsorted(sizes, _MOST_PROBED)), 1)].tolist())

    def strays(self, state: str, groups: list[int]) -> list[tuple[int, str]]:
        """Names entries whose key belongs to another key group."""
        probe = Probe(state, tuple(groups[:_MOST_GROUPS_PROBED]), strays=True)
        with suppress(DamagedError):
            found = [entry for result in self._probed(probe, (Side.STAGED,)) for entry in result.entries]
            return [
                (entry.key_group, f"{entry.name}: its hash leads to another key group")
                for entry in found[:MOST_SAMPLES]
            ]
        return []
