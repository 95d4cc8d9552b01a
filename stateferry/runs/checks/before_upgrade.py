"""The savepoint from before an upgrade (`--before`), held against that of the upgraded job: operators, states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.key_group_extents import key_group_extents
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import kept_by_kryo
from flinkstate.serializers.types import FlinkType, KryoType, PojoType, children, type_name
from stateferry.changes.rules import Rules
from stateferry.changes.upgrade.before_upgrade import BeforeUpgrade, StateBefore
from stateferry.changes.upgrade.for_other_kryo import all_by_kryo_2, expect_rewritable, states_by_kryo
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.plan.plan import MigrationPlan

ByKryo = Mapping[bytes, Mapping[str, KeyedState]]
# Durations by operator id and state.
Ttls = Mapping[tuple[bytes, str], int]


def find_before(
    plan: MigrationPlan,
    source: Savepoint,
    by_kryo: ByKryo,
    rules: Mapping[bytes, Sequence[Rules]],
    is_way_back: bool,
    problems: list[str],
) -> dict[bytes, BeforeUpgrade]:
    """Returns the operators before the upgrade, and adds a line to `problems` for what can't be compared."""
    if plan.before is None:
        return {}
    if is_way_back:
        problems.append(
            "--before is for --to flink-2: what was lost is put back into values by Kryo 5, beside newer ones. Run "
            "that first, and give its result to --to flink-1.20 with --all-by-kryo-5"
        )
        return {}
    migrated = [
        f"state {one.legacy.name} of operator {source.operator(id_.hex()).label} is migrated in the same run: what an "
        "upgrade lost is put back by a run of its own, without a migration; migrate its result"
        for id_, several in rules.items()
        for one in several
    ]
    problems += migrated
    ttls = {(source.operator(one.operator).id, one.state): one.ttl_ms for one in plan.state_ttls}
    old = Savepoint.open(plan.before, files_from=plan.files_from)
    found, why_not = hold_against(old, source, by_kryo, ttls, plan.now, plan.job_classes)
    problems += why_not or nothing_in_common(old, source, by_kryo, found)
    if plan.restore_lost:
        problems += _without_ttl(found, source)
        problems += _without_file(found, source, plan.restore_keys)
    return {
        id_: replace(one, restores=plan.restore_lost, restores_keys=plan.restore_keys) for id_, one in found.items()
    }


def hold_against(
    old: Savepoint, source: Savepoint, by_kryo: ByKryo, ttls: Ttls, now: int, job: JobClasses | None
) -> tuple[dict[bytes, BeforeUpgrade], list[str]]:
    """Returns the operators that can be compared, and why others can't: the savepoint is of another job, or too new.

    Operators of which it has no state by Kryo are among them, without states.
    """
    where = f"{old.folder.shown} (--before)"
    if (why := not_before(old, source)) is not None:
        return {}, [why]
    found: dict[bytes, BeforeUpgrade] = {}
    problems: list[str] = []
    operators = {operator.id: operator for operator in old.keyed_operators()}
    for id_, states in by_kryo.items():
        operator = source.operator(id_.hex())
        if (before := operators.get(id_)) is None:
            continue
        of_old = states_by_kryo({state.name: state for state in old.keyed_states(before)}, job)
        own = list(_differences(where, before, of_old, operator, states))
        problems += own
        # The new job may have registered more classes with Kryo.
        common = {name: all_by_kryo_2(states[name]) for name in of_old if name in states}
        if not own:
            found[id_] = BeforeUpgrade(
                old,
                before,
                {name: StateBefore(state, ttls.get((id_, name)), now) for name, state in common.items()},
                key_groups=_key_groups(old, before) if common else frozenset(),
            )
    return found, problems


def nothing_in_common(
    old: Savepoint, source: Savepoint, by_kryo: ByKryo, found: Mapping[bytes, BeforeUpgrade]
) -> Iterator[str]:
    """Yields a problem if the two savepoints have no keyed state in common that can be compared."""
    if any(one.states for one in found.values()):
        return
    missing = by_kryo.keys() - {operator.id for operator in old.keyed_operators()}
    label = source.operator(min(missing).hex()).label if missing else ""
    why = f": it has no keyed state of operator {label}, so it is of another job" if missing else ""
    yield f"{old.folder.shown} (--before) and {source.folder.shown} have no keyed state by Kryo in common{why}"


def not_before(old: Savepoint, source: Savepoint) -> str | None:
    """Returns why the one savepoint can't be from before the upgrade of the other one's job; None if it can."""
    where = f"{old.folder.shown} (--before)"
    if source.metadata.version < OF_FLINK_2:
        return f"{source.folder.shown} is of Flink 1, so no upgrade has lost anything of it: leave --before out"
    if old.metadata.version >= OF_FLINK_2:
        return f"{where} is of Flink 2: give the savepoint of Flink 1 from which the upgraded job was restored"
    if 0 < source.metadata.checkpoint_id <= old.metadata.checkpoint_id:
        return _too_new(where, old, source)
    return None


