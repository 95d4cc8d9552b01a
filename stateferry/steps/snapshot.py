"""Snapshot: reads the whole source once, counts its content, and refuses content that a later step couldn't handle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flinkstate.errors import RefusedError, StateferryError
from flinkstate.rocksdb.prefixes import Prefixes
from stateferry.basics.durations import moment, now_ms
from stateferry.changes.changed_keys import write_changed_keys
from stateferry.changes.counts import InventoryCounts
from stateferry.changes.rules import (
    Rules,
)
from stateferry.inventory.ages import Ages
from stateferry.inventory.blob_times import read_blob_times, write_blob_times
from stateferry.inventory.inventory import (
    CopiedFilesTask,
    Inventory,
    InventoryTask,
    copied_files_tasks,
    inventory_tasks,
    take,
    total,
)
from stateferry.inventory.inventory_change import (
    ChangedKeysTask,
    InventoryChange,
    follows_from_times,
    take_changes,
)
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.guards.earlier_names import history_errors
from stateferry.runs.guards.kryo_notes import kryo_maps, new_declarations, nullable_maps
from stateferry.runs.guards.lazy_choice import choose, chosen_by_base, measured_rate, order_of
from stateferry.runs.guards.name_guard import flagged_keys, name_errors
from stateferry.runs.guards.null_values import check_nulls
from stateferry.runs.guards.option_notes import option_notes
from stateferry.runs.guards.timers import shown_timers
from stateferry.runs.predict.differences import layout_of
from stateferry.runs.predict.earlier_night import Counted, EarlierNight, can_be_brought_forward, earlier_night
from stateferry.runs.record.key_group_sizes import SourceSizes
from stateferry.runs.record.runs import Run
from stateferry.runs.record.state_ages import FoundAges, Holds, StateAges
from stateferry.runs.record.step_facts import LazyChoice, SnapshotFacts, StateSize
from stateferry.runs.record.steps import Step
from stateferry.runs.report import source_check
from stateferry.steps import key_groups
from stateferry.steps.base_run import BaseRun, base_of
from stateferry.steps.guards import AFTER_COUNTING, BEFORE_COUNTING, Seen
from stateferry.steps.nights import note_of
from stateferry.steps.other_sources import read_others
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import Measure, Workers

_BYTES: Measure[Inventory] = Measure("B", lambda inventory: inventory.sizes.total())
_CHANGED_BYTES: Measure[InventoryChange | None] = Measure("B", lambda one: one.found.sizes.total() if one else 0)

# Bytes of a state that is read in a moment.
_SMALL = 16 << 20
# A catch-up's chunks are so many times as large, up to so many bytes: the changed keys of a chunk are in memory.
_TIMES_SINCE, _MOST_SINCE = 8, 512 << 20


@dataclass(frozen=True, slots=True)
class CountedSource:
    """What the step counted.

    `counted` is kept for the next night, if that can go on from it, with the timestamps of blobs (`times`). `since` is
    the night from which this one went on, and `lists` are the keys that have changed since.
    """

    inventory: Inventory
    counted: Counted | None
    since: EarlierNight | None = None
    lists: Mapping[tuple[str, int, int], Mapping[str, Prefixes]] = field(default_factory=dict)


def do(work: RunAtWork) -> SnapshotFacts:
    """Does the step and returns its facts."""
    run, resolved = work.run, work.resolved
    for guard in BEFORE_COUNTING:
        guard(Seen(work, Inventory(), FoundAges(run.plan.now, run.plan.keep_expired, ())))
    rate, others = measured_rate(run.plan), read_others(work.workers, resolved)
    base = base_of(resolved)
    counts = count(work.workers, resolved, _night(resolved, base))
    inventory = counts.inventory
    found = ages(resolved, inventory)
    for guard in AFTER_COUNTING:
        guard(Seen(work, inventory, found))
    # A link may lead elsewhere at any time: `note_metadata` finds what was counted in this folder.
    folder = source_check.behind_link(run.plan.source)
    source_check.note_metadata(resolved.source, inventory.read, run.plan.files_from)
    inventory.read.take(others)
    notes = option_notes(resolved, inventory, found)
    if counts.since is not None:
        notes = [*notes, f"the snapshot read only the keys that have changed since run {counts.since.run_id}"]
    if run.plan.since is not None and found.states:
        notes = [*notes, "what has expired since the base's now stays, with its timestamp: Flink drops it"]
    notes = [*notes, *filter(None, [note_of(run)])]
    _keep(run, resolved, counts)
    for note in notes:
        work.say(f"note: {note}")
    choices = None
    if run.plan.lazy:
        ranks = inventory.ranks
        choices = choose(run.plan, ranks, rate) if base is None else chosen_by_base(base.choices, ranks)
    for choice in choices or ():
        work.say(f"lazy: {choice.line}")
    for line in new_declarations(resolved):
        work.say(f"new job: {line}")
    made = facts(resolved, inventory, found, notes, choices)
    if folder != run.plan.source:
        made = replace(made, source=folder)
    return made if counts.since is None else replace(made, of_all=round(counts.since.seconds_per_byte * made.size, 3))


def _keep(run: Run, resolved: ResolvedPlan, counts: CountedSource) -> None:
    """Keeps what was counted for later runs and for the pages."""
    if counts.counted is not None and counts.inventory.blob_times:
        write_blob_times(run.blob_times, counts.inventory.blob_times)
    if run.plan.since is not None:
        write_changed_keys(run.changed_keys, counts.lists)
    metadata = resolved.source.metadata
    sizes = SourceSizes(key_groups.sizes_of(resolved.source, counts.inventory))
    kept = (counts.counted, layout_of(metadata), shown_timers(metadata), sizes)
    run.keep(*(one for one in kept if one is not None))


def count(workers: Workers, resolved: ResolvedPlan, night: EarlierNight | None = None) -> CountedSource:
    """Counts the source's content on the workers; raises an error if the plan must first say what to do about it.

    After an earlier night only the keys are read that have changed since, if that is possible.
    """
    work = inventory_work(resolved, workers.at_once)
    counts = _since(workers, resolved, work, night) if night is not None else None
    if counts is None and resolved.plan.since is not None:
        raise RefusedError(
            f"run {resolved.plan.since} can't be caught up with: what has changed since doesn't say what everything "
            f"amounts to now{', or is a large part of it' if resolved.plan.is_night else ''}: leave --since out, which "
            "converts everything"
        )
    if counts is None:
        inventory = total(workers.do(Step.SNAPSHOT, work, take, _BYTES))
        counts = CountedSource(inventory, _to_keep(resolved, work, inventory))
    for stopping in stopping_errors(resolved, counts.inventory):
        raise stopping
    if resolved.plan.since is not None:
        _expect_same_winners(resolved, counts.inventory)
    return counts


def _expect_same_winners(resolved: ResolvedPlan, inventory: Inventory) -> None:
    """Refuses a catch-up if something younger than what wins at the base's now may win by now, in any key."""
    for one, rules in resolved.migrations:
        first = inventory.first_expiries.get(one.ref(rules.legacy.name))
        if first is not None and first <= now_ms():
            raise RefusedError(
                f"run {resolved.plan.since} can't be caught up with: its now is {moment(resolved.plan.now)}, and since "
                f"{moment(first)} something in state {rules.legacy.name} of operator {one.operator.label} may have "
                "expired to which a younger map or row of its key gives way. That one would be lost: leave --since "
                "out, which converts everything"
            )


