"""The places in a map, as the kernels use them: the map itself, its keys, its values, the elements of its values...

A place is a node, a line of `children`. When classes are found, nodes are made where objects are met. When a type is
told, they are made of the type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError
from flinkstate.kryo import kernel_codes as codes
from flinkstate.kryo.classes import ENUM_SET, ENUM_SETS, IDENTITY_MAP, ClassTable, KnownClass, registered_ids
from flinkstate.kryo.refusal import what_helps
from flinkstate.kryo.subclasses import is_a
from flinkstate.serializers.types import (
    FLINK_EITHER,
    ArrayType,
    EitherType,
    EnumType,
    FlinkType,
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
    type_name,
)

ROOT, OBJECT, INSIDE = "map", "object", "inside"
MAPS = (codes.EMPTY_MAP, codes.SINGLETON_MAP, codes.MAP, codes.SORTED_MAP)
EITHERS = (codes.EITHER,)
LISTS = (codes.EMPTY_LIST, codes.SINGLETON_LIST, codes.LIST, codes.FILLED_LIST, codes.AS_LIST)
# Of a node: a flag before the value says whether it is null.
NULLABLE = -1
# Types whose serializers write null by themselves, and in how many zero bytes.
_NULLS = {Scalar.STRING: 1, Scalar.BIG_INTEGER: 4, Scalar.BIG_DECIMAL: 4}
_WIDE = {Scalar.INTEGER: codes.INTEGER, Scalar.LONG: codes.LONG, Scalar.DOUBLE: codes.DOUBLE}
# The numbers that a wider one has as they are.
WIDER_THAN = {
    Scalar.INTEGER: (Scalar.BYTE, Scalar.SHORT),
    Scalar.LONG: (Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER),
    Scalar.DOUBLE: (Scalar.FLOAT,),
}


@dataclass(frozen=True, slots=True)
class ObjectField:
    """A field of the objects that a serializer of Kryo writes, in which a map is."""

    kryo: KryoType
    name: str

    def parts(self, table: ClassTable) -> npt.NDArray[np.int64]:
        """Returns for each Kryo and class which part of an object is the field, -1 if none is."""
        found = np.full((2, len(table.names)), -1, np.int64)
        for row, known in enumerate(table.known):
            names = [part.name for part in table.job.parts.get(known.name, ())]
            if self.name in names and is_a(known, self.kryo.class_name, table.classes):
                found[:, row] = table.parts.spans[:, row, 0] + names.index(self.name)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Nodes: their children, which of them have the same type, how null is written there, and a cell for each class.

    The fields of a POJO follow one another, from its child FIELDS on.

    A cell says whether the class is allowed, or counts it; of the subclass of a POJO, which of its `subclasses` has the
    fields. The last line counts what is in values that stay Kryo's, at
    any depth. Where values stay Kryo's, `copies` says which line of
    `new_ids` has the ids by which the new serializer writes classes (-1: by name); elsewhere it is -1.

    If the map is in a field of an object, the object is node 0 and the map the next one. `with_map` says then, for each
    Kryo and class, which part of an object has the map, -1 if none has.
    """

    children: npt.NDArray[np.int64]
    kinships: npt.NDArray[np.int64]
    nulls: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int64]
    copies: npt.NDArray[np.int64]
    new_ids: npt.NDArray[np.int64]
    pojos: Mapping[int, PojoType] = field(default_factory=dict)
    subclasses: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    with_map: npt.NDArray[np.int64] | None = None

    @property
    def map_node(self) -> int:
        """The node of the map."""
        return 0 if self.with_map is None else codes.FIELD_NODE

    def names(self) -> dict[int, str]:
        """Returns the nodes that there are with their names: `map`, `key`, `value`, `value.element`, `value.f0`..."""
        top = self.map_node
        names = {0: OBJECT, top: ROOT}
        waiting = [top]
        while waiting:
            node = waiting.pop()
            prefix = f"{names[node]}." if node != top else ""
            if node in self.pojos:
                first = int(self.children[node, codes.FIELDS])
                found = {first + number: one.name for number, one in enumerate(self.pojos[node].fields)}
            else:
                found = {
                    child: _part(column) for column, child in enumerate(self.children[node].tolist()) if child >= 0
                }
            names |= {child: prefix + name for child, name in found.items()}
            names |= dict.fromkeys(self.subclasses.get(node, {}).values(), names[node])
            waiting += [*found, *self.subclasses.get(node, {}).values()]
        return names


