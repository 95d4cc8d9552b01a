"""Checks what a plan in reverse says of a state against the new job's savepoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.type_parts import kept_by_kryo
from flinkstate.serializers.types import KryoMapType
from stateferry.changes.rows_to_blobs import legacy_state
from stateferry.changes.rules import OldForm
from stateferry.runs.checks.contradictions import ttl_problems
from stateferry.runs.checks.named_flag import flag_problems
from stateferry.runs.checks.old_form import how_declared, old_state
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.planned_states import StatePlan


def state_to_make(
    plan: MigrationPlan,
    state: StatePlan,
    states: Mapping[str, KeyedState],
    operator: Operator,
    problems: list[str],
    *,
    of_flink_2: bool,
) -> tuple[KeyedState, OldForm | None] | None:
    """Returns the legacy state that the map state becomes, and how it is stored; None if there is a problem.

    `of_flink_2` says whether the savepoint is of Flink 2.
    """
    new, where = states.get(state.new), f"operator {operator.label}"
    if new is None:
        known = ", ".join(one.name for one in states.values() if one.kind is StateKind.MAP) or "none"
        already = f"; {state.legacy} is a ValueState of a map already" if is_legacy(states.get(state.legacy)) else ""
        problems.append(
            f"{where} has no MapState {state.new!r}, whose rows would become blobs{already}. Its MapStates: {known}"
        )
        return None
    if new.kind is not StateKind.MAP:
        problems.append(f"state {new.name} of {where} is {new.kind.value} state: the new state is a MapState")
        return None
    legacy = legacy_state(state.legacy, new)
    if reason := _why_not_reversible(legacy):
        raise RefusedError(f"state {new.name} of {where} can't become a ValueState: {reason}")
    form = None
    if plan.like is None:
        problems += how_declared(plan, state, operator)
    elif (old := old_state(plan, operator, state.legacy, legacy, of_flink_2=of_flink_2)) is not None:
        legacy, form = old
    found = [*ttl_problems(state, new, operator), *_of_legacy(state, legacy, states, where)]
    if state.flag is not None and (flag := states.get(state.flag)) is not None:
        found += flag_problems(plan, flag, legacy, operator)
    problems += found
    return None if found else (legacy, form)


def _why_not_reversible(legacy: KeyedState) -> str | None:
    if (reason := legacy.why_not_split) is not None or legacy.map_type is None:
        return reason
    kept = dict.fromkeys(part.class_name for part in (*kept_by_kryo(legacy.key), *kept_by_kryo(legacy.map_type)))
    return f"its keys or values are by Kryo ({', '.join(kept)})" if kept else None


def is_legacy(state: KeyedState | None) -> bool:
    """Whether the state is a `ValueState<Map>`."""
    return state is not None and state.map_type is not None


def _of_legacy(state: StatePlan, legacy: KeyedState, states: Mapping[str, KeyedState], where: str) -> Iterator[str]:
    """Yields what is wrong with a legacy state that is still there."""
    there = states.get(state.legacy)
    kryo = legacy.value.kryo if isinstance(legacy.value, KryoMapType) else legacy.value
    if there is not None and there != replace(legacy, value=kryo):
        kind = f"{there.kind.value} of {there.type_name} {'with' if there.ttl else 'without'} TTL"
        yield (
            f"state {state.legacy} of {where} is in the savepoint, as {kind}; {state.new} would become a ValueState of "
            f"{legacy.type_name} {'with' if legacy.ttl else 'without'} TTL: name another legacy state"
        )