def _night(resolved: ResolvedPlan, base: BaseRun | None) -> EarlierNight | None:
    """The run from which this one can go on; a catch-up goes on from its base, or not at all."""
    return earlier_night(resolved) if base is None else base.night


def first_work(resolved: ResolvedPlan, at_once: int) -> tuple[Sequence[Any], Callable[[Any], Any]]:
    """The tasks with which the step begins, and what does them."""
    work, night = inventory_work(resolved, at_once), _night(resolved, base_of(resolved))
    changes = _changed_keys_work(resolved, work, night) if night is not None else None
    return (work, take) if changes is None else (changes, take_changes)


def _since(
    workers: Workers, resolved: ResolvedPlan, work: Sequence[InventoryTask | CopiedFilesTask], night: EarlierNight
) -> CountedSource | None:
    changes = _changed_keys_work(resolved, work, night)
    if changes is None or night.counted is None:
        return None
    found = workers.do(Step.SNAPSHOT, changes, take_changes, _CHANGED_BYTES)
    change = InventoryChange()
    for one in found:
        if one is None:
            return None
        change.add(one)
    files = {new: old for operator in resolved.source.keyed_operators() for new, old in night.files(operator).items()}
    tasks = _keyed(work)
    has_ages = any(rules.legacy.ttl for task in tasks for rules in task.changes.rules)
    times = (read_blob_times(night.times) if has_ages else None) or {}
    earlier, same_now = night.counted.to_inventory(night.read, times), resolved.plan.since is not None
    inventory = earlier.with_changes(change, files, tasks, same_now=same_now)
    if inventory is None:
        return None
    return CountedSource(inventory, _to_keep(resolved, work, inventory), night, change.lists)


