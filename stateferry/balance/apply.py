"""Says how a proposed layout is applied: the command, and what stands in the way."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from stateferry.balance.layouts import Layout
from stateferry.hashing.java_hash import unstable_reason
from stateferry.savepoint.metadata import Operator
from stateferry.savepoint.reader import Savepoint


def how_to_apply(savepoint: Savepoint, operator: Operator, layout: Layout) -> Iterator[str]:
    """Yields lines for people; one that begins with `stateferry` is a command, with capital letters to fill in."""
    if layout.max_parallelism == operator.max_parallelism:
        if layout.parallelism != operator.parallelism:
            yield (
                f"Start the job from the savepoint with parallelism {layout.parallelism} for this operator: Flink "
                "moves whole key groups then, and needs nothing else."
            )
        return
    blocked = list(_fixed_operators(savepoint))
    if blocked:
        yield f"A run can't change the max parallelism of this savepoint: {'; '.join(blocked)}."
        return
    migratable = [
        (owner, state)
        for owner in sorted(savepoint.keyed_operators(), key=lambda one: one is not operator)
        for state in savepoint.keyed_states(owner)
        if state.why_not_migratable is None
    ]
    if not migratable:
        yield (
            "Only `stateferry run` changes the max parallelism, and it does so together with a migration: this "
            "savepoint has no ValueState of a map to migrate."
        )
        return
    owner, state = migratable[0]
    parts = [
        *("stateferry", "run", "--savepoint", savepoint.folder.shown, "--target", "NEW_FOLDER"),
        *("--operator", owner.label, "--legacy-state", state.name, "--new-state", "NEW_STATE"),
        *(("--ttl", "DURATION") if state.ttl else ()),
        # A run's parallelism is that of the operator that it migrates.
        *(("--parallelism", str(layout.parallelism)) if owner is operator else ()),
        *("--max-parallelism", str(layout.max_parallelism)),
    ]
    yield shlex.join(parts)
    others = len(savepoint.metadata.operators) - 1
    if others:
        yield (
            "The max parallelism becomes that of every operator in the savepoint "
            f"({others} {'other' if others == 1 else 'others'})."
        )
    if owner is not operator and layout.parallelism != operator.parallelism:
        yield f"Then start the job with parallelism {layout.parallelism} for operator {operator.label}."
    yield f"A job that sets a max parallelism has to set {layout.max_parallelism}; one that sets none adopts it."


def _fixed_operators(savepoint: Savepoint) -> Iterator[str]:
    """Yields why keyed operators have keys whose key group at another max parallelism isn't known."""
    for operator in savepoint.keyed_operators():
        for file in savepoint.open_files(operator):
            reason = unstable_reason(file.header.key_serializer.type)
            if reason is not None:
                yield f"operator {operator.label}: {reason}"
            break
