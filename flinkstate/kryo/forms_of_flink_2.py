"""What is in collections that Flink 2's own serializers wrote, and how Kryo 2 writes the same objects.

A collection is a tree of places: its keys, values or elements, the fields of POJOs in it, and so on. Each is a node, a
line of numbers that `other_kryo_collections.py` explains. Kryo 2 writes a POJO by the fields of its class, a `Map`,
`List` or `Set` as the HashMap, ArrayList or HashSet that Flink 2 makes of it, and what Kryo 5 wrote as Kryo 2 does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flinkstate.errors import RefusedError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo import other_kryo_collections as forms
from flinkstate.kryo import other_kryo_kernels
from flinkstate.kryo.classes import KNOWN, ClassTable, class_table, registered_ids
from flinkstate.kryo.job_parts import NOT_FINAL, JobPart
from flinkstate.kryo.places_in_maps import array_of
from flinkstate.kryo.refusal import what_helps
from flinkstate.serializers.types import (
    ArrayType,
    EnumType,
    FlinkType,
    KryoCollectionType,
    KryoType,
    ListType,
    MapType,
    NullableType,
    PojoType,
    PrimitiveArrayType,
    Scalar,
    SetType,
    type_name,
)

_STRING = "java.lang.String"
_TAGGED = JobPart(codes.TAGGED_PART)
_IS_NULL, _IS_PRESENT = 1, 0
_COLLECTIONS = {MapType: "java.util.HashMap", ListType: "java.util.ArrayList", SetType: "java.util.HashSet"}
_FORMS = {MapType: forms.MAP_FORM, ListType: forms.LIST_FORM, SetType: forms.LIST_FORM}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: its type, how Kryo 2 knows its class there, how many flags before it say if it is null.

    `null` is what a flag says of null; `context` has the type arguments of the field, by which Kryo drops class tags.
    """

    type: FlinkType
    part: JobPart = _TAGGED
    flags: int = 0
    null: int = _IS_NULL
    context: int = 0