def _changed_keys_work(
    resolved: ResolvedPlan, work: Sequence[InventoryTask | CopiedFilesTask], night: EarlierNight
) -> list[ChangedKeysTask | CopiedFilesTask] | None:
    """The tasks that read only changed keys of keyed state; None if what they count isn't all that is to be known."""
    keyed = _keyed(work)
    if night.counted is None or not can_be_brought_forward(resolved.plan):
        return None
    if any(task.heavy_groups for task in keyed):
        return None
    parts = {operator.hex_id: night.parts(operator) for operator in resolved.source.keyed_operators()}
    # A night of a large change converts everything, which takes no longer, unless either takes no time.
    is_small = sum(task.chunk.size for task in keyed) <= _SMALL
    must = resolved.plan.since is not None and (is_small or not resolved.plan.is_night)
    return [
        ChangedKeysTask(task, parts[task.operator], must) if isinstance(task, InventoryTask) else task for task in work
    ]


def _to_keep(
    resolved: ResolvedPlan, work: Sequence[InventoryTask | CopiedFilesTask], inventory: Inventory
) -> Counted | None:
    keyed = _keyed(work)
    if resolved.source.format != "native" or not can_be_brought_forward(resolved.plan):
        return None
    return Counted.of(inventory, resolved.source.metadata, at_any_now=follows_from_times(inventory, keyed))


def _keyed(work: Sequence[InventoryTask | CopiedFilesTask]) -> list[InventoryTask]:
    return [task for task in work if isinstance(task, InventoryTask)]


def ages(resolved: ResolvedPlan, inventory: Inventory) -> FoundAges:
    """The ages of the entries that the snapshot found, by state."""
    plan = resolved.plan
    rules = {(one.operator.hex_id, rule.legacy.name): rule for one, rule in resolved.migrations}
    planned_ttls = {(one.operator.hex_id, ttl.state.name): ttl for one in resolved.changes for ttl in one.ttls}
    labels = {operator.hex_id: operator.label for operator in resolved.source.metadata.operators}
    states: list[StateAges] = []
    untold: list[StateAges] = []
    for (operator, legacy, state), found in sorted(inventory.ages.items()):
        label = labels[operator]
        if not found.entries:
            continue
        if (rule := rules.get((operator, legacy))) is not None:
            states.append(_aged(label, legacy, state, _holds(state, rule), rule.ttl or 0, rule.keep_expired, found))
        elif (ttl := planned_ttls.get((operator, state))) is not None:
            states.append(_aged(label, state, state, Holds.OTHERS, ttl.config.time_to_live, not ttl.drops, found))
        elif (operator, state) not in inventory.unread:
            untold.append(_aged(label, state, state, Holds.OTHERS, 0, True, found))
    return FoundAges(plan.now, plan.keep_expired, tuple(states), tuple(untold))


