"""Holds the names of states in a plan against the states that an operator has, as far as their descriptions tell.

What only the keys tell is found in the snapshot step (`name_guard`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flinkstate.basics.did_you_mean import is_alike, is_slip, there_are
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.binary import encode_modified_utf8
from stateferry.changes.rules import Rules
from stateferry.inventory.wrong_name_signs import may_hold, rivals_of
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.planned_states import OperatorPlan, StatePlan
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.run_states import RunState

States = Mapping[str, KeyedState]
# RocksDB has a column family of this name whatever a job does, and Flink gives each state one of its own.
_OF_ROCKSDB = "default"
_MOST_BYTES = 0xFFFF


def no_such_legacy(state: StatePlan, states: States, operator: Operator) -> str:
    """The problem of a legacy state that isn't there, and neither is a new state that it could have become."""
    return (
        f"operator {operator.label} has no keyed state {state.legacy!r}, and no MapState {state.new!r} that it could "
        f"have become. {there_are(state.legacy, states)}"
    )


def impossible_names(plan: MigrationPlan, rules: Rules, states: States, operator: Operator) -> Iterator[str]:
    """Yields names of states that the run makes, and that Flink can't write or doesn't take on RocksDB."""
    made = {rules.made_name, *([rules.flag_name] if plan.lazy and rules.flag_name is not None else ())}
    for name in sorted(made - states.keys()):
        if name == _OF_ROCKSDB:
            yield f"operator {operator.label}: {_not_on_rocksdb(name)}: give the new job's state another name"
        if (size := len(encode_modified_utf8(name))) > _MOST_BYTES:
            found = f"{name[:20]!r}... has {size}"
            yield f"operator {operator.label}: a state's name has {_MOST_BYTES} bytes at most, {found}"


def not_in_native_files(states: States, operator: Operator) -> Iterator[str]:
    """Yields a state that can't be in RocksDB's own files because of its name."""
    if _OF_ROCKSDB in states:
        yield f"operator {operator.label}: {_not_on_rocksdb(_OF_ROCKSDB)}: leave --format native out"


def _not_on_rocksdb(name: str) -> str:
    return f"Flink refuses a state {name!r} on RocksDB, which has a column family of that name itself"


def not_migrated_before(
    plan: MigrationPlan, wanted: OperatorPlan, rules: Rules, states: States, operator: Operator, source: Savepoint
) -> Iterator[str]:
    """Yields why a legacy state that isn't there may be misnamed, although its new state is there.

    It was migrated before if no other state can have been meant, or if an earlier run of the job has published it.
    """
    legacy, new = rules.legacy.name, rules.new_name
    if legacy in legacies_before(plan, operator, new, also_lazy=False):
        return
    nothing_shows = (
        f"operator {operator.label} has no keyed state {legacy!r}, and nothing shows that it was migrated before: "
    )
    if others := sorted(_may_be_meant(rules, states, plan.job_classes) - {one.legacy for one in wanted.states}):
        yield (
            f"{nothing_shows}{', '.join(others)} may have been meant. {there_are(legacy, states)}. If {legacy} was "
            "migrated, leave it out of the plan"
        )
    for other in _others_with(legacy, plan, source) if not others else ():
        yield (
            f"{nothing_shows}operator {other.label} has a state {legacy!r} of maps: did you mean --operator "
            f"{other.label}? If {legacy} of {operator.label} was migrated, leave it out of the plan"
        )


def _may_be_meant(rules: Rules, states: States, job: JobClasses | None) -> set[str]:
    return {
        state.name
        for state in states.values()
        if may_hold(state, job, rules.map_type) or (may_hold(state, job) and is_alike(state.name, rules.legacy.name))
    }


def _others_with(legacy: str, plan: MigrationPlan, source: Savepoint) -> Iterator[Operator]:
    """Yields the operators that the plan doesn't name and that have such a state of maps."""
    planned, job = {source.operator(one.operator).id for one in plan.operators}, plan.job_classes
    for other in source.keyed_operators():
        states = source.keyed_states(other)
        if other.id not in planned and any(one.name == legacy and may_hold(one, job) for one in states):
            yield other


def slips(plan: MigrationPlan, wanted: OperatorPlan, rules: Rules, states: States, operator: Operator) -> Iterator[str]:
    """Yields names in the plan that the savepoint lacks, and that are nearly those of states that it has.

    Any state may have been meant: under its right name it may be refused, because of its types or its time to live.
    """
    if plan.accept_empty == 1:
        return
    planned = {name for one in wanted.states for name in (one.legacy, one.new, one.flag)}
    rivals = rivals_of(rules, states)
    no_flag = "--accept-empty 100%" if plan.lazy else "--no-flag-state"
    for option, name, fitting, meant in (
        ("--legacy-state", rules.legacy.name, rivals.legacies, "--accept-empty 100%"),
        ("--new-state", rules.new_name, rivals.maps, "--accept-empty 100%"),
        ("--flag-state", rules.flag_name, rivals.flags, no_flag),
    ):
        if name is None or name in states:
            continue
        for other in sorted(states.keys() - planned):
            fits = other in fitting
            if is_alike(name, other) if fits else is_slip(name, other):
                found = "which is of the types that it would have" if fits else f"which is {_described(states[other])}"
                yield (
                    f"operator {operator.label} has no state {name!r}, but {other!r}, {found}: did you mean {option} "
                    f"{other}? If the names are right all the same, say so: {meant}"
                )


def _described(state: KeyedState) -> str:
    return f"{state.kind.value} state of {state.type_name} {'with' if state.ttl else 'without'} TTL"


def other_name_than_before(
    plan: MigrationPlan, legacy: str, new: str, states: States, operator: Operator
) -> Iterator[str]:
    """Yields a problem if a run in reverse pairs states otherwise than the runs that have migrated them.

    The new job's savepoint doesn't have the old name, so that nothing else shows a slip.
    """
    if not plan.reverse or plan.accept_empty == 1:
        return
    before = pairs_before(plan, operator)
    legacies, news = ({one for one, of in before if of == new}, {of for one, of in before if one == legacy})
    if legacies and legacy not in legacies and legacy not in states:
        yield (
            f"operator {operator.label}: {new} was made of {' and of '.join(sorted(legacies))}, as published runs "
            f"of the job say, and would become {legacy!r}, which an old job doesn't find if it calls its state as "
            f"before: did you mean --legacy-state {min(legacies)}? If it has another name now, say so: "
            "--accept-empty 100%"
        )
    elif news and new not in news:
        yield (
            f"operator {operator.label}: {legacy} became {' and '.join(sorted(news))}, as published runs of the job "
            f"say, and {new} would become {legacy} again: did you mean --new-state {min(news)}? If its rows are in "
            f"{new} now, say so: --accept-empty 100%"
        )


def legacies_before(plan: MigrationPlan, operator: Operator, new: str, *, also_lazy: bool = True) -> set[str]:
    """Of which legacy states the publications of the job that weren't undone have made this new state."""
    return {legacy for legacy, of in pairs_before(plan, operator, also_lazy=also_lazy) if of == new}


def pairs_before(plan: MigrationPlan, operator: Operator, *, also_lazy: bool = True) -> set[tuple[str, str]]:
    """Which legacy states became which new ones by the publications of the job that weren't undone."""
    names = {operator.hex_id, operator.uid, operator.name}
    return {
        (state.legacy, state.new)
        for run in runs_of(plan.home, plan.job)
        if run.state is RunState.PUBLISHED and run.plan is not None and not run.plan.reverse
        if also_lazy or not run.plan.lazy
        for one in run.plan.operators
        if one.operator in names
        for state in one.states
    }
