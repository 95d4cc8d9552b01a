"""Reads a type as a Java developer writes it: `Map<String, List<Long>>`, `java.util.HashMap<String, double[]>`."""

from __future__ import annotations

import re
from collections.abc import Callable

from flinkstate.basics.did_you_mean import there_are
from flinkstate.errors import UsageError
from flinkstate.serializers.types import (
    FLINK_EITHER,
    ArrayType,
    EitherType,
    EnumType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TupleType,
    type_name,
)

_TOKEN = re.compile(r"\s*([\w.$]+|\[\]|[<>,])")
_MAPS = ("Map", "HashMap", "LinkedHashMap", "TreeMap", "SortedMap", "ConcurrentMap", "ConcurrentHashMap")
_LISTS = ("List", "ArrayList", "LinkedList", "Collection")
_COLLECTIONS: dict[str, Callable[[FlinkType], FlinkType]] = dict.fromkeys(_LISTS, ListType)
_SCALARS = {
    one.label: one
    for one in (
        Scalar.BOOLEAN, Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER, Scalar.LONG, Scalar.FLOAT, Scalar.DOUBLE,
        Scalar.CHARACTER, Scalar.STRING, Scalar.BIG_INTEGER, Scalar.BIG_DECIMAL, Scalar.DATE, Scalar.INSTANT,
        Scalar.LOCAL_DATE, Scalar.LOCAL_TIME, Scalar.LOCAL_DATE_TIME, Scalar.SQL_DATE, Scalar.SQL_TIME,
        Scalar.SQL_TIMESTAMP,
    )
}  # fmt: skip
_PRIMITIVES = {
    "boolean": Scalar.BOOLEAN,
    "byte": Scalar.BYTE,
    "short": Scalar.SHORT,
    "int": Scalar.INTEGER,
    "long": Scalar.LONG,
    "float": Scalar.FLOAT,
    "double": Scalar.DOUBLE,
    "char": Scalar.CHARACTER,
}
_TUPLES = {f"Tuple{count}": count for count in range(1, 26)}
_TUPLE_PACKAGE = "org.apache.flink.api.java.tuple."
_MOST_LEVELS = 32
# How objects of a class are stored; what the class itself says comes from the job's jars.
_OF_CLASSES: dict[str, Callable[[str], FlinkType]] = {
    "Kryo": KryoType,
    "Enum": lambda name: EnumType(name, ()),
    "Pojo": lambda name: PojoType(name, ()),
}


def parse_type_text(text: str, *, with_sets: bool = False) -> FlinkType:
    """Returns the type that the text names. Flink 1 has no serializer of a Set, so it is one only `with_sets`."""
    parser = _Parser(text, with_sets)
    found = parser.type(0)
    if parser.rest():
        raise UsageError(f"{text!r}: expected the end behind the type, found {parser.rest()!r}")
    return found


def parse_map_type(text: str) -> MapType:
    """Returns the map that the text names."""
    found = parse_type_text(text)
    if not isinstance(found, MapType):
        raise UsageError(f"{text!r}: expected a map, such as Map<String, Long>")
    return found


def type_text(type_: FlinkType) -> str:
    """Returns a text by which `parse_map_type` finds the type, if it has a notation for it."""
    match type_:
        case KryoType(class_name):
            return f"Kryo<{class_name}>"
        case EnumType(class_name):
            return f"Enum<{class_name}>"
        case PojoType(class_name):
            return f"Pojo<{class_name}>"
        case MapType(key, value):
            return f"Map<{type_text(key)},{type_text(value)}>"
        case ListType(element):
            return f"List<{type_text(element)}>"
        case TupleType(fields, class_name) if class_name.startswith(_TUPLE_PACKAGE):
            return f"{class_name.removeprefix(_TUPLE_PACKAGE)}<{','.join(map(type_text, fields))}>"
        case RowType(fields):
            return f"Row<{','.join(map(type_text, fields))}>"
        case EitherType(left, right) if type_.class_name == FLINK_EITHER:
            return f"Either<{type_text(left)},{type_text(right)}>"
        case _:
            return type_name(type_)


