"""What a plan says of a legacy state that contradicts the savepoint."""

from __future__ import annotations

from collections.abc import Iterator

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.types import OpaqueType
from stateferry.basics.durations import format_duration
from stateferry.inventory.wrong_name_signs import may_hold
from stateferry.runs.checks.named_flag import flag_problems
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.planned_states import StatePlan


def contradictions(
    plan: MigrationPlan, state: StatePlan, states: dict[str, KeyedState], operator: Operator
) -> Iterator[str]:
    """Yields what the plan says of an existing legacy state that contradicts the savepoint's `states`."""
    legacy = states[state.legacy]
    where = f"state {state.legacy} of operator {operator.label}"
    if reason := legacy.why_not_migratable:
        if legacy.kind is StateKind.VALUE and (legacy.map_type or isinstance(legacy.value, OpaqueType)):
            raise RefusedError(f"{where} can't be migrated: {reason}")
        yield f"{where} can't be migrated: it is {reason}. {_migratable(states, plan.job_classes)}"
        return
    yield from ttl_problems(state, legacy, operator)
    if (new := states.get(state.new)) is not None:
        yield from _against_new(legacy, new, operator)
    if state.flag is not None and (flag := states.get(state.flag)) is not None:
        yield from flag_problems(plan, flag, legacy, operator)


def _migratable(states: dict[str, KeyedState], job: JobClasses | None) -> str:
    names = [state.name for state in states.values() if state.why_not_migratable is None or may_hold(state, job)]
    return f"Can be migrated: {', '.join(names) or 'none'}"


def ttl_problems(state: StatePlan, there: KeyedState, operator: Operator) -> Iterator[str]:
    """Yields a problem if the plan lacks the TTL of a state, or has one in vain."""
    if there.ttl and state.ttl_ms is None:
        yield (
            f"state {there.name} of operator {operator.label} has TTL (its values have timestamps), but --ttl is "
            "missing: give the duration of the job's StateTtlConfig, which the savepoint doesn't contain"
        )
    yield from ttl_in_vain(state, there, operator)


def ttl_in_vain(state: StatePlan, there: KeyedState, operator: Operator) -> Iterator[str]:
    """Yields a problem if the plan has a TTL for a state without TTL: the legacy state, or the new state alone."""
    if not there.ttl and state.ttl_ms is not None:
        yield (
            f"state {there.name} of operator {operator.label} has no TTL (its values have no timestamps), but the "
            f"run has --ttl {format_duration(state.ttl_ms)}: leave it out. TTL on one side only is the "
            "most common reason why Flink rejects a restore"
        )


def _against_new(legacy: KeyedState, new: KeyedState, operator: Operator) -> Iterator[str]:
    """Yields why the legacy state can't become the existing new state, which the job has begun to fill.

    Whether their serializers fit is checked later, when the two states are described as one.
    """
    if new.kind is not StateKind.MAP:
        yield f"state {new.name} of operator {operator.label} is {new.kind.value} state: the new state is a MapState"
    elif new.ttl != legacy.ttl:
        one, other = (legacy, new) if legacy.ttl else (new, legacy)
        yield (
            f"state {one.name} of operator {operator.label} has TTL, {other.name} has none: TTL on one side only is "
            "the most common reason why Flink rejects a restore. Give both or neither TTL in the job, and take a new "
            "savepoint"
        )
