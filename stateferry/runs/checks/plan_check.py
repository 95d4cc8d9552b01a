"""Checks a plan against its source savepoint, before anything is written, and finds all that is to be done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from flinkstate.errors import PlanError, RefusedError, UsageError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.build_metadata import expect_writable
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.parse_metadata import HOW_TO_TAKE_ONE_WITH_ANY_FLINK
from flinkstate.metadata.savepoint_properties import is_savepoint
from flinkstate.reading.reader import Savepoint, has_native_state
from flinkstate.serializers.type_parts import has_row, kept_by_kryo
from flinkstate.serializers.types import type_name
from flinkstate.values.kryo_class_names import ROW
from flinkstate.writing.operator_file import read_operator_header
from flinkstate.writing.undivided_elements import may_be_undivided
from stateferry.changes.operator_changes import Conversion, OperatorChanges
from stateferry.changes.rows_to_blobs import legacy_state
from stateferry.changes.rules import Contradiction, LegacyRest, Nulls, OldForm, Rules, RulesBack
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.checks.contradictions import contradictions, ttl_in_vain
from stateferry.runs.checks.field_of_pojo import field_problems
from stateferry.runs.checks.kryo_keys import key_problems, with_known_hashes, with_known_keys
from stateferry.runs.checks.kryo_maps import map_contradiction, with_known_map
from stateferry.runs.checks.named_flag import lazy_problems
from stateferry.runs.checks.other_kryo import makes_for_flink_2, metadata_version, with_other_kryo
from stateferry.runs.checks.planned_ttls import find_planned_ttls, rewritten_lists, with_planned_ttl
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.checks.reverse_check import state_to_make
from stateferry.runs.checks.separate_places import check_separate_places
from stateferry.runs.checks.state_names import (
    impossible_names,
    no_such_legacy,
    not_in_native_files,
    not_migrated_before,
    other_name_than_before,
    slips,
)
from stateferry.runs.checks.wanted_layout import layout_problems, wanted_layout
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.plan.planned_states import OperatorPlan, StatePlan
from stateferry.runs.record.run_list import find_run, runs_of, those_named
from stateferry.verdict.versions import may_be_before_1_13


def open_source(plan: MigrationPlan) -> Savepoint:
    """Opens the source of a run: a canonical or native savepoint, or a checkpoint of RocksDB."""
    return Savepoint.open(plan.source, files_from=plan.files_from)


def planned(values: Mapping[str, object], origin: str = "the plan") -> MigrationPlan:
    """The plan with these values; if they name no job, it has the name of its first operator, or of the only keyed one.

    The name is the one in the savepoint, so that an operator named by its id or by its uid gives the same job.
    """
    if values.get("job") is not None:
        return _as_its_base(plan_of(values, origin), values, origin)
    named_later = plan_of({**values, "job": "named later"}, origin)
    source = open_source(named_later)
    operator, wanted = _naming_operator(named_later, source)
    # `_metadata` before version 5 has neither name nor uid: then the plan has the uid, or at least the id.
    values = {**values, "job": operator.name or operator.uid or wanted}
    return _as_its_base(plan_of(values, origin), values, origin)


def _as_its_base(plan: MigrationPlan, values: Mapping[str, object], origin: str) -> MigrationPlan:
    """The plan; that of a catch-up has the whole id of its base, and the base's now, at which nothing more expires."""
    if plan.since is None:
        return plan
    base = _known_base(plan, plan.since)
    of_base = {"since": base.run_id, "now": base.now, "now_from": base.now_from}
    if "now" in values and plan.now != base.now:
        raise PlanError(
            f"now: a catch-up has the now of its base, {base.now}: leave now out, or leave since out, which converts "
            "everything"
        )
    return plan_of({**values, **of_base}, origin)


def _known_base(plan: MigrationPlan, since: str) -> MigrationPlan:
    """The plan of the base. What is left to do once a catch-up was validated doesn't need it: it may have been removed.

    Then a run that has begun from it says which it was.
    """
    of_job = runs_of(plan.home, plan.job)
    plans = {one.plan.since: one.plan for one in of_job if one.plan is not None and one.plan.since is not None}
    removed = {base: plans[base] for base in plans.keys() - {one.run_id for one in of_job}}
    if since not in removed:
        try:
            return find_run(plan.home, plan.job, since).plan
        except UsageError as error:
            if those_named(of_job, since):
                raise
            begins = [base for base in removed if base.startswith(since)]
            if len(begins) != 1:
                # It may have been there, and was removed since.
                raise UsageError(f"{error}; if it was removed, leave --since out, which converts everything") from None
            since = begins[0]
    return removed[since].model_copy(update={"run_id": since})


def _naming_operator(plan: MigrationPlan, source: Savepoint) -> tuple[Operator, str]:
    """The operator after which a job without a name is named, and what the plan calls it."""
    if not plan.rescales_only:
        wanted = plan.operators[0].operator
        return source.operator(wanted), wanted
    keyed = source.keyed_operators()
    if len(keyed) != 1:
        has = f"{len(keyed)} operators have keyed state" if keyed else "no operator has keyed state"
        raise UsageError(
            f"job: missing: the plan names no operator to migrate, and {has}, so the job can't be named after one: "
            "give the job a name (--job)"
        )
    return keyed[0], keyed[0].label


