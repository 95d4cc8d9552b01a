"""The verdict on a savepoint: each state of each operator by the rules, the worst finding counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError
from flinkstate.keyed.header import KEY_SERIALIZER, NAMESPACE_SERIALIZER, KeyedHeader, StateMeta
from flinkstate.keyed.state import KeyedState, StateKind, keyed_states
from flinkstate.metadata.metadata import Operator, OperatorHandle, Subtask
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.type_parts import has_scala, with_classes
from flinkstate.serializers.types import type_name
from flinkstate.writing.operator_file import read_operator_header
from flinkstate.writing.undivided_elements import may_be_undivided
from stateferry.verdict import declarations, kryo_values, new_classes, registrations, removed, unknown
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.outcomes import Finding, Outcome, StateVerdict, worst
from stateferry.verdict.sample import Found, Samples, bytes_of_each, operator_samples, samples_of
from stateferry.verdict.versions import Line, source_of, was_tried, writer_of

_AT_ONCE = 16
_STATE_REFUSED = "StateMigrationException: The new state serializer"
_GO_BACK = "go back to a savepoint that was taken before the upgrade"
_OPERATOR_STATE_REFUSED = (
    "StateMigrationException: The new state typeSerializer for operator state must not be incompatible"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a verdict is asked for: the Flink that is to restore, and whether to read every value.

    `classes` are those of objects by Kryo, `new_job` those of the job that is to start, which may have changed. In the
    states `rewritten`, by operator id and name, what is by Kryo is that Flink's own. `described_anew`: `_metadata` has
    that Flink's version. `all_by_kryo_5`: the job of a savepoint of Flink 2 was never upgraded from Flink 1 as it was.
    """

    target: Line
    classes: JobClasses | None = None
    everything: bool = False
    rewritten: frozenset[tuple[str, str]] = frozenset()
    new_job: JobClasses | None = None
    described_anew: bool = False
    all_by_kryo_5: bool = False


@dataclass(frozen=True, slots=True)
class _How:
    """What a part is judged by; `is_rewritten`: what is by Kryo in it is the new Flink's own.

    `at_once`: Flink reads all values at the start.
    """

    journey: Journey
    new_job: JobClasses | None
    is_rewritten: bool
    at_once: bool = False


def verdicts(savepoint: Savepoint, asked: Asked) -> Iterator[StateVerdict]:
    """Yields what becomes of each state of the savepoint."""
    source = source_of(savepoint.metadata.version)
    general = _of_version(savepoint, source, asked)

    def of_operator(operator: Operator) -> tuple[StateVerdict, ...]:
        if general is not None:
            return tuple(_alike(savepoint, operator, general))
        assert source is not None
        return tuple(_of_operator(savepoint, operator, Journey(source, asked.target, asked.all_by_kryo_5), asked))

    operators = savepoint.metadata.operators
    if savepoint.folder.is_local or len(operators) < 2:
        for operator in operators:
            yield from of_operator(operator)
        return
    # A store takes long for each answer, so it is asked for several operators at a time.
    with ThreadPoolExecutor(min(len(operators), _AT_ONCE), "verdict") as threads:
        for found in threads.map(of_operator, operators):
            yield from found


def _of_version(savepoint: Savepoint, source: Line | None, asked: Asked) -> Finding | None:
    """What the version of `_metadata` alone says of all states."""
    version, writer = savepoint.metadata.version, writer_of(savepoint.metadata)
    if version > 4 and asked.target is Line.ONE and not asked.described_anew:
        return Finding(
            Outcome.REFUSED,
            f"{writer} wrote the savepoint, whose _metadata has version {version}: Flink 1.20 reads versions up to 4",
            f"{_GO_BACK}, or write this one for Flink 1.20: stateferry run --to flink-1.20",
            f"IllegalArgumentException: Unrecognized checkpoint version number: {version}",
        )
    if source is None or not was_tried(savepoint.metadata):
        return Finding(
            Outcome.UNKNOWN,
            f"not tried with {writer}, which wrote the savepoint (its _metadata has version {version})",
            unknown.TRY_IT,
        )
    return None


