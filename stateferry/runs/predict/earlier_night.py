"""The rehearsal before this one, if this one can go on from what that one has read.

Both must be rehearsals of the same plan, and the earlier one must be the job's newest other run and green: after a run
that has failed, everything is read. Its source must still be there, as it was then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import ClassVar, TypeVar

from flinkstate.errors import RefusedError, StateferryError
from flinkstate.files.digests import digest_of, new_hasher
from flinkstate.files.storage import Location
from flinkstate.keyed.native_difference import EarlierPart
from flinkstate.keyed.row_sum import RowSum
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.metadata.bytes_read import SST, WHOLE, BytesRead
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Metadata, NativeHandle, Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import kryo_map_of
from flinkstate.serializers.types import type_name
from stateferry.basics.state_ref import StateRef
from stateferry.changes.counts import InventoryCounts, StateSigns
from stateferry.inventory.ages import Ages
from stateferry.inventory.blob_times import BlobTimes
from stateferry.inventory.inventory import Inventory
from stateferry.inventory.inventory_change import EarlierInventory
from stateferry.runs.checks.plan_check import open_source
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.record.facts import RunFacts
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts

_OF_ONE_NIGHT = {"run_id", "source", "target", "now", "now_from", "files_from", "since", "full_every", "claimable"}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Counted(RunFacts):
    """What the snapshot counted; it is kept if the next night can go on from it.

    `entries` and `sizes` have a number for each key group, separated by spaces, and `met` has counts; all are by
    `operator id/state`, as are the classes in `maps` by Kryo. `signs` are by `operator id/legacy state`, then by state.
    `by` is the version that counted. Counts that depend on the time, and the `ages`, are those of this run's now. What
    they follow from `at_any_now` is in the run's `blob_times`. The ages of states that are `unread` aren't known.
    By `first_expiries` what wins in this run may give way to something younger.
    """

    name: ClassVar[str] = "counted"

    by: str = ""
    entries: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    met: Mapping[str, InventoryCounts] = field(default_factory=dict)
    signs: Mapping[str, Mapping[str, StateSigns]] = field(default_factory=dict)
    maps: Mapping[str, FoundClasses] = field(default_factory=dict)
    ages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    at_any_now: bool = True
    first_expiries: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, inventory: Inventory, metadata: Metadata, *, at_any_now: bool) -> Counted:
        """The facts of an inventory."""
        key_groups = {operator.hex_id: operator.max_parallelism for operator in metadata.operators}

        def by_state(of: Mapping[tuple[str, str, int], int]) -> dict[str, str]:
            return {
                one.text: " ".join(f"{of.get((*one, group), 0)}" for group in range(key_groups[one.operator]))
                for one in dict.fromkeys(StateRef(operator, state) for operator, state, _ in of)
            }

        met = {state.text: counts for state, counts in inventory.met.items()}
        signs: dict[str, dict[str, StateSigns]] = {}
        for (operator, legacy, state), found in inventory.signs.items():
            if found != StateSigns():
                signs.setdefault(StateRef(operator, legacy).text, {})[state] = found
        maps = {state.text: found for state, found in inventory.maps.items()}
        ages: dict[str, dict[str, str]] = {}
        for (operator, legacy, state), aged in inventory.ages.items():
            ages.setdefault(StateRef(operator, legacy).text, {})[state] = aged.text
        entries, sizes = by_state(inventory.entries), by_state(inventory.sizes)
        unread = tuple(sorted(state.text for state in inventory.unread))
        first = {state.text: expiry for state, expiry in inventory.first_expiries.items()}
        return cls(_version(), entries, sizes, met, signs, maps, ages, unread, at_any_now, first)

    def to_inventory(self, read: BytesRead, times: Mapping[StateRef, BlobTimes]) -> EarlierInventory:
        """The inventory; `read` are the digests of the same snapshot, as are the `times`."""
        entries, sizes = (
            {
                (*StateRef.of_text(name), group): count
                for name, line in of.items()
                for group, count in enumerate(map(int, line.split()))
            }
            for of in (self.entries, self.sizes)
        )
        sums = {
            (file, part): sum_
            for file, parts in read.files.items()
            for part, digest in parts.items()
            if part >= 0 and (sum_ := RowSum.of_text(digest)) is not None
        }
        signs = {(*of, state): found for of, states in _by_ref(self.signs).items() for state, found in states.items()}
        texts = ((of, states.items()) for of, states in _by_ref(self.ages).items())
        ages = {(*of, state): Ages.of_text(text) for of, aged in texts for state, text in aged}
        met, maps, unread = _by_ref(self.met), _by_ref(self.maps), frozenset(map(StateRef.of_text, self.unread))
        first = _by_ref(self.first_expiries)
        return EarlierInventory(entries, sizes, met, signs, maps, sums, times, ages, unread, first)


def can_be_brought_forward(plan: MigrationPlan) -> bool:
    """Whether what a run counts follows from the inventory before and the keys that have changed since.

    What is the largest of its kind doesn't, see `heavy_groups`.
    """
    return (plan.rehearse or plan.since is not None) and not plan.reverse


@dataclass(frozen=True, slots=True)
class EarlierNight:
    """An earlier rehearsal: its source, the digests of what it read, and what it counted if that can be used.

    `times` is the file with the timestamps of its blobs. To read everything it took, or would have taken,
    `seconds_per_byte` of state.
    """

    run_id: str
    source: Savepoint
    read: BytesRead
    counted: Counted | None
    times: Location
    seconds_per_byte: float

    def parts(self, operator: Operator) -> dict[int, EarlierPart]:
        """The databases that the operator's subtasks had then."""
        before = next((one for one in self.source.metadata.operators if one.id == operator.id), None)
        if before is None or before.max_parallelism != operator.max_parallelism:
            return {}
        identities = {file: parts[SST] for file, parts in self.read.files.items() if SST in parts}
        return {
            subtask.index: EarlierPart(self.source.folder, subtask.native_keyed, identities)
            for subtask in before.subtasks
            if subtask.native_keyed is not None
        }

    def files(self, operator: Operator) -> dict[str, str]:
        """The names of the subtasks' databases then, by those of now."""
        before = self.parts(operator)
        return {
            handle.meta.name: before[subtask.index].handle.meta.name
            for subtask in operator.subtasks
            if isinstance(handle := subtask.keyed, NativeHandle) and subtask.index in before
        }


