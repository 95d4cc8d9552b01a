"""Compares the operator state of an upgraded job with that from before the upgrade. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import kept_by_kryo, with_classes, with_kryo
from flinkstate.serializers.types import FlinkType
from flinkstate.writing.operator_file import ElementFile
from stateferry.changes.counts import LossCounts
from stateferry.changes.upgrade.for_other_kryo import by_kryo_2
from stateferry.changes.upgrade.lost_elements import (
    BroadcastEntries,
    ElementLosses,
    broadcast_entries,
    by_kryo_5,
    of_broadcast,
    of_list,
)
from stateferry.runs.checks.before_upgrade import fields_of, same_registrations


@dataclass(slots=True)
class OperatorStateLosses:
    """What the upgrade lost of one operator state; `key` is the type of a broadcast state's keys."""

    operator: str
    state: str
    mode: DistributionMode | None
    key: FlinkType | None
    value: FlinkType
    counts: LossCounts = field(default_factory=LossCounts)
    rows: list[ElementLosses] = field(default_factory=list)


@dataclass(slots=True)
class _Content:
    """An operator state by Kryo: its elements in all subtasks, of a broadcast state its copies that aren't equal."""

    key: FlinkType | None
    value: FlinkType
    mode: DistributionMode | None = None
    elements: list[bytes] = field(default_factory=list)


def lost_elements(
    old: Savepoint, source: Savepoint, job: JobClasses | None, keyed: Iterable[LossCounts]
) -> tuple[list[OperatorStateLosses], list[str]]:
    """Returns what the upgrade lost of operator states, and why others aren't compared.

    `keyed` is what it lost of keyed state, which may show that the job has misread what Kryo 2 wrote.
    """
    found: list[OperatorStateLosses] = []
    problems: list[str] = []
    is_misread = any(one.misread for one in keyed)
    for one in _all(old, source, job):
        if isinstance(one, str):
            problems.append(one)
        elif (one.counts.lost or one.counts.gone) and one.counts.unread and not (is_misread or one.counts.misread):
            problems.append(
                f"operator state {one.state} of operator {one.operator}: it has values as they were that a job of "
                "Flink 2 can't have read from the savepoint before the upgrade, and none shows that it has misread "
                "any: nobody can tell what it lost from what the job has removed"
            )
        else:
            found.append(one)
    return found, problems


def _all(old: Savepoint, source: Savepoint, job: JobClasses | None) -> Iterator[OperatorStateLosses | str]:
    """Yields what the upgrade lost of each operator state that was by Kryo before it, or why that isn't compared."""
    where, there = f"{old.folder.shown} (--before)", {one.id: one for one in source.metadata.operators}
    for operator in old.metadata.operators:
        # Flink 1 names no operators.
        upgraded = there.get(operator.id)
        label = operator.label if upgraded is None else upgraded.label
        try:
            before = _contents(old, operator, job)
            now = {} if upgraded is None or not before else _contents(source, upgraded, job)
        except RefusedError as error:
            yield f"the operator state of operator {label} can't be looked into: {error}"
            continue
        for name, content in before.items():
            of = f"operator state {name} of operator {label} is by Kryo in {where}"
            if not content.elements:
                continue
            if (found := now.get(name)) is None:
                yield f"{of}, and isn't there any more, or not by Kryo"
            elif why_not := _why_not(content, found):
                yield f"{of}: {why_not}"
            else:
                losses = OperatorStateLosses(label, name, found.mode or content.mode, found.key, found.value)
                try:
                    losses.rows += _compared(content, found, losses.counts)
                except (DamagedError, RefusedError) as error:
                    yield f"{of}: its values can't be compared: {error}"
                else:
                    yield losses


def _why_not(before: _Content, now: _Content) -> str | None:
    """Why two states can't be compared."""
    if (before.key is None) != (now.key is None):
        return "one is a broadcast state, the other a list"
    if any(fields_of(one) != fields_of(other) for one, other in ((before.key, now.key), (before.value, now.value))):
        return "it has another type now"
    if now.key is not None and kept_by_kryo(now.key):
        return "it has keys by Kryo: what a job of Flink 2 has found under them isn't known"
    if not same_registrations(before.value, now.value):
        return "it has other classes registered with Kryo now"
    return None


def _compared(before: _Content, now: _Content, counts: LossCounts) -> list[ElementLosses]:
    if before.key is None or now.key is None:
        return of_list(now.value, before.elements, now.elements, counts)
    if not now.elements:
        raise RefusedError("no subtask has it any more")
    value = (with_kryo(now.value, change) for change in (by_kryo_2, by_kryo_5))
    old, new = (
        _of_all(now.key, one, copies) for one, copies in zip(value, (before.elements, now.elements), strict=True)
    )
    return of_broadcast(now.value, old, new, counts)


def _of_all(key: FlinkType, value: FlinkType, copies: list[bytes]) -> BroadcastEntries:
    """Returns the entries of which each subtask has a copy. Subtasks may have them in another order."""
    first, *others = (broadcast_entries(key, value, one) for one in copies)
    if any(one != first for one in others):
        raise RefusedError("its subtasks don't have the same entries")
    return first


def _contents(savepoint: Savepoint, operator: Operator, job: JobClasses | None) -> dict[str, _Content]:
    """Returns the operator states by Kryo, with all their elements."""
    found: dict[str, _Content] = {}
    for handle in (subtask.managed_operator for subtask in operator.subtasks):
        if handle is None:
            continue
        with ElementFile(savepoint.folder, handle) as file:
            states = {state.name: state for state in handle.states}
            for meta in (*file.header.lists, *file.header.broadcasts):
                types = [with_classes(one.type, job) for _, one in sorted(meta.serializers)]
                if not any(map(kept_by_kryo, types)):
                    continue
                is_list = meta in file.header.lists
                content = found.setdefault(meta.name, _Content(None if is_list else types[0], types[-1]))
                for offset in states[meta.name].offsets if meta.name in states else ():
                    content.mode = states[meta.name].mode
                    element = file.whole_element(offset)
                    if is_list or element not in content.elements:
                        content.elements.append(element)
    return found
