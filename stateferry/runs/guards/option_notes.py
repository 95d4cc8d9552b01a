"""Notes on options of a plan that have no effect on its savepoint.

The run is right without them, but the person who gave such an option may have expected something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flinkstate.metadata.moved_files import needless_roots
from flinkstate.metadata.savepoint_properties import is_savepoint
from flinkstate.metadata.type_numbers import FULL_CHECKPOINT
from stateferry.basics.state_ref import StateRef
from stateferry.changes.counts import InventoryCounts
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Contradiction, Rules
from stateferry.inventory.inventory import Inventory
from stateferry.inventory.wrong_name_signs import possible_flags
from stateferry.runs.checks.plan_check import may_lack_timers
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.checks.state_names import legacies_before, other_name_than_before, slips
from stateferry.runs.checks.wanted_layout import kept, unlike_defaults
from stateferry.runs.guards.cleanup_promise import unkept_promises
from stateferry.runs.guards.earlier_names import history_problems
from stateferry.runs.guards.expiry_guard import needless
from stateferry.runs.guards.kept_values import kept_notes
from stateferry.runs.guards.kryo_notes import kryo_notes
from stateferry.runs.guards.lost_values import lost_notes
from stateferry.runs.guards.migrated_before import check_migrated_before
from stateferry.runs.guards.name_guard import needs_accepted_share
from stateferry.runs.guards.name_notes import name_notes
from stateferry.runs.guards.null_values import null_notes
from stateferry.runs.guards.other_flink import check_other_flink, other_flink_notes
from stateferry.runs.guards.ttl_notes import ttl_notes
from stateferry.runs.plan.planned_states import StatePlan
from stateferry.runs.plan.run_options import DEFAULT_CLOCK_TOLERANCE_MS
from stateferry.runs.plan.upgrade_options import SAME_FLINK
from stateferry.runs.record.state_ages import FoundAges, Holds


def option_notes(
    resolved: ResolvedPlan, inventory: Inventory | None = None, ages: FoundAges | None = None
) -> list[str]:
    """The notes, one sentence each.

    Without inventory and ages, they cover only what the savepoint's descriptions show. Whether anything has expired,
    for example, is known only after all of the state was read.
    """
    notes: list[str] = []
    for one in resolved.operators:
        for of, state in resolved.migrated_before:
            if of.operator.id == one.operator.id:
                notes += _of_a_migrated_state(one, state, resolved.nothing_to_do)
        for rules in one.rules:
            notes += [] if resolved.plan.lazy else _of_a_flag(one, rules, inventory)
        if resolved.plan.lazy:
            notes += _of_new_flags(one)
    if inventory is not None:
        notes += [*kryo_notes(resolved, inventory), *kept_notes(resolved, inventory)]
        notes += [*lost_notes(resolved, inventory), *name_notes(resolved, inventory)]
    notes += [*_of_an_old_flink(resolved), *other_flink_notes(resolved), *unkept_promises(resolved)]
    notes += ttl_notes(resolved, ages)
    notes += _of_this_use(resolved)
    return [*notes, *_of_the_layout(resolved), *_of_time(resolved, ages), *_of_the_rules(resolved, inventory)]


def nothing_to_do_lines(resolved: ResolvedPlan) -> list[str]:
    """The answer to a plan under which there is nothing to do: the reason, then the notes.

    Raises an error if the flags in the savepoint contradict that, or if the Flink of the plan can't read it.
    """
    check_migrated_before(resolved)
    check_other_flink(resolved)
    why = resolved.what_was_done_before or "the savepoint is as wanted already"
    notes = option_notes(resolved)
    plan = resolved.plan
    if plan.rescales_only and plan.output_format == "canonical" and resolved.source.format == "native":
        stays = "nothing is written, so the savepoint stays native: --format canonical alone makes no other of it"
        notes = [*notes, stays]
    return [f"nothing to do: {why}", *(f"note: {note}" for note in notes)]


def _of_this_use(resolved: ResolvedPlan) -> Iterator[str]:
    """Notes on options that are for another kind of run, or for a source of another kind."""
    plan, source = resolved.plan, resolved.source
    # It isn't refused, because a job's plan may be that of its nights, too.
    if plan.full_every is not None and not plan.rehearse:
        yield "--full-every had no effect: only a rehearsal goes on from an earlier one, and this run is none"
    # A rehearsal may read another kind of source than the cut-over for which the option is given.
    if plan.no_timers and not plan.rehearse and not may_lack_timers(source):
        kind = "canonical" if is_savepoint(source.metadata) else "a checkpoint"
        yield f"--no-timers had no effect: only a native savepoint may lack timers, and this source is {kind}"
    # Another savepoint that the run reads may need it.
    if plan.before is None and plan.like is None:
        yield from needless_roots(source.metadata, plan.files_from or {}, source.folder.shown)


def _of_a_migrated_state(one: OperatorChanges, state: StatePlan, nothing_to_do: bool) -> Iterator[str]:
    given = {
        "--ttl": state.ttl_ms is not None,
        "--flag-state": state.flag is not None,
        "--no-flag-state": state.no_flag,
    }
    options = " and ".join(option for option, is_given in given.items() if is_given)
    done = f"{state.legacy} of {one.operator.label} is already migrated"
    if options:
        yield f"{options} had no effect: {done}, the savepoint has {state.new} alone"
    elif not nothing_to_do:
        yield f"{done}: the savepoint has {state.new} alone"


def _of_an_old_flink(resolved: ResolvedPlan) -> Iterator[str]:
    """A note if the source's Flink may be too old for the handles that keyed state gets in the result."""
    if resolved.plan.to != SAME_FLINK or resolved.nothing_to_do:
        return
    handles = ((one, subtask.managed_keyed) for one in resolved.source.keyed_operators() for subtask in one.subtasks)
    old = {one.id for one, handle in handles if handle is not None and handle.type in FULL_CHECKPOINT}
    if old:
        first = "1.15" if old & resolved.layout.native else "1.13"
        yield (
            f"a job of Flink before {first} can't start from the result, and the source may be of one: it doesn't know "
            "the kind of handle that the keyed state has in the result. Start the job that gets the result with Flink "
            f"{first} or newer"
        )