def earlier_night(resolved: ResolvedPlan) -> EarlierNight | None:
    """The rehearsal from which this one can go on, or None."""
    plan = resolved.plan
    if not plan.rehearse or plan.lazy or plan.reverse or resolved.source.format != "native":
        return None
    try:
        return night_of(last_night(plan), resolved)
    except RefusedError:
        return None


def last_night(plan: MigrationPlan) -> Run:
    """The last other run of the job, if it is a green rehearsal of the same plan; else the refusal says what it is.

    Catch-ups without tables don't count: they were made for a cut-over that did not follow.
    """
    others = (run for run in runs_of(plan.home, plan.job) if run.run_id != plan.run_id)
    newest = next((run for run in others if run.plan is None or not _prepared_a_cut_over(run.plan, run.state)), None)
    if newest is None:
        raise RefusedError("there is no earlier run of the job")
    which = f"run {newest.run_id}, the last one of the job,"
    if newest.plan is None:
        raise RefusedError(f"{which} can't be read: {newest.reason}")
    if newest.state is not RunState.VERIFIED:
        state = "without a state" if newest.state is None else newest.state.value
        because = f" ({newest.reason})" if newest.reason else ""
        raise RefusedError(f"{which} isn't a green rehearsal: it is {state}{because}")
    if differing := _differing(newest.plan, plan):
        raise RefusedError(f"{which} has another {', '.join(differing)}")
    return Run(newest.plan, newest.folder)


def _prepared_a_cut_over(plan: MigrationPlan, state: RunState | None) -> bool:
    return plan.rehearse and plan.since is not None and state is RunState.STAGED


def night_of(run: Run, resolved: ResolvedPlan) -> EarlierNight | None:
    """A rehearsal as one from which another run can go on; None if its source isn't there any more as it was."""
    facts, counted = run.facts_if_sound(SnapshotFacts), run.facts_if_sound(Counted)
    if facts is None:
        return None
    read = BytesRead.of_facts(facts.read)
    try:
        source = open_source(run.plan)
        hasher = new_hasher()
        hasher.update(source.folder.child(METADATA).read())
    except StateferryError:
        # Whatever is wrong with the earlier source, this run needs no more than its own.
        return None
    if read.files.get(METADATA, {}).get(WHOLE) != digest_of(hasher):
        return None
    seconds = (facts.seconds or 0.0) if facts.of_all is None else facts.of_all
    types = {(one.operator, one.state): one.type for one in facts.kryo or ()}
    if counted is None or counted.by != _version() or types != _types_of_kryo_maps(resolved):
        counted = None
    elif resolved.plan.since is None and not counted.at_any_now:
        # It isn't a catch-up, which has the now of its base.
        counted = None
    return EarlierNight(run.plan.run_id, source, read, counted, run.blob_times, seconds / max(facts.size, 1))


def _types_of_kryo_maps(resolved: ResolvedPlan) -> dict[tuple[str, str], str]:
    """The types of maps by Kryo, by operator and state: the first maps may show another one than the night before."""
    return {
        (one.operator.label, rules.legacy.name): type_name(rules.map_type)
        for one, rules in resolved.migrations
        if kryo_map_of(rules.in_source.value) is not None
    }


def _differing(one: MigrationPlan, other: MigrationPlan) -> list[str]:
    mine, its = (plan.model_dump(exclude=_OF_ONE_NIGHT) for plan in (one, other))
    return sorted(name for name, value in mine.items() if its[name] != value)


def _by_ref(of: Mapping[str, _T]) -> dict[StateRef, _T]:
    return {StateRef.of_text(name): one for name, one in of.items()}


def _version() -> str:
    return version("stateferry")