def resolve(plan: MigrationPlan, source: Savepoint) -> ResolvedPlan:
    """Finds what the plan asks of the savepoint.

    Raises a `PlanError` with a line for each contradiction, and an error that names a state that can't be migrated at
    all.
    """
    check_separate_places(plan)
    for operator in source.keyed_operators():
        # Reads what RocksDB says of its files, so that a folder which lacks them is refused now.
        source.placed(operator)
    _expect_rows_hashed_as_today(source)
    _expect_divided_elements(source)
    problems: list[str] = []
    planned = [_resolve_operator(plan, wanted, source, problems) for wanted in plan.operators]
    seen = set[bytes]()
    for one, _ in planned:
        if one.operator.id in seen:
            problems.append(
                f"operator {one.operator.label} is there more than once, by different names: put its states into one "
                "list"
            )
        seen.add(one.operator.id)
    problems += layout_problems(plan, source)
    by_id = {one.operator.id: one for one, _ in planned}
    before = {(one.operator.id, state.legacy): state.new for one, states in planned for state in states}
    ttls = find_planned_ttls(plan, source, {id_: one.rules for id_, one in by_id.items()}, before, problems)
    problems += () if plan.no_timers else lost_timers(source)
    native = native_operators(plan, source)
    for operator in (one for one in source.keyed_operators() if one.id in native):
        problems += not_in_native_files({one.name: one for one in source.keyed_states(operator)}, operator)
    found = (by_id.get(operator.id) or OperatorChanges.none(source, operator) for operator in source.metadata.operators)
    operators = {one.operator.id: replace(one, ttls=ttls.get(one.operator.id, ())) for one in found}
    operators = with_other_kryo(plan, source, operators, problems)
    problems += rewritten_lists(operators.values())
    if problems:
        raise PlanError("\n".join(problems))
    layout = wanted_layout(plan, source, [one.operator for one, _ in planned], native)
    rewrites = any(one.by_kryo or one.elements for one in operators.values())
    operators = {id_: replace(one, new_max=layout.of(one.operator).max_parallelism) for id_, one in operators.items()}
    operators = {id_: with_known_hashes(one, source, plan.job_classes) for id_, one in operators.items()}
    conversion = Conversion(layout, operators, metadata_version(plan, source, rewrites=rewrites))
    migrated_before = tuple((operators[one.operator.id], state) for one, states in planned for state in states)
    resolved = ResolvedPlan(plan, source, conversion, migrated_before)
    if not resolved.nothing_to_do:
        expect_writable(conversion.version, source.folder.child(METADATA).shown)
    resolved.rewrites()
    return resolved


def _expect_rows_hashed_as_today(source: Savepoint) -> None:
    """Refuses keys with rows in the key groups of Flink 1.12: where a newer job doesn't look for them."""
    if not may_be_before_1_13(source.metadata):
        return
    for operator in source.keyed_operators():
        for key in {state.key for state in source.keyed_states(operator)}:
            if has_row(key) or any(part.class_name == ROW for part in kept_by_kryo(key)):
                raise RefusedError(
                    f"operator {operator.label}: its keys ({type_name(key)}) have rows, which Flink hashes otherwise "
                    "since 1.13, and a Flink before 1.13 may have written this. The new job, with Flink 1.13 or newer, "
                    "would not find most of these keys, even without a migration: have the old job use keys without "
                    "rows, such as tuples. If this is a checkpoint of Flink 1.13 or newer, take a canonical savepoint"
                )


def _expect_divided_elements(source: Savepoint) -> None:
    """Refuses operator state in which elements aren't told apart: nothing else opens files that are only copied."""
    if source.metadata.version >= OF_FLINK_2:
        return
    for operator in source.metadata.operators:
        for subtask in operator.subtasks:
            if (handle := subtask.managed_operator) is not None and may_be_undivided(handle):
                read_operator_header(source.folder, handle)


def native_operators(plan: MigrationPlan, source: Savepoint) -> frozenset[bytes]:
    """The ids of the operators whose keyed state becomes RocksDB's own files.

    A job that has timers on the heap ignores those in RocksDB's files, and a canonical savepoint doesn't say where they
    were. So an operator with timers becomes native only if it is so in the source: then its timers stay where they are.
    """
    if plan.output_format != "native":
        return frozenset()
    return frozenset(
        operator.id
        for operator in source.keyed_operators()
        if all(subtask.managed_keyed is None for subtask in operator.subtasks)
        or not (_has_raw_keys(operator) or any(one.kind is StateKind.TIMERS for one in source.keyed_states(operator)))
    )


def _has_raw_keys(operator: Operator) -> bool:
    """Before Flink 1.13 these may be timers on the heap."""
    return any(subtask.raw_keyed is not None for subtask in operator.subtasks)