def places_to_find(table: ClassTable, field: ObjectField | None = None) -> Places:
    """Returns the places before anything is known of them: the map, and the object if it is in a field of one."""
    children = np.full((codes.MOST_NODES, codes.CHILDREN), -1, np.int64)
    nothing = np.zeros(codes.MOST_NODES, np.int64)
    cells = np.zeros((codes.MOST_NODES + 1, len(table.names)), np.int64)
    with_map = None if field is None else field.parts(table)
    copies = np.full(codes.MOST_NODES, -1, np.int64)
    return Places(children, nothing, nothing, cells, copies, _no_ids(1, table), with_map=with_map)


def _no_ids(lines: int, table: ClassTable) -> npt.NDArray[np.int64]:
    return np.full((lines, len(table.names)), -1, np.int64)


def _part(column: int) -> str:
    named = {codes.ELEMENT: "element", codes.KEY: "key", codes.VALUE: "value"}
    named |= {codes.SIDES: "left", codes.SIDES + 1: "right"}
    return named.get(column) or f"f{column - codes.FIELDS}"


_Subclasses = dict[int, dict[str, int]]


@dataclass(slots=True)
class _Nodes:
    """The nodes of types: their children, the types there, and which may be null by a serializer of their own.

    `subclasses` are the nodes of the subclasses of POJOs. There may be no objects of one, so what is `below` them may
    have a type of which no class is known.
    """

    lines: list[list[int]] = field(default_factory=list)
    types: list[FlinkType] = field(default_factory=list)
    nullable: list[bool] = field(default_factory=list)
    subclasses: _Subclasses = field(default_factory=dict)
    below: set[int] = field(default_factory=set)

    def add(self, wrapped: Sequence[FlinkType]) -> int:
        """Adds nodes, one behind another, and those in them; returns the number of the first."""
        first = len(self.lines)
        parts = [part.value if isinstance(part, NullableType) else part for part in wrapped]
        self.lines.extend([-1] * codes.CHILDREN for _ in parts)
        self.types.extend(parts)
        self.nullable.extend(isinstance(part, NullableType) for part in wrapped)
        for node, part in enumerate(parts, first):
            if isinstance(part, PojoType):
                self.lines[node][codes.FIELDS] = self.add([one.type for one in part.fields])
                begin = len(self.lines)
                self.subclasses[node] = {name: self.add([one]) for name, one in part.other_subclasses}
                self.below.update(range(begin, len(self.lines)))
            for column, child in _parts(part):
                self.lines[node][column] = self.add([child])
        return first


def _behind_flags(lines: list[list[int]], types: list[FlinkType], top: int) -> Iterator[int]:
    """Yields the nodes of which a flag says whether they are null."""
    yield top
    for line, part in zip(lines, types, strict=True):
        match part:
            case MapType():
                yield line[codes.VALUE]
            case ArrayType() | SetType():
                yield line[codes.ELEMENT]
            case PojoType(_, fields):
                yield from range(line[codes.FIELDS], line[codes.FIELDS] + len(fields))
            case RowType(fields):
                yield from line[codes.FIELDS : codes.FIELDS + len(fields)]


def places_of(
    type_: MapType | ListType | SetType | NullableType,
    table: ClassTable,
    *,
    widen: bool = False,
    field: ObjectField | None = None,
) -> Places:
    """Returns the places of maps, lists or sets of a type, in a field of objects or as they are.

    Refuses types that objects of Kryo can't become. With `widen` numbers of narrower types are allowed too, but in the
    keys of maps inside the map. The entries of a nullable map don't become rows.
    """
    nodes = _Nodes()
    nodes.add((type_,) if field is None else (field.kryo, type_))
    lines, types, nullable, subclasses = nodes.lines, nodes.types, nodes.nullable, nodes.subclasses
    top = 0 if field is None else codes.FIELD_NODE
    kinds = {part: number for number, part in enumerate(dict.fromkeys(types))}
    in_inner_keys = _in_inner_keys(lines, subclasses, top)
    cells = np.zeros((len(types), len(table.names)), np.int64)
    for node, part in enumerate(types):
        cells[node, [row for row, known in enumerate(table.known) if row and _becomes(known, part, table.classes)]] = 1
        for name, subclass in subclasses.get(node, {}).items():
            cells[node, [row for row, known in enumerate(table.known) if row and known.name == name]] = (
                codes.SUBCLASS + subclass
            )
        if (node or nullable[0]) and isinstance(part, MapType):
            # Where Flink makes a HashMap of it, two of its keys could become equal. Only the map's own are looked at.
            cells[node, table.row(IDENTITY_MAP)] = 0
        if widen and node not in in_inner_keys and isinstance(part, Scalar):
            for narrow in WIDER_THAN.get(part, ()):
                cells[node, table.row(f"java.lang.{narrow.label}")] = -_WIDE[part]
        if not cells[node].any() and node not in nodes.below:
            why = f"no class becomes {type_name(part)}{_why(part, table)}"
            raise RefusedError(f"a map that Kryo wrote can't become {type_name(type_)}: {why}")
    of_types = zip(types, nullable, strict=True)
    nulls = np.array([NULLABLE if flagged else zeros_of_null(part) for part, flagged in of_types], np.int64)
    cells[:, codes.NULL] = nulls != 0
    cells[list(_behind_flags(lines, types, top)), codes.NULL] = 1
    copied = tuple(dict.fromkeys(part for part in types if isinstance(part, KryoType)))
    copies = np.array([copied.index(part) if part in copied else -1 for part in types], np.int64)
    new_ids = _no_ids(max(1, len(copied)), table)
    for line_of_ids, part in zip(new_ids, copied, strict=False):
        ids = {name: number for number, name in registered_ids(part).items()}
        # Kryo takes the registration of EnumSet for its subclasses, unless they have one.
        ids |= {name: ids[ENUM_SET] for name in ENUM_SETS if ENUM_SET in ids and name not in ids}
        for row, name in enumerate(table.names):
            line_of_ids[row] = ids.get(table.job.enum_of.get(name, name), -1)
    kin = np.array([kinds[part] for part in types], np.int64)
    pojos = {node: part for node, part in enumerate(types) if isinstance(part, PojoType)}
    with_map = None if field is None else field.parts(table)
    return Places(np.array(lines, np.int64), kin, nulls, cells, copies, new_ids, pojos, subclasses, with_map)