def not_held_against(old: Savepoint, source: Savepoint, by_kryo: ByKryo, job: JobClasses | None) -> Iterator[str]:
    """Yields the operators that have keyed state by Kryo in one of the savepoints alone."""
    where = f"{old.folder.shown} (--before)"
    before = {operator.id for operator in old.keyed_operators()}
    # Flink 1 names no operators.
    labels = {operator.id: operator.label for operator in (*old.metadata.operators, *source.metadata.operators)}
    for label in (labels[id_] for id_ in by_kryo if id_ not in before):
        yield f"operator {label} has keyed state by Kryo, and no keyed state in {where}"
    for operator in old.metadata.operators:
        label = labels[operator.id]
        try:
            keyed = old.keyed_states(operator) if operator.id in before - by_kryo.keys() else ()
            states = ", ".join(states_by_kryo({state.name: state for state in keyed}, job))
        except RefusedError as error:
            yield f"operator {label} of {where} can't be looked into: {error}"
            continue
        if states:
            yield f"operator {label} has keyed state by Kryo in {where} ({states}), and none any more"


def _too_new(where: str, old: Savepoint, source: Savepoint) -> str:
    """A job counts its checkpoints on from the savepoint from which it was restored; programs write the number 0."""
    return (
        f"{where} is newer than the savepoint from which the upgraded job was restored: it is checkpoint "
        f"{old.metadata.checkpoint_id} of its job, and {source.folder.shown} is checkpoint "
        f"{source.metadata.checkpoint_id} of the upgraded job, which counts on from there. Give that savepoint"
    )


def _differences(
    where: str, before: Operator, of_old: Mapping[str, KeyedState], operator: Operator, states: Mapping[str, KeyedState]
) -> Iterator[str]:
    if before.max_parallelism != operator.max_parallelism:
        yield (
            f"operator {operator.label} has max parallelism {operator.max_parallelism}, in {where} "
            f"{before.max_parallelism}: the two can't be compared"
        )
    for name, state in of_old.items():
        of = f"state {name} of operator {operator.label}"
        if name not in states:
            yield f"{of} has values by Kryo in {where}, and isn't there any more, or not by Kryo"
            continue
        one, other = (_described(part) for part in (state, states[name]))
        if one != other:
            yield f"{of} is a {other}, in {where} a {one}: that is of another job"
            continue
        if fields_of(state.value) != fields_of(states[name].value):
            yield f"{of} has other fields, or fields of other types, in {where}: leave --before out"
            continue
        if any(kept_by_kryo(part) for part in (state.key, state.namespace, state.user_key) if part is not None):
            yield f"{of} has keys by Kryo: what a job of Flink 2 has found under them isn't known: leave --before out"
            continue
        if not same_registrations(state.value, states[name].value):
            yield f"{of} has other classes registered with Kryo in {where}: that is of another job"
            continue
        try:
            expect_rewritable(all_by_kryo_2(state))
        except RefusedError as error:
            yield f"{of} can't be compared with {where}: {error}"


def fields_of(type_: FlinkType | None) -> object:
    """What a type is made of; of POJOs their fields, but not the subclasses that the job has met."""
    if type_ is None or isinstance(type_, KryoType):
        return None if type_ is None else type_.class_name
    if isinstance(type_, PojoType):
        return type_.class_name, [(one.name, fields_of(one.type)) for one in type_.fields]
    return type(type_), [fields_of(one) for one in children(type_)]


def same_registrations(old: FlinkType | None, new: FlinkType | None) -> bool:
    """Whether the classes that were registered have the same ids in both."""
    if old is None or new is None:
        return True
    # Subclasses of POJOs that only one job has met may have more parts.
    parts = zip(kept_by_kryo(old), kept_by_kryo(new), strict=False)
    return all(one.registrations == other.registrations[: len(one.registrations)] for one, other in parts)


def _described(state: KeyedState) -> str:
    ttl = " with time to live" if state.ttl else ""
    keys = f"{type_name(state.key)}, namespaces {type_name(state.namespace)}"
    return f"{state.kind.value} state of {state.type_name}{ttl} (keys {keys})"


def _without_ttl(found: Mapping[bytes, BeforeUpgrade], source: Savepoint) -> Iterator[str]:
    for id_, before in found.items():
        for name, one in before.states.items():
            if one.state.ttl and one.ttl is None and one.why_not is None:
                label = source.operator(id_.hex()).label
                yield (
                    f"state {name} of operator {label} has TTL, so what was lost may have expired since, and the "
                    f"savepoint doesn't contain the duration: give --state-ttl {label}/{name}=30d, as the job has it"
                )


def _without_file(found: Mapping[bytes, BeforeUpgrade], source: Savepoint, keys: bool) -> Iterator[str]:
    for id_, before in found.items() if keys else ():
        operator = source.operator(id_.hex())
        there = {group for one in operator.subtasks if one.keyed is not None for group in one.keyed.range}
        if missing := before.key_groups - there:
            yield (
                f"operator {operator.label} has no keyed state for key group {min(missing)}, where --restore-keys "
                "would put keys back: leave --restore-keys out"
            )


def _key_groups(savepoint: Savepoint, operator: Operator) -> frozenset[int]:
    placed = savepoint.placed(operator)
    return frozenset(extent.key_group for one in placed for extent in key_group_extents(one.file))
