"""A result for another Flink: states that it would read wrongly are refused, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator

from flinkstate.errors import RefusedError
from flinkstate.keyed.header import StateMeta
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import KryoType, OpaqueType
from stateferry.basics.state_ref import StateRef
from stateferry.runs.checks.other_kryo import operator_headers
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.guards.kept_values import states_with_kept_values
from stateferry.runs.plan.upgrade_options import SAME_FLINK
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Outcome, StateVerdict
from stateferry.verdict.versions import Line, source_of, target_of

_REPAIR_FIRST = (
    "its values stay values of Kryo, so repair first and migrate then: a run with --to alone, and its result to "
    "another run. If the job was never upgraded from Flink 1, migrate without --to"
)


def check_other_flink(resolved: ResolvedPlan) -> None:
    """Raises an error if the Flink of the plan doesn't read each state of the result as the source's Flink does.

    Every value by Kryo is read: one that differs is enough.
    """
    first = _repaired_first(resolved)
    found = (
        _line(one, _REPAIR_FIRST if _ref(one) in first else one.finding.advice)
        for one in _carried(resolved, everything=True)
        if one.finding.outcome.breaks or (_ref(one) in first and one.finding.outcome is Outcome.UNKNOWN)
    )
    if breaking := [*_kept(resolved), *_inside_unknown(resolved), *found]:
        raise RefusedError(
            f"Flink {target_of(resolved.plan.to).value}, for which the new savepoint is (--to {resolved.plan.to}), "
            "would not read it as the old job does. Nothing was written:\n" + "\n".join(breaking)
        )


def other_flink_notes(resolved: ResolvedPlan) -> Iterator[str]:
    """Notes on states of which nobody knows whether the Flink of the plan reads them."""
    for one in _carried(resolved, everything=False):
        if one.finding.outcome is Outcome.UNKNOWN:
            flink, line = target_of(resolved.plan.to).value, _line(one, one.finding.advice)
            yield f"whether Flink {flink} reads this state isn't known: {line}"


def _carried(resolved: ResolvedPlan, *, everything: bool) -> Iterator[StateVerdict]:
    """Yields what becomes of the states that are carried over, if the result is for another Flink."""
    plan = resolved.plan
    if plan.to == SAME_FLINK:
        return
    stay = plan.keep_legacy or plan.lazy
    first = _repaired_first(resolved)
    gone = {one.ref(rules.legacy.name) for one, rules in resolved.migrations if not (stay or rules.keeps_rest)} - first
    by_kryo = {(one.operator.hex_id, name) for one in resolved.changes for name in (*one.by_kryo, *one.elements)}
    rewritten = frozenset(by_kryo - first)
    anew = resolved.described.version != resolved.source.metadata.version
    asked = Asked(target_of(plan.to), plan.job_classes, everything, rewritten, described_anew=anew)
    yield from (one for one in verdicts(resolved.source, asked) if _ref(one) not in gone)


def _repaired_first(resolved: ResolvedPlan) -> set[StateRef]:
    """The migrated states whose maps' values stay as Kryo wrote them, if an upgraded job may have some of Kryo 2.

    The repair writes anew what is carried over, but not what becomes rows of another state.
    """
    plan, source = resolved.plan, source_of(resolved.source.metadata.version)
    if plan.to == SAME_FLINK or not source is target_of(plan.to) is Line.TWO:
        return set()
    kept = states_with_kept_values(resolved)
    return {StateRef(one.hex_id, rules.legacy.name) for one, rules, _ in kept if rules.takes_blobs}


def _inside_unknown(resolved: ResolvedPlan) -> Iterator[str]:
    """Yields the states that have values by Kryo inside of those of unknown serializers, if the other has another Kryo.

    They can't be found, and so not be written anew: columns that are RAW, say.
    """
    source, to = resolved.source, resolved.plan.to
    if to == SAME_FLINK or source_of(source.metadata.version) is target_of(to):
        return
    for operator in source.metadata.operators:
        found = ((name, unknown_around_kryo(one)) for name, one in _serializers(source, operator))
        # Each subtask has a description of its operator state.
        for name, unknown in dict.fromkeys((name, unknown) for name, unknown in found if unknown is not None):
            yield (
                f"{operator.label}: {name}: Kryo has written what is inside of {unknown}, which isn't read, so it "
                "can't be rewritten. To do: start the old job from this savepoint without this operator, with "
                "--allowNonRestoredState, take a new savepoint there, and give that to the run"
            )


def _serializers(source: Savepoint, operator: Operator) -> Iterator[tuple[str, SerializerSnapshot]]:
    """Yields the serializers of the operator's keys and of each of its states, keyed or not, with the state's name."""
    states: list[StateMeta] = []
    if (header := source.keyed_header(operator)) is not None:
        yield "(key)", header.key_serializer
        states += header.states
    for described in operator_headers(source, operator):
        states += [*described.lists, *described.broadcasts]
    yield from ((meta.name, one) for meta in states for _, one in meta.serializers)


def unknown_around_kryo(snapshot: SerializerSnapshot) -> str | None:
    """Returns the class of an unknown serializer, in this one or around it, inside of which is one by Kryo."""
    type_ = snapshot.type
    if isinstance(type_, OpaqueType) and not isinstance(type_, KryoType) and _has_kryo(snapshot):
        return snapshot.class_name
    return next(filter(None, map(unknown_around_kryo, snapshot.nested)), None)


def _has_kryo(snapshot: SerializerSnapshot) -> bool:
    return isinstance(snapshot.type, KryoType) or any(map(_has_kryo, snapshot.nested))


def _kept(resolved: ResolvedPlan) -> Iterator[str]:
    """Yields the new states whose values stay values of Kryo, if the other Flink has another Kryo."""
    plan, source = resolved.plan, source_of(resolved.source.metadata.version)
    if plan.to == SAME_FLINK or source is target_of(plan.to):
        return
    for operator, rules, kept in states_with_kept_values(resolved):
        yield (
            f"{operator.label}: {rules.made_name}: values of {kept} stay values of the Kryo that wrote them, and this "
            "Flink has another one: where they can be POJOs or enums, name these in --as (Map<Enum<com.acme.Color>, "
            "Pojo<com.acme.Reading>>); else migrate without --to, and give the result to another run with --to alone"
        )


def _ref(one: StateVerdict) -> StateRef:
    return StateRef(one.operator_id, one.state)


def _line(one: StateVerdict, advice: str) -> str:
    return f"{one.operator}: {one.state}: {one.finding.outcome.value}: {one.finding.reason}. To do: {advice}"