def _alike(savepoint: Savepoint, operator: Operator, finding: Finding) -> Iterator[StateVerdict]:
    try:
        states = _keyed(savepoint, operator)
    except RefusedError:
        states = None
        # A run can't write it for another Flink either.
        yield _of_unread(operator, replace(finding, advice=_GO_BACK) if finding.outcome.breaks else finding)
    for state in states[1] if states else ():
        yield _verdict(operator, state, finding)
    for name, mode in _operator_states(operator).items():
        yield StateVerdict(operator.hex_id, operator.label, name, mode, "", finding)
    yield from (replace(one, finding=finding) for one in unknown.of_operator(operator))


def _of_operator(savepoint: Savepoint, operator: Operator, journey: Journey, asked: Asked) -> Iterator[StateVerdict]:
    judged = operator if asked.everything else _largest(operator)
    try:
        found = _keyed(savepoint, judged)
    except RefusedError as error:
        yield _of_unread(operator, Finding(Outcome.UNKNOWN, str(error), unknown.TRY_IT))
        found = None
    if found is not None:
        header, states = found
        states = tuple(state.with_classes_in_keys(asked.classes) for state in states)
        rewritten = {state.name for state in states if (operator.hex_id, state.name) in asked.rewritten}
        others = tuple(state for state in states if state.name not in rewritten)
        samples = samples_of(savepoint, judged, others, journey, _most_bytes(savepoint, asked))
        if judged is not operator and sum(one.keyed is not None for one in operator.subtasks) > 1:
            samples = {
                place: tuple((kryo, replace(one, whole=False)) for kryo, one in samples[place]) for place in samples
            }
        samples = _with_common_keys(others, samples)
        for state, meta in zip(states, header.states, strict=True):
            how = _How(journey, asked.new_job, state.name in rewritten)
            yield _verdict(operator, state, _of_state(state, meta, header, how, samples))
    yield from _of_operator_state(savepoint, operator, journey, asked)
    yield from unknown.of_operator(operator)


def _with_common_keys(states: tuple[KeyedState, ...], samples: Samples) -> Samples:
    """Returns the samples; states of whose keys nothing is known have those of another state: all keys are alike."""
    by_place = {(state.name, Place.KEY): samples.get((state.name, Place.KEY), ()) for state in states}
    read = next((found for found in by_place.values() if any(one.values for _, one in found)), None)
    if read is None:
        return samples
    common = tuple((kryo, replace(one, whole=False)) for kryo, one in read)
    unknown_keys = [
        place
        for place, found in by_place.items()
        if not any(one.values or one.why_not or one.two_meanings or one.other_bytes for _, one in found)
    ]
    return {**samples, **dict.fromkeys(unknown_keys, common)}


def _most_bytes(savepoint: Savepoint, asked: Asked) -> int | None:
    return None if asked.everything else bytes_of_each(len(savepoint.metadata.operators))


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


def _of_unread(operator: Operator, finding: Finding) -> StateVerdict:
    """The verdict on keyed state of which not even the names of states can be read."""
    return StateVerdict(operator.hex_id, operator.label, "(keyed state)", "", "", finding)


def _of_state(state: KeyedState, meta: StateMeta, header: KeyedHeader, how: _How, samples: Samples) -> Finding:
    if state.asynchronous:
        return Finding(Outcome.UNKNOWN, "asynchronous (V2) state was not tried", unknown.TRY_IT)
    findings = [_of_part(part, how, samples.get((state.name, part.place))) for part in _parts(state, meta, header)]
    return worst(reversed(findings))


def _parts(state: KeyedState, meta: StateMeta, header: KeyedHeader) -> Iterator[Part]:
    """Yields the parts of a state, its value last."""
    snapshots = dict(meta.serializers)
    yield Part(Place.KEY, state.key, (header.key_serializer,))
    of_namespace = snapshots.pop(NAMESPACE_SERIALIZER, None)
    yield Part(Place.NAMESPACE, state.namespace, () if of_namespace is None else (of_namespace,))
    if state.user_key is not None:
        yield Part(Place.USER_KEY, state.user_key, tuple(snapshots.values()))
    place = Place.ELEMENT if state.kind is StateKind.LIST else Place.VALUE
    if state.value is not None:
        yield Part(place, state.value, tuple(snapshots.values()))


