"""Single values that Kryo wrote: which Kryo wrote each of them, and what they are in Flink's own types.

A decoding counts only if that Kryo's own writer could have written these bytes. If both count and give the same, there
is no question. If both count and differ, or neither does, the value is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

from flinkstate.classfiles.plain_classes import default_serializer
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.types import (
    FLINK_EITHER,
    ArrayType,
    EitherType,
    EnumType,
    FlinkType,
    KryoMapType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TupleType,
    simple_name,
    type_name,
)
from flinkstate.values.java_values import EitherValue, PojoValue, RowKind, RowValue
from flinkstate.values.kryo_class_names import EITHER_SIDES, GSON_MAP, LISTS, MAPS, ROW, SETS
from flinkstate.values.kryo_jobs import UnknownArgumentsError
from flinkstate.values.kryo_reader import KryoReader
from flinkstate.values.kryo_references import KryoObject

SCALARS = {
    **{
        f"java.lang.{scalar.label}": scalar
        for scalar in (
            *(Scalar.INTEGER, Scalar.LONG, Scalar.SHORT, Scalar.BYTE, Scalar.BOOLEAN, Scalar.CHARACTER),
            *(Scalar.FLOAT, Scalar.DOUBLE, Scalar.STRING),
        )
    },
    "java.math.BigInteger": Scalar.BIG_INTEGER,
    "java.math.BigDecimal": Scalar.BIG_DECIMAL,
    "java.util.Date": Scalar.DATE,
    "java.sql.Date": Scalar.SQL_DATE,
    "java.sql.Time": Scalar.SQL_TIME,
    "java.sql.Timestamp": Scalar.SQL_TIMESTAMP,
    "java.time.LocalDate": Scalar.LOCAL_DATE,
    "java.time.LocalTime": Scalar.LOCAL_TIME,
    "java.time.LocalDateTime": Scalar.LOCAL_DATE_TIME,
    "java.time.Instant": Scalar.INSTANT,
}
PRIMITIVE_ARRAYS = {
    f"[{code}": PrimitiveArrayType(scalar)
    for code, scalar in zip(
        "IJSBZCFD",
        (
            *(Scalar.INTEGER, Scalar.LONG, Scalar.SHORT, Scalar.BYTE, Scalar.BOOLEAN, Scalar.CHARACTER),
            *(Scalar.FLOAT, Scalar.DOUBLE),
        ),
        strict=True,
    )
}
_NARROWER = {
    Scalar.INTEGER: (Scalar.BYTE, Scalar.SHORT),
    Scalar.LONG: (Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER),
    Scalar.DOUBLE: (Scalar.FLOAT,),
}
_TUPLE = "org.apache.flink.api.java.tuple.Tuple"
# Of its keys two may be equal, which a map inside of a map of Flink's own wouldn't keep.
IDENTITY_MAP = "java.util.IdentityHashMap"

_FIRST_OF_FLINK, _FIRST_OF_JOB = 73, 85
_OF_KRYO = ("Integer", "String", "Float", "Boolean", "Byte", "Character", "Short", "Long", "Double")
_OF_FLINK = (
    *("java.util.Arrays$ArrayList", "java.util.BitSet", "java.util.PriorityQueue", "java.util.regex.Pattern"),
    *("java.sql.Date", "java.sql.Time", "java.sql.Timestamp", "java.net.URI", "java.net.InetSocketAddress"),
    *("java.util.UUID", "java.util.Locale", "java.text.SimpleDateFormat"),
)
_PRIMITIVES = ("int", "float", "boolean", "byte", "char", "short", "long", "double")
# Flink registers a default serializer for it itself.
_THROWABLE = "java.lang.Throwable"

Kryo = Callable[[bytes, int, int], KryoObject | None]
_T = TypeVar("_T")
_R = TypeVar("_R", bound=KryoReader)


def read_kryo(type_: KryoType, data: bytes, position: int, limit: int) -> KryoObject | None:
    """Returns the value that takes up all bytes from the position to the limit."""
    return by_either(type_, data, position, limit, lambda found: found)


def read_kryo_part(
    type_: KryoType, data: bytes, position: int, limit: int, *, five: bool
) -> tuple[KryoObject | None, int]:
    """Returns the value that Kryo 5, or Kryo 2, wrote at the position, and where it ends: before what is behind it."""
    reader = KryoReader(five, *known_classes(type_), type_.classes, data, position, limit)
    return reader.object(), reader.position


def read_kryo_map(type_: KryoMapType, data: bytes, position: int) -> list[tuple[Any, Any]]:
    """Returns the entries of the map that takes up all bytes from the position on; null has none.

    Keys and values are those of the map's type, as `java_values` has them. Raises `RefusedError` if they are of others.
    """
    return by_either(type_.kryo, data, position, len(data), lambda found: map_entries(type_, found))


def map_entries(type_: KryoMapType, found: KryoObject | None) -> list[tuple[Any, Any]]:
    """Returns the entries of an object that is a map of the type."""
    map_, widen = type_.map, type_.widen
    if found is not None and found.class_name == IDENTITY_MAP:
        found = KryoObject("java.util.HashMap", found.value)
    if found is None or found.form not in MAPS or not widen:
        return [] if found is None else as_flink(map_, found)
    entries = [(as_flink(map_.key, key, True), as_flink_or_null(map_.value, one, True)) for key, one in found.value]
    if len({repr(key) for key, _ in entries}) < len(entries):
        raise RefusedError(f"two keys of the map become the same {type_name(map_.key)}")
    return entries


def as_flink(type_: FlinkType, found: KryoObject | None, widen: bool = False) -> Any:
    """Returns what an object is as a value of a type, whose serializer must be able to write it.

    With `widen` it may be a number of a narrower type, but not as the key of a map. For Kryo itself it stays the
    object; whether its class is one of the declared class's is not looked at.
    """
    if found is None:
        return _null_of(type_)
    type_ = type_.value if isinstance(type_, NullableType) else type_
    if isinstance(type_, KryoType):
        return found
    name, value = found.form, found.value
    if (element := _element_or_null(type_, name)) is not None:
        return [as_flink_or_null(element, part) for part in value]
    match type_:
        case MapType(key, element) if name in MAPS and name != IDENTITY_MAP:
            return [(as_flink(key, one), as_flink_or_null(element, other, widen)) for one, other in value]
        case ListType(element) if name in LISTS:
            return [as_flink(element, part, widen) for part in value]
        case PrimitiveArrayType(Scalar.STRING) if name == "[Ljava.lang.String;":
            return [as_flink(Scalar.STRING, part) for part in value]
        case TupleType(fields, class_name) if name == class_name and name == f"{_TUPLE}{len(fields)}":
            return tuple(as_flink(field, part, widen) for field, part in zip(fields, value, strict=True))
        case RowType() | EitherType() | PojoType() | EnumType() if _CLASSES.get(name, name) == _class_of(type_):
            return _of_fields(type_, found, widen)
        case PojoType() if (subclass := _subclass_of(type_, name)) is not None:
            return as_flink(subclass, found, widen)
        case _ if type_ in (SCALARS.get(name), PRIMITIVE_ARRAYS.get(name)):
            return value
        case Scalar() if widen and SCALARS.get(name) in _NARROWER.get(type_, ()):
            return value
    raise RefusedError(f"expected a {type_name(type_)}, found a {simple_name(found.class_name)} ({found.class_name})")


def _subclass_of(type_: PojoType, class_name: str) -> FlinkType | None:
    """Returns the type of the objects of a subclass, whether the job has registered it or not."""
    registered = {one.class_name: one for one in type_.registered_subclasses if isinstance(one, PojoType | KryoType)}
    return {**registered, **dict(type_.other_subclasses)}.get(class_name)


def _null_of(type_: FlinkType) -> None:
    """Returns null if the type's serializer can write it."""
    if isinstance(type_, KryoType | NullableType) or type_ in (Scalar.STRING, Scalar.BIG_INTEGER, Scalar.BIG_DECIMAL):
        return
    raise RefusedError(f"null as a {type_name(type_)}, which Flink can't write")