class _Parser:
    def __init__(self, text: str, with_sets: bool = False) -> None:
        self._text, self._position = text, 0
        self._collections = _COLLECTIONS | ({"Set": SetType} if with_sets else {})

    def rest(self) -> str:
        return self._text[self._position :].strip()

    def type(self, level: int) -> FlinkType:
        if level > _MOST_LEVELS:
            raise UsageError(f"{self._text!r}: the type is nested more than {_MOST_LEVELS} deep")
        found_here = self.rest()
        name = self._take()
        if not name or name in "<>,[]":
            wildcard = ". A wildcard doesn't say of which type values are" if found_here.startswith("?") else ""
            raise UsageError(f"{self._text!r}: expected a type, found {found_here or 'the end'!r}{wildcard}")
        # Without its package a java.sql.Date would be a java.util.Date.
        name = name if name in _SCALARS else name.rpartition(".")[2]
        if name in _PRIMITIVES:
            self._expect("[]", f"{name}[] or {_PRIMITIVES[name].label}, because a map has no values of type {name}")
            found: FlinkType = PrimitiveArrayType(_PRIMITIVES[name])
        elif name in _MAPS:
            found = MapType(*self._arguments(name, 2, level))
        elif name in self._collections:
            found = self._collections[name](*self._arguments(name, 1, level))
        elif name in _TUPLES:
            found = TupleType(tuple(self._arguments(name, _TUPLES[name], level)), f"{_TUPLE_PACKAGE}{name}")
        elif name == "Either":
            left, right = self._arguments(name, 2, level)
            found = EitherType(left, right)
        elif name == "Row":
            found = RowType(tuple(self._arguments(name, None, level)), has_kind=True)
        elif name in _SCALARS:
            found = _SCALARS[name]
        elif name in _OF_CLASSES:
            self._expect("<", f"{name}<...> with the full name of a class, such as Kryo<java.util.UUID>")
            class_name = self._take()
            found = _OF_CLASSES[name](class_name)
            self._expect(">", f"> behind {name}<{class_name}")
        else:
            known = [*_SCALARS, _MAPS[0], _LISTS[0], *(f"{name}[]" for name in _PRIMITIVES)]
            raise UsageError(
                f"{self._text!r}: no type {name!r} is known here. {there_are(name, known)}. "
                "A class without a serializer of Flink's own stays a value of Kryo: Kryo<com.acme.Thing>"
            )
        while self._next() == "[]":
            self._take()
            found = _array_of(found)
        return found

    def _arguments(self, name: str, count: int | None, level: int) -> list[FlinkType]:
        """Reads types in brackets: so many, or as many as there are."""
        letters = {1: "E", 2: "KV"}.get(count or 0) or [f"T{number}" for number in range(count or 2)]
        self._expect("<", f"{name}<{', '.join(letters)}>")
        found = [self.type(level + 1)]
        while self._next() == "," if count is None else len(found) < count:
            self._expect(",", f"{count} types in {name}<...>")
            found.append(self.type(level + 1))
        self._expect(">", f"> behind {name}<...")
        return found

    def _next(self) -> str:
        match = _TOKEN.match(self._text, self._position)
        return match.group(1) if match else ""

    def _take(self) -> str:
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            return ""
        self._position = match.end()
        return match.group(1)

    def _expect(self, token: str, wanted: str) -> None:
        if self._next() != token:
            raise UsageError(f"{self._text!r}: expected {wanted}, found {self.rest() or 'the end'!r}")
        self._take()


def _array_of(element: FlinkType) -> FlinkType:
    if element is Scalar.STRING:
        return PrimitiveArrayType(Scalar.STRING)
    name = element.label if isinstance(element, Scalar) else ""
    if not name:
        raise UsageError("an array of this type isn't known here: only arrays of scalar types")
    return ArrayType(element, name if "." in name else f"{_PACKAGES.get(name, 'java.lang')}.{name}")


_PACKAGES = {
    "BigInteger": "java.math",
    "BigDecimal": "java.math",
    "Date": "java.util",
    "Instant": "java.time",
    "LocalDate": "java.time",
    "LocalTime": "java.time",
    "LocalDateTime": "java.time",
}
