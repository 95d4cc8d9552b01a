"""How a map is written by Kryo, if its serializer and the types of its keys and values allow that here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from flinkstate.basics.array_types import Bytes
from flinkstate.errors import RefusedError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.classes import class_table, registered_ids
from flinkstate.serializers.types import FlinkType, KryoMapType, KryoType, Scalar, type_name

_KINDS = {
    Scalar.BOOLEAN: codes.BOOLEAN,
    Scalar.BYTE: codes.BYTE,
    Scalar.SHORT: codes.SHORT,
    Scalar.INTEGER: codes.INTEGER,
    Scalar.LONG: codes.LONG,
    Scalar.FLOAT: codes.FLOAT,
    Scalar.DOUBLE: codes.DOUBLE,
    Scalar.CHARACTER: codes.CHARACTER,
    Scalar.STRING: codes.STRING,
}
# What Kryo writes for a declared class: the class of the objects in it.
WRITTEN_AS = {
    "java.util.Map": "java.util.HashMap",
    "java.util.HashMap": "java.util.HashMap",
    "java.util.LinkedHashMap": "java.util.LinkedHashMap",
}
_BY_NAME, _FIRST_NAME, _NEW_OBJECT = 1, 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class KryoForm:
    """How maps are written: what is before the count, by which Kryo, and the kinds of keys and values."""

    head: Bytes
    five: bool
    key: int
    value: int


def kryo_form(type_: KryoMapType, *, five: bool) -> KryoForm:
    """Returns how Kryo 5, or else Kryo 2, writes such maps; raises `RefusedError` for what isn't written here."""
    class_name, own = WRITTEN_AS.get(type_.kryo.class_name), class_table(type_.kryo).own_serializers
    if class_name is None:
        raise RefusedError(f"a {type_.kryo.class_name} isn't written by Kryo here, only {', '.join(WRITTEN_AS)}")
    for name in (class_name, *(f"java.lang.{one.label}" for one in (type_.map.key, type_.map.value) if _is_known(one))):
        if name in own:
            raise RefusedError(f"the old job writes {name} by its own serializer {own[name]}")
    return KryoForm(_head(type_.kryo, class_name), five, _kind(type_.map.key), _kind(type_.map.value))


def _is_known(type_: FlinkType) -> TypeGuard[Scalar]:
    return isinstance(type_, Scalar) and type_ in _KINDS


def _kind(type_: FlinkType) -> int:
    if isinstance(type_, Scalar) and type_ in _KINDS:
        return _KINDS[type_]
    known = ", ".join(one.label for one in _KINDS)
    raise RefusedError(f"{type_name(type_)} isn't written by Kryo here, only {known}")


def _head(kryo: KryoType, class_name: str) -> Bytes:
    ids = {name: number for number, name in registered_ids(kryo).items()}
    if class_name in ids:
        tag = _varint(ids[class_name] + 2)
    else:
        name = class_name.encode()
        tag = bytes([_BY_NAME, _FIRST_NAME]) + name[:-1] + bytes([name[-1] | 0x80])
    return np.frombuffer(bytes([*tag, _NEW_OBJECT]), np.uint8)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