def _element_or_null(type_: FlinkType, class_name: str) -> FlinkType | None:
    """Returns the type of the elements of an object, if it is a set or an array, each behind a flag for null."""
    match type_:
        case SetType(element) if class_name in SETS:
            return element
        case ArrayType(element, component) if class_name in (f"[L{component};", f"[{component}"):
            return None if element is Scalar.STRING else element
    return None


def _as_row(type_: RowType, row: dict[str, KryoObject | None], widen: bool) -> RowValue:
    if row["fieldByName"] or row["positionByName"]:
        raise RefusedError("a Row whose fields have names, which Flink's own serializer doesn't store")
    fields, kind = row["fieldByPosition"], row["kind"]
    if fields is None or kind is None or len(fields.value) != len(type_.fields):
        raise RefusedError(f"expected a {type_name(type_)}, found a Row with another number of fields")
    parts = zip(type_.fields, fields.value, strict=True)
    return RowValue(tuple(as_flink_or_null(field, one, widen) for field, one in parts), RowKind[kind.value])


def _as_either(type_: EitherType, side: str, value: dict[str, KryoObject | None], widen: bool) -> EitherValue:
    if len(value) > 1:
        raise RefusedError("an Either with objects of both sides, of which Flink's own serializer stores one")
    is_left = side == "left"
    return EitherValue(as_flink(type_.left if is_left else type_.right, value[side], widen), is_left)


