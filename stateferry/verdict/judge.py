"""The verdict on a savepoint: each state of each operator by the rules, the worst finding counts."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError
from flinkstate.keyed.header import NAMESPACE_SERIALIZER, KeyedHeader, StateMeta
from flinkstate.keyed.state import KeyedState, StateKind, keyed_states
from flinkstate.metadata.metadata import Operator, Subtask
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import type_name, with_classes
from flinkstate.writing.operator_file import read_operator_header
from stateferry.verdict import declarations, kryo_values, registrations, removed, unknown
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.outcomes import Finding, Outcome, StateVerdict, worst
from stateferry.verdict.sample import Sampled, Samples, samples_of
from stateferry.verdict.versions import Line, source_of, writer_of


@dataclass(frozen=True, slots=True)
class Asked:
    """What a verdict is asked for: the Flink that is to restore, classes of its job, whether to read every value.

    In the states `rewritten`, by operator id and name, what is by Kryo is that Flink's own.
    """

    target: Line
    classes: JobClasses | None = None
    everything: bool = False
    rewritten: frozenset[tuple[str, str]] = frozenset()


def verdicts(savepoint: Savepoint, asked: Asked) -> Iterator[StateVerdict]:
    """Yields what becomes of each state of the savepoint."""
    source = source_of(savepoint.metadata.version)
    for operator in savepoint.metadata.operators:
        if (general := _of_version(savepoint, source, asked.target)) is not None:
            yield from _alike(savepoint, operator, general)
        elif source is not None:
            yield from _of_operator(savepoint, operator, Journey(source, asked.target), asked)


def _of_version(savepoint: Savepoint, source: Line | None, target: Line) -> Finding | None:
    """What the version of `_metadata` alone says of all states."""
    version = savepoint.metadata.version
    if version > 4 and target is Line.ONE:
        return Finding(
            Outcome.REFUSED,
            f"{writer_of(version)} wrote the savepoint, whose _metadata has version {version}: Flink 1.20 reads "
            "versions up to 4",
            "go back to a savepoint that was taken before the upgrade",
            f"IllegalArgumentException: Unrecognized checkpoint version number: {version}",
        )
    if source is None:
        return Finding(
            Outcome.UNKNOWN,
            f"{writer_of(version)} wrote the savepoint, whose _metadata has version {version}: not tried with it",
            unknown.TRY_IT,
        )
    return None


def _alike(savepoint: Savepoint, operator: Operator, finding: Finding) -> Iterator[StateVerdict]:
    states = _keyed(savepoint, operator)
    for state in states[1] if states else ():
        yield _verdict(operator, state, finding)
    for name, mode in _operator_states(operator).items():
        yield StateVerdict(operator.hex_id, operator.label, name, mode, "", finding)
    yield from (replace(one, finding=finding) for one in unknown.of_operator(operator))


def _of_operator(savepoint: Savepoint, operator: Operator, journey: Journey, asked: Asked) -> Iterator[StateVerdict]:
    chosen = operator if asked.everything else _largest(operator)
    try:
        found = _keyed(savepoint, chosen)
    except RefusedError as error:
        yield StateVerdict(
            operator.hex_id,
            operator.label,
            "(keyed state)",
            "",
            "",
            Finding(Outcome.UNKNOWN, str(error), unknown.TRY_IT),
        )
        found = None
    if found is not None:
        header, states = found
        states = tuple(
            replace(state.with_classes(asked.classes), key=with_classes(state.key, asked.classes)) for state in states
        )
        five = journey.source is Line.TWO
        rewritten = {state.name for state in states if (operator.hex_id, state.name) in asked.rewritten}
        others = tuple(state for state in states if state.name not in rewritten)
        samples = samples_of(savepoint, chosen, others, five=five, everything=asked.everything)
        if chosen is not operator and sum(one.keyed is not None for one in operator.subtasks) > 1:
            samples = {place: replace(sampled, whole=False) for place, sampled in samples.items()}
        for state, meta in zip(states, header.states, strict=True):
            finding = _of_state(state, meta, header, journey, samples, state.name in rewritten)
            yield _verdict(operator, state, finding)
    yield from _of_operator_state(savepoint, operator, journey, asked.rewritten)
    yield from unknown.of_operator(operator)


def _largest(operator: Operator) -> Operator:
    """Returns the operator with the subtask alone whose keyed state is the largest: it knows most of its states."""
    with_state = [subtask for subtask in operator.subtasks if subtask.keyed is not None]
    return replace(operator, subtasks=(max(with_state, key=_size),)) if with_state else operator


def _size(subtask: Subtask) -> int:
    return subtask.keyed.size if subtask.keyed is not None else 0


def _keyed(savepoint: Savepoint, operator: Operator) -> tuple[KeyedHeader, tuple[KeyedState, ...]] | None:
    header = savepoint.keyed_header(operator)
    return None if header is None else (header, keyed_states(header, savepoint.folder.shown))


def _verdict(operator: Operator, state: KeyedState, finding: Finding) -> StateVerdict:
    return StateVerdict(operator.hex_id, operator.label, state.name, state.kind.value, state.type_name, finding)


def _of_state(
    state: KeyedState, meta: StateMeta, header: KeyedHeader, journey: Journey, samples: Samples, is_rewritten: bool
) -> Finding:
    if state.asynchronous:
        return Finding(Outcome.UNKNOWN, "asynchronous (V2) state was not tried", unknown.TRY_IT)
    findings = [
        _of_part(
            part,
            journey,
            samples.get((state.name, part.place)),
            is_rewritten,
        )
        for part in _parts(state, meta, header)
    ]
    return worst(reversed(findings))


def _parts(state: KeyedState, meta: StateMeta, header: KeyedHeader) -> Iterator[Part]:
    """Yields the parts of a state, its value last."""
    snapshots = dict(meta.serializers)
    yield Part(Place.KEY, state.key, (header.key_serializer,))
    of_namespace = snapshots.pop(NAMESPACE_SERIALIZER, None)
    yield Part(Place.NAMESPACE, state.namespace, () if of_namespace is None else (of_namespace,))
    if state.user_key is not None:
        yield Part(Place.USER_KEY, state.user_key)
    place = Place.ELEMENT if state.kind is StateKind.LIST else Place.VALUE
    if state.value is not None:
        yield Part(place, state.value, tuple(snapshots.values()))


def _of_part(part: Part, journey: Journey, sampled: Sampled | None, is_rewritten: bool = False) -> Finding:
    name = type_name(part.type)
    which = "the same serializer" if journey.stays else "the same serializer in both"
    by_flink = Finding(Outcome.RESTORES, f"Flink has {which} for {name}")
    values = (None if is_rewritten else kryo_values.finding_of(part, journey, sampled)) or by_flink
    others = (
        removed.finding_of(part, journey),
        registrations.finding_of(part, journey),
        unknown.finding_of(part, journey),
        None if is_rewritten else declarations.finding_of(part, journey, values),
    )
    return worst(finding for finding in (*others, values) if finding is not None)


def _read_at_once(finding: Finding) -> Finding:
    """What the finding is for operator state, which Flink reads whole before it knows the new declaration."""
    if not finding.outcome.breaks or (finding.outcome is Outcome.REFUSED and finding.or_else is None):
        return finding
    reason = f"{finding.reason}. Flink reads all operator state at the start, so the job may fail there"
    return replace(finding, reason=reason, or_else=Outcome.WRONG if finding.outcome is Outcome.FAILS else Outcome.FAILS)


def _operator_states(operator: Operator) -> dict[str, str]:
    return {
        state.name: state.mode.label
        for subtask in operator.subtasks
        if subtask.managed_operator is not None
        for state in subtask.managed_operator.states
    }


def _of_operator_state(
    savepoint: Savepoint, operator: Operator, journey: Journey, rewritten: Container[tuple[str, str]]
) -> Iterator[StateVerdict]:
    """Yields what becomes of the states without keys, by the header of the first file that has each of them."""
    missing = _operator_states(operator)
    for subtask in operator.subtasks:
        handle = subtask.managed_operator
        if handle is None or not any(state.name in missing for state in handle.states):
            continue
        try:
            header = read_operator_header(savepoint.folder, handle)
        except RefusedError as error:
            for name, mode in missing.items():
                finding = Finding(Outcome.UNKNOWN, str(error), unknown.TRY_IT)
                yield StateVerdict(operator.hex_id, operator.label, name, mode, "", finding)
            return
        for meta in (*header.lists, *header.broadcasts):
            if (mode := missing.pop(meta.name, "")) != "":
                parts = [Part(Place.ELEMENT, one.type, (one,)) for _, one in meta.serializers]
                is_rewritten = (operator.hex_id, meta.name) in rewritten
                findings = [
                    unknown.of_bytes(part) or _read_at_once(_of_part(part, journey, None, is_rewritten))
                    for part in parts
                ]
                types = ",".join(type_name(part.type) for part in parts)
                yield StateVerdict(operator.hex_id, operator.label, meta.name, mode, types, worst(findings))
