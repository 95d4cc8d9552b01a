"""Finds the states for which a plan gives a time to live, beside those that it migrates (`--state-ttl`).

What the plan gives for a legacy state or for its new state is for both of them, in this run's rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from flinkstate.basics.did_you_mean import there_are
from flinkstate.keyed.state import StateKind
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.programs import compile_type
from stateferry.basics.durations import format_duration
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import PlannedTtl, Rules
from stateferry.changes.section_timestamps import why_no_timestamps
from stateferry.changes.upgrade.kryo_keys import as_written
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.state_ttls import StateTtlPlan

# By operator id and name of a state that takes part.
_Migrated = Mapping[tuple[bytes, str], Rules]


def with_planned_ttl(
    plan: MigrationPlan, source: Savepoint, operator: Operator, rules: Rules, problems: list[str]
) -> Rules:
    """The rules with what `--state-ttl` gives for the legacy state, or for the new one, as for any other state.

    Unless it says what becomes of expired entries, they stay, as those of any other state do.
    """
    given = [
        one
        for one in plan.state_ttls
        if one.state in (rules.legacy.name, rules.new_name) and source.operator(one.operator).id == operator.id
    ]
    if not given:
        return rules
    found = list(_problems_of_rules(plan, operator, rules, given))
    problems += found
    return rules if found else replace(rules, planned_ttl=given[0].config, keep_expired=not given[0].drops)


def _problems_of_rules(
    plan: MigrationPlan, operator: Operator, rules: Rules, given: Sequence[StateTtlPlan]
) -> Iterator[str]:
    one, where = given[0], f"state {given[0].state} of operator {operator.label}"
    if len(given) > 1:
        yield (
            f"--state-ttl tells {rules.legacy.name} and {rules.new_name} of operator {operator.label}, which this run "
            "makes one state: tell one of them"
        )
    if not rules.legacy.ttl:
        yield _in_vain(where, one)
    if rules.ttl is not None and one.ttl_ms != rules.ttl:
        yield (
            f"{where} has a time to live of {format_duration(rules.ttl)} (--ttl) and one of "
            f"{format_duration(one.ttl_ms)} (--state-ttl): give the same"
        )
    if plan.keep_expired and one.drops:
        yield f"{where}: --keep-expired keeps what has expired, and its --state-ttl drops it: leave one of them out"
    if rules.why_expired_go is not None and not one.drops:
        yield f"{where}: {rules.why_expired_go}: say drop or drop-visible in its --state-ttl"


def find_planned_ttls(
    plan: MigrationPlan,
    source: Savepoint,
    of_operators: Mapping[bytes, Sequence[Rules]],
    migrated_before: Mapping[tuple[bytes, str], str],
    problems: list[str],
) -> dict[bytes, tuple[PlannedTtl, ...]]:
    """Finds the states by operator id, and adds a line to `problems` for each that can't have a time to live.

    `migrated_before` are the new names of legacy states that the savepoint doesn't have any more.
    """
    migrated = {
        (id_, name): rules for id_, several in of_operators.items() for rules in several for name in rules.names
    }
    planned: dict[bytes, tuple[PlannedTtl, ...]] = {}
    for told in plan.state_ttls:
        operator = source.operator(told.operator)
        wanted = told.model_copy(update={"state": migrated_before.get((operator.id, told.state), told.state)})
        rules = migrated.get((operator.id, wanted.state))
        if rules is not None and wanted.state != rules.flag_name:
            continue
        state = {state.name: state for state in source.keyed_states(operator)}.get(wanted.state)
        before = planned.get(operator.id, ())
        if state is not None and any(one.state.name == state.name for one in before):
            problems.append(f"state {state.name} of operator {operator.label} has more than one time to live: give one")
        found = list(_problems(wanted, source, operator, migrated))
        problems += found
        if state is not None and not found:
            planned[operator.id] = (*before, PlannedTtl(state, wanted.config, plan.now, wanted.drops))
    return planned


def rewritten_lists(changes: Iterable[OperatorChanges]) -> Iterator[str]:
    """Yields a problem for each list that loses elements while all of them are written for another Flink.

    Where an element ends follows from its type, and that may not be the same before and after.
    """
    for one in changes:
        for planned in (ttl for ttl in one.ttls if ttl.drops and ttl.state.kind is StateKind.LIST):
            known = one.by_kryo.get(planned.state.name)
            if known is None or known.value is None or planned.state.value is None:
                continue
            before, after = (compile_type(type_) for type_ in (planned.state.value, as_written(known.value)))
            if not np.array_equal(before.code, after.code):
                yield (
                    f"state {planned.state.name} of operator {one.operator.label} is a list whose elements are written "
                    "for another Flink, so this run can't drop those that have expired: leave drop out of its "
                    "--state-ttl, and drop them in another run"
                )


def _problems(wanted: StateTtlPlan, source: Savepoint, operator: Operator, migrated: _Migrated) -> Iterator[str]:
    states = {state.name: state for state in source.keyed_states(operator)}
    where = f"state {wanted.state} of operator {operator.label}"
    if (operator.id, wanted.state) in migrated:
        yield f"{where} is a flag state of this run: its time to live is --ttl, not --state-ttl"
    elif (state := states.get(wanted.state)) is None:
        yield f"operator {operator.label} has no keyed state {wanted.state!r}. {there_are(wanted.state, states)}"
    elif not state.ttl:
        yield _in_vain(where, wanted)
    elif reason := why_no_timestamps(state):
        yield f"{where}: its timestamps can't be read, because {reason}: leave its --state-ttl out"


def _in_vain(where: str, given: StateTtlPlan) -> str:
    return (
        f"{where} has no TTL (its values have no timestamps), but --state-ttl tells one of "
        f"{format_duration(given.ttl_ms)}: leave it out"
    )