def _aged(operator: str, legacy: str, state: str, holds: Holds, ttl: int, kept: bool, found: Ages) -> StateAges:
    quartiles = (found.quantile(0.25), found.quantile(0.5), found.quantile(0.75))
    return StateAges(
        operator, legacy, state, holds, ttl, found.entries, found.expired, found.future, found.youngest, quartiles,
        found.oldest, found.sharp_end(), found.suggested_ttl(), kept,
    )  # fmt: skip


def facts(
    resolved: ResolvedPlan,
    inventory: Inventory,
    found: FoundAges,
    notes: Sequence[str],
    lazy: tuple[LazyChoice, ...] | None = None,
) -> SnapshotFacts:
    """The facts of the step: the inventory, its numbers by operator and state, and the ages that were found."""
    labels = {one.hex_id: one.label for one in resolved.source.metadata.operators}
    entries, sizes = (_by_state(labels, counter) for counter in (inventory.entries, inventory.sizes))
    return SnapshotFacts(
        states={name: StateSize(entries[name], sizes[name]) for name in {**entries, **sizes}},
        met={state.shown(labels): counts for state, counts in inventory.met.items()},
        ages=found,
        notes=tuple(notes),
        read=inventory.read.to_facts(),
        lazy=lazy,
        flags=flagged_keys(resolved, inventory) or None,
        kryo=kryo_maps(resolved, inventory) or None,
        nullable=nullable_maps(resolved) or None,
        declarations=new_declarations(resolved) or None,
        losses={state.shown(labels): one for state, one in inventory.losses.items()} or None,
        first_expiry=min(inventory.first_expiries.values(), default=None),
    )


def _by_state(labels: Mapping[str, str], counter: Mapping[tuple[str, str, int], int]) -> Counter[str]:
    total: Counter[str] = Counter()
    for (operator, state, _), count in counter.items():
        total[f"{labels[operator]}/{state}"] += count
    return total


def _holds(state: str, rules: Rules) -> Holds:
    if state == rules.legacy.name:
        return Holds.BLOBS
    return Holds.ROWS if state == rules.new_name else Holds.FLAGS


def inventory_work(resolved: ResolvedPlan, at_least: int) -> list[InventoryTask | CopiedFilesTask]:
    """The snapshot's tasks, for keyed state and for all other state.

    Keyed state of an operator is cut into at least `at_least` tasks, if it is large enough. A catch-up doesn't look for
    the heaviest key, which may be one that hasn't changed.
    """
    # Of all that a catch-up's task opens it reads little.
    target_bytes = resolved.plan.chunk_bytes
    if resolved.plan.since is not None:
        target_bytes = max(target_bytes, min(_TIMES_SINCE * target_bytes, _MOST_SINCE))
    keyed = [
        task
        for operator in resolved.source.keyed_operators()
        for task in inventory_tasks(
            resolved.source,
            resolved.conversion.of(operator),
            target_bytes=target_bytes,
            at_least=at_least,
            order=order_of(resolved.plan),
            now=resolved.plan.now,
            parallelism=resolved.layout.of(operator).parallelism,
        )
    ]
    if resolved.plan.since is not None:
        keyed = [replace(task, heavy_groups=frozenset()) for task in keyed]
    if resolved.source.format == "native" and can_be_brought_forward(resolved.plan):
        keyed = [replace(task, keeps_times=True) for task in keyed]
    return [*keyed, *copied_files_tasks(resolved.source)]


def stopping_errors(resolved: ResolvedPlan, inventory: Inventory) -> list[StateferryError]:
    """Errors that end the run because the plan doesn't say what to do."""
    # A wrong name may be the reason of all that follows.
    errors: list[StateferryError] = [*history_errors(resolved), *name_errors(resolved, inventory)]
    for one, rules in resolved.migrations:
        met = inventory.met.get(one.ref(rules.legacy.name), InventoryCounts())
        errors += rules.open_questions(one.operator.label, met)
        errors += check_nulls(resolved, one.operator, rules, met)
    return errors