@dataclass(slots=True, eq=False)
class Forms:
    """The nodes of several collections."""

    _lines: list[list[int]] = field(default_factory=list)
    _orders: list[int] = field(default_factory=list)
    _ids: list[dict[int, int]] = field(default_factory=list)

    def add(self, collection: KryoCollectionType) -> int:
        """Adds a collection, and returns its node; refuses what Kryo 2 can't write, or not as it was."""
        return _Nodes(self, class_table(collection.kryo)).add((_Place(collection.made),))

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What the kernels call `forms`."""
        ids = np.full((max(1, len(self._ids)), 2, 1 + max([0, *(max(one) for one in self._ids)])), -1, np.int32)
        for place, rows in zip(ids, self._ids, strict=False):
            for number, row in rows.items():
                place[:, number] = row
        nodes = np.array(self._lines or [[0] * forms.NODE_PARTS], np.int64)
        frames = np.zeros((other_kryo_kernels.DEEPEST, other_kryo_kernels.FRAME_PARTS), np.int64)
        return nodes, np.array(self._orders or [0], np.int64), ids, frames


@dataclass(slots=True, eq=False)
class _Nodes:
    forms: Forms
    table: ClassTable
    _rows: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._rows = {name: row for row, name in enumerate(self.table.names)}

    def add(self, places: Sequence[_Place]) -> int:
        """Adds nodes, one behind another, and those in them; returns the number of the first."""
        lines = self.forms._lines
        first = len(lines)
        lines.extend([0] * forms.NODE_PARTS for _ in places)
        for node, place in enumerate(places, first):
            self._describe(lines[node], place)
        return first

    def _describe(self, line: list[int], place: _Place) -> None:
        type_, flags = place.type, place.flags
        while isinstance(type_, NullableType) and not type_.padding and place.null == _IS_NULL:
            type_, flags = type_.value, flags + 1
        line[forms.HOW] = place.part.kind if place.part.kind >= codes.TAGGED_PART else forms.PRIMITIVE_PART
        line[forms.FLAGS], line[forms.NULL_FLAG] = flags, place.null
        match type_:
            case KryoType(class_name):
                name = class_name
                line[forms.FORM], line[forms.CONTEXT] = forms.KRYO_FORM, place.context
                line[forms.PARAM] = self._ids_of(type_)
            case EnumType(name, names, None):
                line[forms.FORM], line[forms.COUNT] = forms.ENUM_FORM, len(names)
                line[forms.PARAM] = self._order_of(name, names)
            case PojoType(name):
                self._describe_pojo(line, type_)
            case MapType() | ListType() | SetType():
                name = _COLLECTIONS[type(type_)]
                line[forms.FORM], line[forms.CHILD] = _FORMS[type(type_)], self.add(self._in_collection(type_, place))
            case ArrayType(element, component):
                name = array_of(component)
                line[forms.FORM] = forms.ARRAY_FORM
                line[forms.CHILD] = self.add((_Place(element, self._in_array(name), 1, _IS_PRESENT),))
            case PrimitiveArrayType(Scalar.STRING):
                name = array_of(_STRING)
                line[forms.FORM] = forms.ARRAY_FORM
                line[forms.CHILD] = self.add((_Place(Scalar.STRING, self._in_array(name)),))
            case _:
                name = _class_of(type_)
        line[forms.ROW] = self._row_of(name, type_, place.part)

    def _row_of(self, name: str, type_: FlinkType, part: JobPart) -> int:
        """Returns the row of the class that Kryo 2 writes at a place, NULL if no object has the class itself."""
        row = codes.NULL if self._is_abstract(name) else self._rows.get(name, codes.NULL)
        if row == codes.NULL and not self._is_abstract(name):
            raise self._unknown(name)
        if not isinstance(type_, KryoType) and row != codes.NULL:
            self._expect_written(name)
        if part.kind == codes.KNOWN_PART:
            fits = part.class_name == name
        else:
            fits = part.kind == codes.TAGGED_PART or part.kind == self.table.kinds[0, row] <= codes.DOUBLE
        if not fits:
            raise RefusedError(f"the class of a field {part.name} has another type there than {type_name(type_)}")
        return row

    def _expect_written(self, name: str) -> None:
        """Refuses a class whose objects Kryo 2 can't be known to write as the tables say."""
        row = self._rows.get(name)
        if row is None or self.table.kinds[0, row] == codes.FOREIGN:
            raise self._unknown(name)

    def _unknown(self, name: str) -> RefusedError:
        reason = self.table.job.reasons.get(name)
        if (own := self.table.own_serializers.get(name)) is not None:
            reason = f"with the job's serializer {own}"
        helps = what_helps([name]) if reason is None else f" ({reason})"
        return RefusedError(f"how Kryo 2 writes {name} is not known{helps}")

    def _is_abstract(self, name: str) -> bool:
        """Whether there are no objects of a class that is known, but only of its subclasses."""
        job, row = self.table.job, self._rows.get(name)
        if row is not None and self.table.kinds[0, row] != codes.FOREIGN:
            return False
        is_of_job = name in job.final and name not in job.reasons and name not in self.table.own_serializers
        return is_of_job or name in NOT_FINAL

    def _ids_of(self, kryo: KryoType) -> int:
        """Returns the number of the class ids that a serializer has for what it wrote."""
        self.forms._ids.append(
            {number: self._rows[name] for number, name in registered_ids(kryo).items() if name in self._rows}
        )
        return len(self.forms._ids) - 1

    def _order_of(self, name: str, constants: tuple[str, ...]) -> int:
        """Returns where the numbers are that Kryo has for the constants."""
        known = self.table.job.enums.get(name)
        if known is None:
            raise self._unknown(name)
        if missing := [one for one in constants if one not in known]:
            raise RefusedError(f"the enum {name} has no constant {missing[0]} in the jar")
        begin = len(self.forms._orders)
        self.forms._orders.extend(known.index(one) + 1 for one in constants)
        return begin

    def _describe_pojo(self, line: list[int], type_: PojoType) -> None:
        line[forms.FORM], line[forms.COUNT] = forms.POJO_FORM, len(type_.fields)
        if not self._is_abstract(type_.class_name):
            line[forms.CHILD] = self.add(self._fields_of(type_))
        named = tuple(one for _, one in type_.other_subclasses)
        line[forms.TAGGED], line[forms.NAMED] = len(type_.registered_subclasses), len(named)
        line[forms.SUBCLASSES] = self.add([_Place(one) for one in (*type_.registered_subclasses, *named)])

    def _fields_of(self, type_: PojoType) -> list[_Place]:
        """Returns the fields in the order of their names, in which both Flink and Kryo write them."""
        name, table = type_.class_name, self.table
        self._expect_written(name)
        parts = table.job.parts[name]
        if [one.name for one in parts] != [one.name for one in type_.fields]:
            raise RefusedError(f"{name} has other fields in the jar than in the savepoint")
        first = int(table.parts.spans[0, self._rows[name], 0])
        contexts = table.parts.parts[first : first + len(parts), codes.PART_CONTEXT].tolist()
        return [
            _Place(one.type, part, 1, context=context)
            for one, part, context in zip(type_.fields, parts, contexts, strict=True)
        ]

    def _in_collection(self, type_: MapType | ListType | SetType, place: _Place) -> list[_Place]:
        """Returns the places in a collection. If the field says a final class for them, they have no class tags."""
        parts = [_TAGGED, _TAGGED]
        for number, one in enumerate(place.part.arguments[:2]):
            if self.table.job.is_final(one.name):
                parts[number] = JobPart(codes.KNOWN_PART, one.name)
        if isinstance(type_, MapType):
            return [_Place(type_.key, parts[0]), _Place(type_.value, parts[1], 1)]
        return [_Place(type_.element, parts[0], int(isinstance(type_, SetType)))]

    def _in_array(self, name: str) -> JobPart:
        self._expect_written(name)
        row = self._rows[name]
        if self.table.kinds[0, row] == codes.OBJECT_ARRAY:
            return JobPart(codes.KNOWN_PART, self.table.names[self.table.params[row]])
        return _TAGGED


def _class_of(type_: FlinkType) -> str:
    """Returns the class of the objects of a type without parts."""
    for known in KNOWN:
        if known.type == type_ and known.kinds[0] <= codes.PRIMITIVE_ARRAY:
            return known.name
    raise RefusedError(f"a {type_name(type_)} in a collection of Flink 2's own isn't written for Kryo 2")