def _of_new_flags(one: OperatorChanges) -> Iterator[str]:
    """Notes on flag states that a lazy run makes: the new job has to declare them in the same way."""
    for rules in one.rules:
        if rules.flag_name is not None and rules.flag_name not in one.states:
            yield (
                f"{one.operator.label} has no state {rules.flag_name}: the run makes it, unless it moves all keys. The "
                "new job has to declare it as a ValueState<Boolean>, with time to live as --flag-ttl says (default: as "
                f"{rules.legacy.name} has)"
            )


def _of_a_flag(one: OperatorChanges, rules: Rules, inventory: Inventory | None) -> Iterator[str]:
    operator, flag = one.operator, rules.flag_name
    if flag is not None and flag not in one.states:
        yield (
            f"--flag-state {flag} had no effect: {operator.label} has no state of that name, as before a job begins to "
            f"move keys of {rules.legacy.name} itself"
        )
    elif flag is not None and inventory is not None and not _entries(inventory, operator.hex_id, flag):
        yield f"--flag-state {flag} had no effect: this state of {operator.label} has no entry, so no key is flagged"
    elif flag is not None and inventory is not None and _is_never_set(inventory, operator.hex_id, rules):
        yield (
            f"--flag-state {flag} had no effect: no value of this state of {operator.label} is true (or all have "
            "expired), so no key is flagged. Look whether it is the flag: a full run leaves the flag state out"
        )
    if not rules.no_flag:
        return
    if not possible_flags(rules.legacy, one.states):
        yield (
            f"--no-flag-state had no effect on {rules.legacy.name}: {operator.label} has no ValueState<Boolean> that "
            "could be taken for a flag"
        )
    elif rules.new_name not in one.states or (
        inventory is not None and not _entries(inventory, operator.hex_id, rules.new_name)
    ):
        yield (
            f"--no-flag-state had no effect on {rules.legacy.name}: {rules.new_name} has no rows yet, so no state could"
            " be taken for a flag"
        )


def _is_never_set(inventory: Inventory, operator: str, rules: Rules) -> bool:
    met = inventory.met.get(StateRef(operator, rules.legacy.name))
    return met is not None and not met.flagged and met.flags_not_set > 0


def _entries(inventory: Inventory, operator: str, state: str) -> int:
    return sum(count for (of, name, _), count in inventory.entries.items() if (of, name) == (operator, state))


def _of_the_layout(resolved: ResolvedPlan) -> Iterator[str]:
    plan = resolved.plan
    yield from _of_the_parallelism(resolved)
    yield from kept(plan, resolved.source, resolved.layout)
    if plan.output_format == "native":
        yield from _of_the_format(resolved)
    operators = resolved.source.metadata.operators
    if plan.parallelism is not None or plan.max_parallelism is not None:
        layout = resolved.layout
        yield from unlike_defaults(map(layout.of, operators))
    if plan.max_parallelism and all(one.max_parallelism == plan.max_parallelism for one in operators):
        yield f"--max-parallelism {plan.max_parallelism} had no effect: it is that of every operator already"
    if plan.compression not in ("auto", "source") and resolved.nothing_to_do:
        yield f"--compression {plan.compression} had no effect: nothing is written"


