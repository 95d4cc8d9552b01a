"""Says how a proposed layout is applied: the command, and what stands in the way."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from flinkstate.errors import PlanError, RefusedError
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout, OperatorRewrite
from stateferry.look.balance.layouts import KeyGroupLayout


def how_to_apply(savepoint: Savepoint, operator: Operator, layout: KeyGroupLayout) -> Iterator[str]:
    """Yields lines for people; one that begins with `stateferry` is a command, with capital letters to fill in."""
    scales = layout.parallelism != operator.parallelism
    if layout.max_parallelism == operator.max_parallelism:
        if scales:
            yield (
                f"Start the job from the savepoint with parallelism {layout.parallelism} for this operator: Flink "
                "moves whole key groups then, and needs nothing else."
            )
        return
    changed = _with_another_max(savepoint)
    blocked = list(_refusals(savepoint, changed, operator, layout))
    if blocked:
        yield f"A run can't change the max parallelism of this savepoint: {'; '.join(blocked)}."
        return
    job = () if len(savepoint.keyed_operators()) == 1 else ("--job", "JOB")
    name = savepoint.shortest_name(operator)
    parts = [
        *("stateferry", "run", "--savepoint", savepoint.folder.shown, "--target", "NEW_FOLDER", *job),
        *(("--parallelism", f"{name}={layout.parallelism}") if scales else ()),
        *("--max-parallelism", str(layout.max_parallelism)),
    ]
    yield shlex.join(parts)
    yield from _with_a_migration(savepoint, operator)
    if others := len(changed) - 1:
        yield (
            "The max parallelism becomes that of every operator that can be parallel "
            f"({others} {'other' if others == 1 else 'others'})."
        )
    yield f"A job that sets a max parallelism has to set {layout.max_parallelism}; one that sets none adopts it."


def _with_a_migration(savepoint: Savepoint, operator: Operator) -> Iterator[str]:
    """Yields what to add to the command, if there is a state that the same run can migrate."""
    for owner in sorted(savepoint.keyed_operators(), key=lambda one: one is not operator):
        for state in savepoint.keyed_states(owner):
            if state.why_not_migratable is None:
                names = ["--operator", savepoint.shortest_name(owner), "--legacy-state", state.name, "--new-state"]
                added = shlex.join([*names, "NEW_STATE", *(("--ttl", "DURATION") if state.ttl else ())])
                yield f"To migrate {state.name} to a MapState in the same run, add: {added}"
                return


def _with_another_max(savepoint: Savepoint) -> tuple[Operator, ...]:
    """The operators that a run gives another max parallelism: those with 1 keep it, unless the whole job has it."""
    operators = savepoint.metadata.operators
    return tuple(one for one in operators if one.max_parallelism > 1) or operators


def _refusals(
    savepoint: Savepoint, changed: tuple[Operator, ...], operator: Operator, layout: KeyGroupLayout
) -> Iterator[str]:
    """Yields why a run can't do it. Only the run itself sees which other operators' rows are filled by name."""
    if operator not in changed:
        yield f"operator {operator.label} keeps max parallelism 1, which a job sets for what it can't run in parallel"
    wanted = Layout({operator.id: layout.parallelism}, layout.max_parallelism)
    for one in changed:
        if any(subtask.finished or subtask.streams() for subtask in one.subtasks):
            try:
                OperatorRewrite.prepare(savepoint, one, wanted)
            except (PlanError, RefusedError) as error:
                yield f"{error}"
