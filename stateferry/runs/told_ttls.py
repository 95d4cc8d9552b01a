"""Finds the states whose time to live a plan tells although it doesn't migrate them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stateferry.did_you_mean import there_are
from stateferry.durations import format_duration
from stateferry.migration.rules import ToldTtl
from stateferry.migration.stamps import why_no_stamps
from stateferry.runs.plan import MigrationPlan
from stateferry.runs.state_ttls import StateTtlPlan
from stateferry.savepoint.metadata import Operator
from stateferry.savepoint.reader import Savepoint

# What the plan migrates: by operator id and name of a state, what this state is in its migration.
Migrated = Mapping[tuple[bytes, str], str]


def find_told_ttls(
    plan: MigrationPlan, source: Savepoint, migrated: Migrated, problems: list[str]
) -> dict[bytes, tuple[ToldTtl, ...]]:
    """Finds the states by operator id, and adds a line to `problems` for each that can't have a time to live."""
    told: dict[bytes, tuple[ToldTtl, ...]] = {}
    for wanted in plan.state_ttls:
        operator = source.operator(wanted.operator)
        state = {state.name: state for state in source.keyed_states(operator)}.get(wanted.state)
        before = told.get(operator.id, ())
        if state is not None and any(one.state.name == state.name for one in before):
            problems.append(f"state {state.name} of operator {operator.label} has more than one time to live: give one")
        found = list(_problems(wanted, source, operator, migrated))
        problems += found
        if state is not None and not found:
            told[operator.id] = (*before, ToldTtl(state, wanted.config, plan.now, wanted.drops))
    return told


def _problems(wanted: StateTtlPlan, source: Savepoint, operator: Operator, migrated: Migrated) -> Iterator[str]:
    states = {state.name: state for state in source.keyed_states(operator)}
    where = f"state {wanted.state} of operator {operator.label}"
    if (role := migrated.get((operator.id, wanted.state))) is not None:
        yield f"{where} is {role} of this run: its time to live is --ttl, not --state-ttl"
    elif (state := states.get(wanted.state)) is None:
        yield f"operator {operator.label} has no keyed state {wanted.state!r}. {there_are(wanted.state, states)}"
    elif not state.ttl:
        yield (
            f"{where} has no TTL (its values have no timestamps), but --state-ttl tells one of "
            f"{format_duration(wanted.ttl_ms)}: leave it out"
        )
    elif reason := why_no_stamps(state):
        yield f"{where}: its timestamps can't be read, because {reason}: leave its --state-ttl out"
