"""Checks the flag state that a plan names against the state of that name in the savepoint."""

from __future__ import annotations

from collections.abc import Iterator

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.types import Scalar, type_name
from stateferry.runs.plan.plan import MigrationPlan


def flag_problems(plan: MigrationPlan, flag: KeyedState, legacy: KeyedState, operator: Operator) -> Iterator[str]:
    """Yields why the state can't be the flag of the legacy state.

    A run leaves the flag state out of the new savepoint, so a wrong name would lose what that state holds. What a lazy
    run needs beside that is in `lazy_flag`.
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