def _of_the_parallelism(resolved: ResolvedPlan) -> Iterator[str]:
    wanted = resolved.plan.parallelism
    if isinstance(wanted, dict):
        for name, parallelism in wanted.items():
            operator = resolved.source.operator(name)
            if operator.parallelism == parallelism:
                yield f"--parallelism {name}={parallelism} had no effect: it is that of {operator.label} already"
    elif wanted is not None and resolved.plan.rescales_only:
        if all(operator.parallelism == wanted for operator in resolved.source.metadata.operators):
            yield f"--parallelism {wanted} had no effect: it is that of every operator already"
    elif wanted is not None and all(one.operator.parallelism == wanted for one in resolved.operators):
        names = ", ".join(one.operator.label for one in resolved.operators)
        yield f"--parallelism {wanted} had no effect: it is that of {names} already"


def _of_the_format(resolved: ResolvedPlan) -> Iterator[str]:
    left = [
        operator.label for operator in resolved.source.keyed_operators() if operator.id not in resolved.layout.native
    ]
    if left:
        yield (
            f"--format native: the keyed state of {', '.join(left)} is canonical all the same. It has states of "
            "timers, and a canonical savepoint doesn't say whether they are in RocksDB or on the heap. A job that "
            "keeps timers on the heap would lose those in RocksDB's files. From a checkpoint, or a native savepoint "
            "with timers in RocksDB, it becomes native"
        )


def _of_time(resolved: ResolvedPlan, ages: FoundAges | None) -> Iterator[str]:
    plan = resolved.plan
    of_migration = any(rules.legacy.ttl for _, rules in resolved.migrations)
    if not of_migration and plan.keep_expired:
        yield "--keep-expired had no effect: no legacy state has a time to live"
    if not of_migration and not any(one.ttls for one in resolved.changes):
        given = {
            "--accept-expired": plan.accept_expired is not None,
            "--clock-tolerance": plan.clock_tolerance_ms != DEFAULT_CLOCK_TOLERANCE_MS,
        }
        for option, is_given in given.items():
            if is_given:
                yield f"{option} had no effect: no legacy state has a time to live"
    elif ages is not None:
        of_rules = [state for state in ages.states if state.holds is not Holds.OTHERS]
        if of_migration and plan.keep_expired and not any(state.expired for state in of_rules):
            yield "--keep-expired had no effect: nothing has expired"
        for option in needless(plan, ages):
            yield f"{option} had no effect: without it the run would not have stopped either"


def _of_the_rules(resolved: ResolvedPlan, inventory: Inventory | None) -> Iterator[str]:
    plan = resolved.plan
    every = list(resolved.migrations)

    def met(of: Callable[[InventoryCounts], int]) -> bool:
        """Whether the snapshot counted any of these; True if nothing was counted yet."""
        if inventory is None:
            return True
        counted = (inventory.met.get(one.ref(rules.legacy.name)) for one, rules in every)
        return any(of(counts) for counts in counted if counts is not None)

    if (
        plan.accept_empty is not None
        and inventory is not None
        and not (
            needs_accepted_share(resolved, inventory) or _has_odd_names(resolved) or history_problems(resolved, None)
        )
    ):
        yield "--accept-empty had no effect: without it the run would not have stopped either"
    if plan.reverse and plan.like is None:
        yield from _of_names_that_nothing_shows(resolved)
    if plan.keep_legacy and not every:
        yield "--keep-legacy had no effect: the savepoint has no legacy state any more"
    if plan.drop_legacy_blobs and not met(lambda counts: counts.blobs):
        yield "--drop-legacy-blobs had no effect: the savepoint has no blobs any more"
    if plan.on_contradiction != Contradiction.STOP.value:
        option = f"--on-contradiction {plan.on_contradiction}"
        if not any(rules.flag_name in one.states for one, rules in every):
            yield f"{option} had no effect: no legacy state has a flag state"
        elif not met(lambda counts: counts.contradictions):
            yield f"{option} had no effect: no key is flagged as migrated and still has a blob"
    yield from null_notes(resolved, inventory)


def _has_odd_names(resolved: ResolvedPlan) -> bool:
    """Whether names alone would have stopped the run without an accepted share."""
    plan = resolved.plan.model_copy(update={"accept_empty": None})
    planned = zip(resolved.operators, plan.operators, strict=True)
    return any(
        [*slips(plan, wanted, rules, one.states, one.operator)]
        or [*other_name_than_before(plan, rules.legacy.name, rules.new_name, one.states, one.operator)]
        for one, wanted in planned
        for rules in one.rules
    )


def _of_names_that_nothing_shows(resolved: ResolvedPlan) -> Iterator[str]:
    """Notes on states that a run in reverse makes, of whose names neither the savepoint nor an earlier run knows."""
    for one, rules in resolved.migrations:
        name = rules.legacy.name
        if name not in one.states and not legacies_before(resolved.plan, one.operator, rules.new_name):
            yield (
                f"nothing here shows that the old job calls this state of {one.operator.label} {name}: if it "
                "calls it otherwise, it starts without these maps. Look into its code, or name one of its "
                "savepoints (--like)"
            )
