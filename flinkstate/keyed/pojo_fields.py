"""Where a field is in values that Flink's PojoSerializer wrote.

| part | bytes |
|---|---|
| POJO | flag byte; `01` is null, with nothing behind it |
| flag `02` | the fields, in the order of their names: each bool `isNull`, and the value unless null |
| flag `04` | utf name of a subclass, a whole value of its serializer |
| flag `08` | byte tag of a registered subclass, a whole value of its serializer |

What is by Kryo in a field doesn't say where it ends, and Kryo 2 and 5 may find other ends. All of a POJO is by the Kryo
of the Flink that wrote it: the right one is that by which the last field ends where the POJO does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.keyed.kryo_parts import behind_flags, ends_of_parts
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.serializers.binary import encode_modified_utf8
from flinkstate.serializers.type_parts import kept_by_kryo
from flinkstate.serializers.types import FlinkType, PojoType
from flinkstate.serializers.walker import Bytes, Flags, Positions

_NULL, _OWN, _NAMED, _TAGGED = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class FieldSpans:
    """Where a field is in each of some POJOs: its null flag (-1 in a POJO that is null), and its value.

    A null value has no bytes.
    """

    flags: Positions
    starts: Positions
    ends: Positions

    @property
    def present(self) -> Flags:
        """Whether the field isn't null."""
        return self.ends > self.starts


def find_field(type_: PojoType, field: str, data: Bytes, starts: Positions, ends: Positions) -> FieldSpans:
    """Finds the field in POJOs that take up all bytes from each start to each end."""
    found = FieldSpans(np.full(len(starts), -1, np.int64), starts.copy(), starts.copy())
    for pojo, numbers, bodies in _bodies(type_, data, np.arange(len(starts)), starts, ends):
        names = [one.name for one in pojo.fields]
        if field not in names:
            raise RefusedError(f"the subclass {pojo.class_name} of {type_.class_name} has no field {field}")
        parts = tuple(one.type for one in pojo.fields)
        of_own = next(one.type for one in type_.fields if one.name == field)
        if parts[names.index(field)] != of_own:
            raise RefusedError(
                f"the subclass {pojo.class_name} of {type_.class_name} has another serializer for the field {field}"
            )
        spans = _in_bodies(parts, names.index(field), data, bodies, ends[numbers])
        found.flags[numbers], found.starts[numbers], found.ends[numbers] = spans.flags, spans.starts, spans.ends
    return found


_Body = tuple[PojoType, Positions, Positions]


def _bodies(type_: FlinkType, data: Bytes, numbers: Positions, starts: Positions, ends: Positions) -> Iterator[_Body]:
    """Yields the classes of the POJOs that aren't null: which POJOs are of the class, and where their fields begin."""
    if not isinstance(type_, PojoType):
        raise RefusedError("a subclass of a POJO is not a POJO itself")
    limits = ends[numbers]
    for short in np.flatnonzero(starts >= limits)[:1]:
        raise DamagedError("the flag of a POJO", "its end", offset=int(starts[short]))
    flags = data[starts]
    for wrong in np.flatnonzero(~np.isin(flags, (_NULL, _OWN, _NAMED, _TAGGED)))[:1]:
        raise DamagedError("a POJO flag 1, 2, 4 or 8", f"{flags[wrong]}", offset=int(starts[wrong]))
    for longer in np.flatnonzero((flags == _NULL) & (starts + 1 != limits))[:1]:
        raise DamagedError(
            "the end of a null POJO", f"{limits[longer] - starts[longer] - 1} more bytes", offset=int(starts[longer])
        )
    own = flags == _OWN
    if own.any():
        yield type_, numbers[own], starts[own] + 1
    known = np.isin(flags, (_NULL, _OWN))
    for subclass, of_class, bodies in of_subclasses(type_, data, flags, starts, limits):
        known |= of_class
        yield from _bodies(subclass, data, numbers[of_class], bodies, ends)
    for unknown in np.flatnonzero(~known)[:1]:
        raise _unknown_subclass(type_, data, int(flags[unknown]), int(starts[unknown]), int(limits[unknown]))