def may_lack_timers(source: Savepoint) -> bool:
    """Whether Flink may have left timers out of the snapshot: it is a native savepoint."""
    return is_savepoint(source.metadata) and any(map(has_native_state, source.metadata.operators))


def lost_timers(source: Savepoint) -> Iterator[str]:
    """Yields a problem for each operator whose timers may not be in the snapshot.

    Flink leaves timers on the heap out of native savepoints; raw keyed state of one is never timers. A
    checkpoint has them as raw keyed state, and RocksDB's timers are states.
    """
    if not may_lack_timers(source):
        return
    for operator in filter(has_native_state, source.metadata.operators):
        has_timers = any(state.kind is StateKind.TIMERS for state in source.keyed_states(operator))
        if not has_timers:
            yield (
                f"operator {operator.label} has no state of timers in this native savepoint. Flink leaves timers out of"
                " native savepoints, without an error, if the job keeps them on the heap"
                " (state.backend.rocksdb.timer-service.factory: HEAP); then they would be lost. If the operators named "
                "here have no timers, plan again with --no-timers; if you aren't sure, take a canonical savepoint: "
                "flink savepoint --type canonical JOB DIR"
            )


def _resolve_operator(
    plan: MigrationPlan, wanted: OperatorPlan, source: Savepoint, problems: list[str]
) -> tuple[OperatorChanges, list[StatePlan]]:
    """What the plan says of an operator, and the states that an earlier cut-over has migrated."""
    operator = source.operator(wanted.operator)
    states = {state.name: state for state in source.keyed_states(operator)}
    _refuse_untouchable(operator, states)
    rules: list[Rules] = []
    migrated_before: list[StatePlan] = []
    for state in wanted.states:
        if plan.reverse:
            problems += other_name_than_before(plan, state.legacy, state.new, states, operator)
            two = source.metadata.version >= OF_FLINK_2
            if (made := state_to_make(plan, state, states, operator, problems, of_flink_2=two)) is not None:
                rules.append(_rules_back(plan, state, *made))
        elif state.legacy in states:
            found = list(field_problems(state, states[state.legacy], operator, plan.job_classes))
            if not found:
                known = with_known_map(state, states, source, operator, plan)
                states[state.legacy] = with_known_keys(known, source, plan.job_classes)
            found = found or [
                *contradictions(plan, state, states, operator),
                *map_contradiction(state, states[state.legacy], operator),
                *key_problems(plan, state, states, operator),
                *(lazy_problems(state, states, operator) if plan.lazy else ()),
            ]
            problems += found
            for_flink_2 = makes_for_flink_2(plan, source)
            rules += [] if found else [replace(_rules(plan, state, states[state.legacy]), for_flink_2=for_flink_2)]
        elif (new := states.get(state.new)) is not None and new.kind is StateKind.MAP:
            problems += ttl_in_vain(state, new, operator)
            before = _rules(plan, state, legacy_state(state.legacy, new))
            problems += not_migrated_before(plan, wanted, before, states, operator, source)
            migrated_before.append(state)
        else:
            problems.append(no_such_legacy(state, states, operator))
    problems += [problem for one in rules for problem in slips(plan, wanted, one, states, operator)]
    problems += [problem for one in rules for problem in impossible_names(plan, one, states, operator)]
    rules = [with_planned_ttl(plan, source, operator, one, problems) for one in rules]
    return OperatorChanges(operator, operator.max_parallelism, states, tuple(rules)), migrated_before


def _refuse_untouchable(operator: Operator, states: dict[str, KeyedState]) -> None:
    if any(subtask.raw_keyed is not None for subtask in operator.subtasks):
        raise RefusedError(
            f"operator {operator.label} has raw keyed state: state that only its own code understands or, in a "
            "checkpoint or a savepoint from before Flink 1.13, timers on the heap. It can't be migrated. Canonical "
            f"savepoints have timers as a state; if it has any, {HOW_TO_TAKE_ONE_WITH_ANY_FLINK}"
        )
    for state in states.values():
        if state.asynchronous:
            raise RefusedError(
                f"state {state.name} of operator {operator.label} is asynchronous (V2) state: it can't be migrated"
            )


def _rules(plan: MigrationPlan, state: StatePlan, legacy: KeyedState) -> Rules:
    return Rules(
        legacy,
        state.new,
        state.flag,
        state.ttl_ms,
        plan.now,
        keep_expired=plan.keep_expired,
        nulls=Nulls(plan.nulls),
        on_contradiction=Contradiction(plan.on_contradiction),
        no_flag=state.no_flag,
        keep_legacy=plan.keep_legacy,
        rest=LegacyRest(state.rest),
    )


def _rules_back(plan: MigrationPlan, state: StatePlan, legacy: KeyedState, old_form: OldForm | None) -> RulesBack:
    return RulesBack(
        legacy,
        state.new,
        state.flag,
        state.ttl_ms,
        plan.now,
        no_flag=state.no_flag,
        drop_legacy_blobs=plan.drop_legacy_blobs,
        old_form=old_form,
    )
