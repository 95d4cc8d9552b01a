"""Checks the flag state that a plan names against the savepoint; the one that a lazy run sets may be missing there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.types import Scalar, type_name
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.planned_states import StatePlan


def flag_problems(plan: MigrationPlan, flag: KeyedState, legacy: KeyedState, operator: Operator) -> Iterator[str]:
    """Yields why the state can't be the flag of the legacy state.

    A run leaves the flag state out of the new savepoint, so a wrong name would lose what that state holds. What a lazy
    run needs beside that, `lazy_problems` says.
    """
    where = f"flag {flag.name} of operator {operator.label}"
    if flag.kind is not StateKind.VALUE:
        yield f"{where} is {flag.kind.value} state: a flag is a ValueState"
    elif flag.namespace != legacy.namespace:
        yield (
            f"{where} is per {type_name(flag.namespace)}, {legacy.name} per {type_name(legacy.namespace)}: a flag says "
            "for one key and namespace that its map was moved"
        )
    elif flag.value is not Scalar.BOOLEAN and plan.accept_empty != 1 and not plan.lazy:
        yield (
            f"{where} is a ValueState<{flag.type_name}>: a flag is a ValueState<Boolean>, and the run leaves it out of "
            "the new savepoint. If it says by any value that the job has moved the key, and says nothing else: "
            "--accept-empty 100%"
        )


def flag_of(state: StatePlan, states: Mapping[str, KeyedState]) -> KeyedState | None:
    """The flag state that a lazy run sets, which is made if the savepoint has none; None if the plan names none.

    `states` are the operator's states by name; the legacy state is one of them.
    """
    if state.flag is None:
        return None
    legacy = states[state.legacy]
    ttl = {"with": True, "without": False}.get(state.flag_ttl, legacy.ttl)
    made = KeyedState(
        state.flag, StateKind.VALUE, legacy.key, legacy.namespace, None, Scalar.BOOLEAN, ttl, asynchronous=False
    )
    return states.get(state.flag, made)


def lazy_problems(state: StatePlan, states: Mapping[str, KeyedState], operator: Operator) -> Iterator[str]:
    """Yields why a lazy run can't set the flag that the plan names."""
    flag = flag_of(state, states)
    if flag is None or flag.kind is not StateKind.VALUE:
        return
    where = f"flag {flag.name} of operator {operator.label}"
    if flag.value is not Scalar.BOOLEAN:
        yield (
            f"{where} is a ValueState<{flag.type_name}>: a lazy run sets the flags of the keys that it moves, so it "
            "needs a ValueState<Boolean>. Migrate without lazy, or name the right state"
        )
    elif state.flag_ttl != "as-legacy" and flag.ttl != (state.flag_ttl == "with"):
        found = "with" if flag.ttl else "without"
        yield (
            f"{where} is in the savepoint, {found} TTL, but the plan says flag_ttl {state.flag_ttl}: leave flag_ttl "
            "out, it describes a flag state that the savepoint lacks"
        )