def _of_part(part: Part, how: _How, sampled: Found | None) -> Finding:
    journey = how.journey
    name = type_name(part.type)
    which = "the same serializer" if journey.stays else "the same serializer in both"
    by_flink = Finding(Outcome.RESTORES, f"Flink has {which} for {name}")
    values = (None if how.is_rewritten else kryo_values.finding_of(part, journey, sampled)) or by_flink
    others = (
        # Namespaces are not rewritten if flink-scala has written them.
        None if how.is_rewritten and part.place is not Place.NAMESPACE else removed.finding_of(part, journey),
        registrations.finding_of(part, journey, is_rewritten=how.is_rewritten),
        None if how.is_rewritten and has_scala(part.type) else unknown.finding_of(part),
        new_classes.finding_of(part, journey, how.new_job),
        None if how.is_rewritten else declarations.finding_of(part, journey, values, how.new_job, at_once=how.at_once),
    )
    return worst(finding for finding in (*others, values) if finding is not None)


def _read_at_once(finding: Finding) -> Finding:
    """What the finding is for operator state, which Flink reads whole before it knows the new declaration."""
    if finding.exception is not None and finding.exception.startswith(_STATE_REFUSED):
        finding = replace(finding, exception=_OPERATOR_STATE_REFUSED)
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
    savepoint: Savepoint, operator: Operator, journey: Journey, asked: Asked
) -> Iterator[StateVerdict]:
    """Yields what becomes of the states without keys, by the first file that has each of them."""
    missing = _operator_states(operator)
    handles = [subtask.managed_operator for subtask in operator.subtasks if subtask.managed_operator is not None]
    # Those that may be refused come first.
    for handle in sorted(handles, key=may_be_undivided, reverse=True):
        if not any(state.name in missing for state in handle.states):
            continue
        try:
            header = read_operator_header(savepoint.folder, handle)
            metas = [meta for meta in (*header.lists, *header.broadcasts) if meta.name in missing]
            parts = {meta.name: _element_parts(meta, asked.classes) for meta in metas}
            samples = _of_elements(savepoint, operator, handle, parts, asked, journey)
        except RefusedError as error:
            for name, mode in missing.items():
                finding = Finding(Outcome.UNKNOWN, str(error), unknown.TRY_IT)
                yield StateVerdict(operator.hex_id, operator.label, name, mode, "", finding)
            return
        for name, of_state in parts.items():
            found = samples.get(name, (None,) * len(of_state))
            how = _How(journey, asked.new_job, (operator.hex_id, name) in asked.rewritten, at_once=True)
            findings = [
                unknown.of_bytes(part) or _read_at_once(_of_part(part, how, one))
                for part, one in zip(of_state, found, strict=True)
            ]
            types = ",".join(type_name(part.type) for part in of_state)
            yield StateVerdict(operator.hex_id, operator.label, name, missing.pop(name), types, worst(findings))
    yield from unknown.of_undescribed(operator, missing)


def _element_parts(meta: StateMeta, classes: JobClasses | None) -> tuple[Part, ...]:
    """Returns the parts of an element; of a broadcast state its key, then its value, as their names go."""
    return tuple(
        Part(Place.ELEMENT, with_classes(one.type, classes), (one,), name == KEY_SERIALIZER)
        for name, one in sorted(meta.serializers, key=_name)
    )


def _name(serializer: tuple[str, SerializerSnapshot]) -> str:
    return serializer[0]


def _of_elements(
    savepoint: Savepoint,
    operator: Operator,
    handle: OperatorHandle,
    parts: Mapping[str, tuple[Part, ...]],
    asked: Asked,
    journey: Journey,
) -> Mapping[str, tuple[Found | None, ...]]:
    """Reads values of operator state by Kryo, of this file or of all."""
    handles = [one.managed_operator for one in operator.subtasks if one.managed_operator is not None]
    whole = asked.everything or len(handles) == 1
    types = {
        name: tuple(part.type for part in of_state)
        for name, of_state in parts.items()
        if (operator.hex_id, name) not in asked.rewritten
    }
    sampled = handles if asked.everything else [handle]
    most = _most_bytes(savepoint, asked)
    return operator_samples(savepoint.folder, sampled, types, journey, most_bytes=most, whole=whole)