def of_subclasses(
    type_: PojoType, data: Bytes, flags: Bytes, starts: Positions, limits: Positions
) -> Iterator[tuple[FlinkType, Flags, Positions]]:
    """Yields each subclass that occurs: which values are of it, and where its serializer's values begin."""
    for tag, subclass in enumerate(type_.registered_subclasses):
        of_class = (flags == _TAGGED) & (starts + 2 <= limits)
        of_class[of_class] = data[starts[of_class] + 1] == tag
        if of_class.any():
            yield subclass, of_class, starts[of_class] + 2
    for name, subclass in type_.other_subclasses:
        encoded = np.frombuffer(encode_modified_utf8(name), np.uint8)
        said = np.concatenate((np.array([len(encoded) >> 8, len(encoded) & 0xFF], np.uint8), encoded))
        of_class = (flags == _NAMED) & (starts + 1 + len(said) <= limits)
        places = starts[of_class][:, None] + 1 + np.arange(len(said))
        of_class[of_class] = (data[places] == said).all(axis=1)
        if of_class.any():
            yield subclass, of_class, starts[of_class] + 1 + len(said)


def _unknown_subclass(type_: PojoType, data: Bytes, flag: int, start: int, limit: int) -> StateferryError:
    if flag == _TAGGED:
        found = f"{data[start + 1]}" if start + 1 < limit else "its end"
        return DamagedError(f"the tag of a registered subclass of {type_.class_name}", found, offset=start + 1)
    size = int(data[start + 1]) << 8 | int(data[start + 2]) if start + 3 <= limit else limit
    if start + 3 + size > limit:
        return DamagedError(f"the name of a subclass of {type_.class_name}", "its end", offset=start + 1)
    name = bytes(data[start + 3 : start + 3 + size]).decode("utf-8", "replace")
    return RefusedValueError(f"a value is of the subclass {name}, which the savepoint doesn't describe", start)


def _in_bodies(
    parts: tuple[FlinkType, ...], field: int, data: Bytes, starts: Positions, limits: Positions
) -> FieldSpans:
    """Finds the field with this number; the fields begin at each start and end at each limit."""
    if not any(map(kept_by_kryo, parts)):
        spans, stops = _walked(parts, field, data, starts, limits, five=False, strict=True)
        for wrong in np.flatnonzero(stops != limits)[:1]:
            found = f"{limits[wrong] - stops[wrong]} more bytes"
            raise DamagedError("the end of a POJO", found, offset=int(stops[wrong]))
        return spans
    (two, stops_2), (five, stops_5) = (
        _walked(parts, field, data, starts, limits, five=five, strict=False) for five in (False, True)
    )
    by_2, by_5 = stops_2 == limits, stops_5 == limits
    for neither in np.flatnonzero(~by_2 & ~by_5)[:1]:
        place = slice(neither, neither + 1)
        raise max(
            (_why_not(parts, field, data, starts[place], limits[place], five) for five in (False, True)),
            key=lambda error: error.offset or 0,
        )
    other = (two.starts != five.starts) | (two.ends != five.ends)
    for either in np.flatnonzero(by_2 & by_5 & other)[:1]:
        why = "Kryo 2 and Kryo 5 could both have written this POJO, and mean different ones"
        raise RefusedValueError(why, int(starts[either]))
    return FieldSpans(
        np.where(by_2, two.flags, five.flags),
        np.where(by_2, two.starts, five.starts),
        np.where(by_2, two.ends, five.ends),
    )


def _why_not(
    parts: tuple[FlinkType, ...], field: int, data: Bytes, start: Positions, limit: Positions, five: bool
) -> DamagedError | RefusedValueError:
    """Why this Kryo didn't write a POJO."""
    try:
        _, stop = _walked(parts, field, data, start, limit, five=five, strict=True)
    except (DamagedError, RefusedValueError) as error:
        return error
    return DamagedError("the end of a POJO", f"{limit[0] - stop[0]} more bytes", offset=int(stop[0]))


def _walked(
    parts: tuple[FlinkType, ...],
    field: int,
    data: Bytes,
    starts: Positions,
    limits: Positions,
    *,
    five: bool,
    strict: bool,
) -> tuple[FieldSpans, Positions]:
    """Walks over all fields. Returns where the one with the number `field` is, and where the last one ends.

    `five` says which Kryo has written what is by Kryo. A POJO that can't be read ends at -1, or `strict` raises why.
    """
    at, spans = starts, FieldSpans(starts, starts, starts)
    for number, part in enumerate(parts):
        flags, (begins, present) = at, behind_flags("before a field of a POJO", data, at, limits, strict=strict)
        at = begins.copy()
        at[present] = ends_of_parts(part, data, at[present], limits[present], five=five, strict=strict)
        if number == field:
            spans = FieldSpans(flags, begins, at)
    return spans, at
