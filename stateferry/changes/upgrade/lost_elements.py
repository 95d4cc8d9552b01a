"""What an upgrade lost of operator state, by the savepoint from before it.

Flink 2 reads all operator state at the start of a job, so in a later savepoint Kryo 5 wrote all of it. Entries of a
broadcast state are held against each other by their keys; Flink 2 reads them one behind the other, so it must find the
end of each. Elements of a list have no keys: which became which is told by what Flink 2 reads of each, unless the job
has changed it since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.type_parts import with_kryo
from flinkstate.serializers.types import FlinkType, KryoType, type_name
from flinkstate.values.codecs import decode, decode_whole
from flinkstate.values.kryo_misread import misread_part
from stateferry.changes.counts import LossCounts
from stateferry.changes.upgrade.for_other_kryo import by_kryo_2, element_for_other_kryo
from stateferry.changes.upgrade.lost_entries import Fate, Loss, agrees, is_unread, losses, losses_of_gone, text_of

_Errors = (DamagedError, RefusedError)
_COUNT = 4
_CHANGED = "no element is as Flink 2 has read it: the job has changed or removed it, and elements have no keys"
_ALIKE = "Flink 2 reads several elements as the same one, and some of them are gone: nobody can tell which"


# By texts of their keys: each key, and the bytes of its value.
BroadcastEntries = dict[str, tuple[Any, bytes]]


@dataclass(frozen=True, slots=True)
class ElementLosses:
    """What was lost of one value: of a broadcast entry by its `key`, of an element of a list by its number, from 1."""

    key: Any
    number: int | None
    losses: tuple[Loss, ...]
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class _Before:
    """A value from before the upgrade, also as Kryo 5 writes it; `read` is what Flink 2 reads, if that is known.

    `left`: how many of its bytes Flink 2 doesn't read.
    """

    five: bytes | None
    value: Any
    read: Any = None
    why_not: str | None = None
    left: int = 0

    @property
    def is_misread(self) -> bool:
        return self.why_not is not None or text_of(self.value) != text_of(self.read)


def of_broadcast(
    value: FlinkType, old: BroadcastEntries, now: BroadcastEntries, counts: LossCounts
) -> list[ElementLosses]:
    """Returns what was lost of the entries of a broadcast state, by their keys; the keys aren't by Kryo."""
    found = []
    for number, (text, (at, one)) in enumerate(old.items(), 1):
        before, there = _before(value, one), now.get(text)
        if before.left and number < len(old):
            raise RefusedError("a job of Flink 2 finds no end of its values, and can't have started from it")
        counts.rows += 1
        counts.found += there is not None
        if there is not None and there[1] == before.five:
            counts.agreeing += 1
            counts.unread += before.is_misread
        elif before.why_not is not None:
            counts.untold += 1
            found.append(ElementLosses(at, None, (), before.why_not))
        elif there is None:
            found += _counted(ElementLosses(at, None, tuple(losses_of_gone(before.value, before.read))), counts)
        else:
            present = decode_whole(with_kryo(value, by_kryo_5), there[1])
            counts.agreeing += agrees(before.value, before.read, present)
            counts.unread += is_unread(before.value, before.read, present)
            found += _counted(ElementLosses(at, None, tuple(losses(before.value, before.read, present))), counts)
    return found


def of_list(type_: FlinkType, old: Sequence[bytes], now: Sequence[bytes], counts: LossCounts) -> list[ElementLosses]:
    """Returns what was lost of the elements of a list.

    Either the job has read all of them otherwise than Kryo 2 wrote them, or as they were: what is there shows which.
    """
    before = [_before(type_, one) for one in old]
    there = Counter(text_of(decode_whole(with_kryo(type_, by_kryo_5), one)) for one in now)
    right = Counter(text_of(one.value) for one in before)
    wrong = Counter(text_of(one.read) for one in before if one.why_not is None)
    as_they_were, as_read = (right & there).total(), (wrong & there).total()
    counts.rows += len(before)
    counts.found += max(as_they_were, as_read)
    counts.agreeing += max(as_they_were, as_read)
    meanings: dict[str, set[str]] = {}
    for one in before:
        meanings.setdefault(text_of(one.read), set()).add(text_of(one.value))
    found: list[ElementLosses] = []
    for number, one in enumerate(before, 1):
        value, read = text_of(one.value), text_of(one.read)
        is_some_gone = there[read] < wrong[read]
        if not one.is_misread:
            continue
        if as_they_were > as_read and there[value] >= right[value]:
            counts.unread += 1
            continue
        why_not = one.why_not
        if why_not is None and (as_they_were >= as_read or not there[read]):
            why_not = _CHANGED
        elif why_not is None and is_some_gone and len(meanings[read]) > 1:
            why_not = _ALIKE
        if why_not is not None:
            counts.untold += 1
            found.append(ElementLosses(None, number, (), why_not))
            continue
        there[read] -= 1
        wrong[read] -= 1
        found += _counted(ElementLosses(None, number, tuple(losses(one.value, one.read, one.read))), counts)
    return found


def broadcast_entries(key: FlinkType, value: FlinkType, data: bytes) -> BroadcastEntries:
    """Returns the entries of a broadcast state by texts of their keys: each key, and the bytes of its value."""
    found: BroadcastEntries = {}
    position = _COUNT
    for _ in range(int.from_bytes(data[:_COUNT], "big", signed=True)):
        at, start = decode(key, data, position)
        _, position = decode(value, data, start)
        found[repr(at)] = at, data[start:position]
    if position != len(data):
        raise DamagedError("the end of a broadcast state", f"{len(data) - position} more bytes", offset=position)
    return found


def by_kryo_5(kryo: KryoType) -> KryoType:
    return replace(kryo, five=True)


def _before(type_: FlinkType, data: bytes) -> _Before:
    by_2 = with_kryo(type_, by_kryo_2)
    value = decode_whole(by_2, data)
    try:
        five = element_for_other_kryo(by_2, data)
    except _Errors:
        five = None
    if five == data:
        return _Before(five, value, value)
    if not isinstance(type_, KryoType):
        return _Before(five, value, why_not=f"what Flink 2 reads of a {type_name(type_)} isn't known")
    try:
        read, end = misread_part(type_, data, 0)
        tuple(losses(value, read, read))
    except _Errors as error:
        return _Before(five, value, why_not=f"what Flink 2 has read of it can't be told: {error}")
    return _Before(five, value, read, left=len(data) - end)


def _counted(found: ElementLosses, counts: LossCounts) -> list[ElementLosses]:
    for one in found.losses:
        name = one.fate.name.lower()
        setattr(counts, name, getattr(counts, name) + 1)
    # Of a list it is there as Flink 2 has read it.
    is_there = found.number is not None or any(one.is_there for one in found.losses)
    counts.misread += is_there and any(one.fate is Fate.LOST for one in found.losses)
    return [found] if found.losses else []
