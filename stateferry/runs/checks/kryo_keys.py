"""States with keys by Kryo, whose maps become rows under the same bytes of the key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import kept_by_kryo, with_kryo
from flinkstate.serializers.types import FlinkType, KryoType
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.look.kryo_maps import OF_FLINK_2
from stateferry.runs.checks.other_kryo import line_of
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.planned_states import StatePlan
from stateferry.verdict.job_fields import has_no_references
from stateferry.verdict.kryo_classes import is_single


def with_known_keys(legacy: KeyedState, source: Savepoint, job: JobClasses | None) -> KeyedState:
    """Returns the state with keys by the Kryo of the Flink that took the savepoint; they may be of the job's classes.

    A job of Flink 2 never finds a key again that Kryo 2 has written.
    """
    return replace(legacy, key=_known(legacy.key, source, job))


def _known(key: FlinkType, source: Savepoint, job: JobClasses | None) -> FlinkType:
    five = source.metadata.version >= OF_FLINK_2
    return with_kryo(key, lambda one: replace(one, five=five, classes=job))


def with_known_hashes(changes: OperatorChanges, source: Savepoint, job: JobClasses | None) -> OperatorChanges:
    """Adds which Kryo wrote the operator's keys, if they go to other key groups and aren't written anew."""
    key = next((state.key for state in changes.states.values() if kept_by_kryo(state.key)), None)
    if key is None or changes.by_kryo or not changes.changes_key_groups:
        return changes
    return replace(changes, keys=_known(key, source, job))


def key_problems(
    plan: MigrationPlan, state: StatePlan, states: Mapping[str, KeyedState], operator: Operator
) -> Iterator[str]:
    """Yields what a run can't do with a legacy state that has keys by Kryo."""
    keys = kept_by_kryo(states[state.legacy].key)
    if not keys:
        return
    names = ", ".join(dict.fromkeys(one.class_name for one in keys))
    where = f"state {state.legacy} of operator {operator.label} has keys by Kryo ({names})"
    if line_of(plan) is not None:
        yield (
            f"{where}: it can't be migrated and written for another Flink in one run. Migrate it without --to, and give"
            " the result to another run with --to alone"
        )
    if plan.lazy:
        yield f"{where}, of which a lazy run can't tell which to move: migrate all of them at once"
    if plan.since is not None:
        yield f"{where}, of which it isn't known which have changed: leave --since out, which converts everything"
    begun = [name for name in (state.new, state.flag) if name is not None and name in states]
    if begun and not all(map(has_one_form, keys)):
        yield (
            f"{where}, and equal ones may have other bytes: so it isn't known which maps of it belong to which keys of "
            f"{' and '.join(begun)}. Migrate a savepoint from before the job began to move its maps, or let it move the"
            " rest itself"
        )


def has_one_form(kryo: KryoType) -> bool:
    """Whether equal objects of the class always have the same bytes, for all that its fields say."""
    known = None if kryo.classes is None else kryo.classes.classes.get(kryo.class_name)
    is_enum = known is not None and bool(known.constants)
    if kryo.class_name == "java.net.URI":
        # They are equal whatever the case of scheme and host.
        return False
    return is_enum or is_single(kryo.class_name) or has_no_references(kryo, kryo.class_name)