def as_collection(made: NullableType, found: KryoObject | None) -> Any:
    """Returns what an object is as a collection that Flink 2's own serializers write."""
    if found is None:
        return None
    name, value = found.form, found.value
    match made.value:
        case MapType(NullableType(key), element) if name in MAPS:
            return [(as_flink_or_null(key, one), as_flink_or_null(element, other)) for one, other in value]
        case ListType(NullableType(element)) if name in LISTS:
            return [as_flink_or_null(element, part) for part in value]
        case SetType(element) if name in SETS:
            return [as_flink_or_null(element, part) for part in value]
    raise RefusedError(f"expected a {type_name(made)}, found a {simple_name(found.class_name)} ({found.class_name})")


_CLASSES = dict.fromkeys(EITHER_SIDES, FLINK_EITHER)


def _class_of(type_: RowType | EitherType | PojoType | EnumType) -> str:
    return ROW if isinstance(type_, RowType) else type_.class_name


def _of_fields(type_: RowType | EitherType | PojoType | EnumType, found: KryoObject, widen: bool) -> Any:
    match type_:
        case EnumType():
            return found.value
        case RowType():
            return _as_row(type_, found.value, widen)
        case EitherType():
            return _as_either(type_, EITHER_SIDES[found.class_name], found.value, widen)
    fields = {one.name: as_flink_or_null(one.type, found.value[one.name]) for one in type_.fields}
    return PojoValue(type_.class_name, fields)


def as_flink_or_null(type_: FlinkType, found: KryoObject | None, widen: bool = False) -> Any:
    """As `as_flink`, where Flink writes a flag for null."""
    return None if found is None else as_flink(type_, found, widen)


def by_either(type_: KryoType, data: bytes, position: int, limit: int, meant: Callable[[KryoObject | None], _T]) -> _T:
    """Returns what the object means that takes up all these bytes, by the Kryo that can have written it."""

    def read(reader: KryoReader) -> _T:
        return meant(reader.whole())

    return read_by_either(type_, data, position, limit, KryoReader, read)


def read_by_either(
    type_: KryoType, data: bytes, position: int, limit: int, reader_of: type[_R], read: Callable[[_R], _T]
) -> _T:
    """Returns what is read by the Kryo that can have written it; if both can have, they must mean the same."""
    ids, own = known_classes(type_)
    found: list[_T] = []
    failed: list[tuple[bool, int, bool, DamagedError | RefusedError]] = []
    for five in (False, True):
        reader = reader_of(five, ids, own, type_.classes, data, position, limit)
        try:
            found.append(read(reader))
        except (DamagedError, RefusedError) as error:
            is_whole = isinstance(error, UnknownArgumentsError)
            failed.append((is_whole, reader.position, isinstance(error, RefusedError), error))
    if not found:
        # The reading that got farther is more likely to be of the Kryo that wrote the value. One that only doesn't know
        # what Kryo made of type arguments is no reading of damaged bytes.
        raise max(failed, key=lambda one: one[:3])[3]
    # Unlike values, texts of equal NaNs are equal.
    if len(found) == 2 and repr(found[0]) != repr(found[1]):
        raise RefusedError("Kryo 2 and Kryo 5 could both have written this value, and mean different ones")
    return found[0]


@lru_cache(maxsize=64)
def known_classes(type_: KryoType) -> tuple[dict[int, str], dict[str, str]]:
    """Returns the classes by their ids, and the job's own serializers by their classes.

    From 85 on ids are those of the registrations in order. A class that has an id gets another one only with a
    serializer of its own.
    """
    for class_name, serializer in type_.defaults:
        if class_name == GSON_MAP or (class_name.startswith("java.") and class_name != _THROWABLE):
            raise RefusedError(
                f"the job gave Kryo a default serializer of its own, {serializer} for {class_name}, so values of "
                f"{type_.class_name} can't be read"
            )
    ids = {number: f"java.lang.{name}" for number, name in enumerate(_OF_KRYO)}
    ids.update(enumerate(_OF_FLINK, _FIRST_OF_FLINK))
    ids.update(enumerate(_registered({*ids.values(), *_PRIMITIVES}, type_), _FIRST_OF_JOB))
    own = {one.class_name: one.serializer for one in type_.registrations if one.serializer is not None}
    return ids, {**_by_defaults(type_), **own}


def _by_defaults(type_: KryoType) -> dict[str, str]:
    """Returns the classes of the job that a default serializer is for, also one of a superclass or an interface."""
    found: dict[str, str] = {}
    defaults = {name: serializer for name, serializer in type_.defaults if name != _THROWABLE}
    if (job := type_.classes) is not None and defaults:
        for name in job.classes:
            # A class that is its own superclass is refused where it is read.
            with contextlib.suppress(RefusedError):
                if (serializer := default_serializer(job, job.superclasses(name), defaults)) is not None:
                    found[name] = serializer
    return found


def _registered(known: set[str], type_: KryoType) -> Iterator[str]:
    for registration in type_.registrations:
        if registration.class_name not in known or registration.serializer is not None:
            known.add(registration.class_name)
            yield registration.class_name
