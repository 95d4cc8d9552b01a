"""Finds a field in a POJO, one value at a time.

A POJO is a flag byte: 01 null; 02, then its fields in order, each bool `isNull` and the value; 04, the utf name of a
subclass, and its value; 08, the byte tag of a registered subclass, and its value. All that is by Kryo is by the same
Kryo, with which the last field ends where the POJO does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.type_parts import kept_by_kryo
from flinkstate.serializers.types import FlinkType, PojoMapType, PojoType, type_name
from flinkstate.values.codec_parts import read_flag
from flinkstate.values.codecs import decoder
from stateferry.proof.plain.plain_maps import written_by

_NULL, _OWN, _NAMED, _TAGGED = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class PlainField:
    """Where a field is in a POJO: its null flag, and its value."""

    flag: int
    start: int
    end: int


def find_field(type_: PojoMapType, data: bytes, position: int) -> PlainField | None:
    """Returns where the map is in the POJO that begins at the position; None if POJO or map are null."""
    found = _fields_at(type_.pojo, data, position)
    if found is None:
        return None
    pojo, begin = found
    read = list(_readings(pojo, type_.field, data, begin))
    if any(one != read[0] for one in read):
        raise RefusedError("Kryo 2 and Kryo 5 could both have written this POJO, and mean different ones")
    return read[0] if read[0].end > read[0].start else None


def without_map(type_: PojoMapType, data: bytes, position: int) -> bytes:
    """Returns the value with null in the field; the POJO begins at the position."""
    found = find_field(type_, data, position)
    return data if found is None else data[: found.flag] + b"\1" + data[found.end :]


def _fields_at(type_: FlinkType, data: bytes, position: int) -> tuple[PojoType, int] | None:
    """Returns the class of a POJO and where its fields begin; None if it is null."""
    if not isinstance(type_, PojoType):
        raise RefusedError(f"a subclass that is no POJO: {type_name(type_)}")
    flag = data[position] if position < len(data) else None
    if flag == _NULL:
        return None
    if flag == _OWN:
        return type_, position + 1
    if flag == _TAGGED and position + 1 < len(data) and data[position + 1] < len(type_.registered_subclasses):
        return _fields_at(type_.registered_subclasses[data[position + 1]], data, position + 2)
    if flag == _NAMED:
        end = position + 3 + int.from_bytes(data[position + 1 : position + 3], "big")
        name = data[position + 3 : end].decode("utf-8", "replace")
        for other, subclass in type_.other_subclasses:
            if other == name:
                return _fields_at(subclass, data, end)
        raise RefusedError(f"a subclass that the savepoint doesn't describe: {name}")
    raise DamagedError("the flag of a POJO", "its end" if flag is None else f"{flag}")


def _readings(type_: PojoType, field: str, data: bytes, begin: int) -> Iterator[PlainField]:
    """Yields where the field is, by each Kryo that can have written the POJO."""
    by_kryo = any(kept_by_kryo(one.type) for one in type_.fields)
    failed: list[DamagedError | RefusedError] = []
    for five in (False, True)[: 1 + by_kryo]:
        try:
            yield _read(type_, field, data, begin, five=five)
        except (DamagedError, RefusedError) as error:
            failed.append(error)
    if len(failed) == 1 + by_kryo:
        raise failed[-1]


def _read(type_: PojoType, field: str, data: bytes, begin: int, *, five: bool) -> PlainField:
    position, limit = begin, len(data)
    found = None
    for one in type_.fields:
        flag, start = position, position + 1
        is_null = read_flag(data, flag, limit, f"the null flag of field {one.name}")
        if is_null:
            position = start
        else:
            _, position = decoder(written_by(one.type, five=five))(data, start, limit)
        if one.name == field:
            found = PlainField(flag, start, position)
    if position != limit:
        raise DamagedError("the end of a POJO", f"{limit - position} more bytes")
    if found is None:
        raise RefusedError(f"{type_.class_name} has no field {field}")
    return found