def _in_inner_keys(lines: Sequence[Sequence[int]], subclasses: _Subclasses, top: int) -> set[int]:
    """Returns the nodes of the keys of maps inside the map, and those in them."""
    found: set[int] = set()
    for node, line in enumerate(lines):
        whole = node in found
        found |= set(subclasses.get(node, {}).values()) if whole else set()
        found |= {child for column, child in enumerate(line) if whole or (column == codes.KEY and node > top)}
    return found


def zeros_of_null(type_: FlinkType) -> int:
    """How many zeros, and nothing else, are written for null; 0 for types of which null is refused."""
    # Kryo writes null as a class tag 0.
    return 1 if isinstance(type_, KryoType) else _NULLS.get(type_, 0) if isinstance(type_, Scalar) else 0


def _parts(type_: FlinkType) -> Iterator[tuple[int, FlinkType]]:
    match type_:
        case MapType(key, value):
            yield codes.KEY, key
            yield codes.VALUE, value
        case ListType(element) | SetType(element) | ArrayType(element) | PrimitiveArrayType(Scalar.STRING as element):
            yield codes.ELEMENT, element
        case TupleType(fields) | RowType(fields) if len(fields) <= codes.FIELDS_OF_TUPLES:
            yield from enumerate(fields, codes.FIELDS)
        case EitherType(left, right):
            yield codes.SIDES, left
            yield codes.SIDES + 1, right
        case _:
            return


def _why(type_: FlinkType, table: ClassTable) -> str:
    """Says why a class can't be read, or how it could."""
    if not isinstance(type_, KryoType):
        return ""
    reason = table.job.reasons.get(type_.class_name)
    if (own := table.own_serializers.get(type_.class_name)) is not None:
        reason = f"with the job's serializer {own}"
    return what_helps([type_.class_name]) if reason is None else f" ({reason})"


def _becomes(known: KnownClass, type_: FlinkType, classes: JobClasses | None) -> bool:
    """Whether objects of the class become values of the type."""
    match type_:
        case MapType():
            return known.kinds[0] in MAPS
        case ListType():
            return known.kinds[0] in LISTS
        case SetType():
            return is_a(known, "java.util.Set", classes)
        case ArrayType(_, component):
            return known.name == array_of(component) != array_of(_STRING) and known.kinds[0] in _ARRAYS
        case PrimitiveArrayType(Scalar.STRING):
            return known.component == _STRING
        case EnumType(class_name):
            return known.kinds[0] == codes.ENUM and is_a(known, class_name, classes)
        case KryoType(class_name):
            return known.kinds != (codes.FOREIGN,) * 2 and is_a(known, class_name, classes)
        case PojoType(class_name):
            return known.kinds[0] == codes.PARTS and known.name == class_name
        case EitherType():
            return known.kinds[0] == codes.EITHER and type_.class_name == FLINK_EITHER
        case RowType(fields):
            return known.kinds[0] == codes.ROW and len(fields) <= codes.FIELDS_OF_TUPLES
        case TupleType():
            return known.name == type_.class_name and known.param == len(type_.fields)
        case _:
            return known.type == type_


_STRING = "java.lang.String"
_ARRAYS = (codes.OBJECT_ARRAY, codes.ANY_ARRAY)


def array_of(component: str) -> str:
    """Returns the name of the class of arrays of a class."""
    return f"[{component}" if component.startswith("[") else f"[L{component};"
