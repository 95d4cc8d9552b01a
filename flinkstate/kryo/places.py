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
from flinkstate.kryo import codes
from flinkstate.kryo.classes import ClassTable, KnownClass, registered_ids
from flinkstate.kryo.subclasses import is_a
from flinkstate.serializers.types import (
    ArrayType,
    EnumType,
    FlinkType,
    KryoType,
    ListType,
    MapType,
    PojoType,
    PrimitiveArrayType,
    Scalar,
    SetType,
    TupleType,
    type_name,
)

ROOT = "map"
MAPS = (codes.EMPTY_MAP, codes.SINGLETON_MAP, codes.MAP, codes.SORTED_MAP)
SETS = tuple(f"java.util.{name}" for name in ("HashSet", "LinkedHashSet", "TreeSet", "concurrent.CopyOnWriteArraySet"))
LISTS = (codes.EMPTY_LIST, codes.SINGLETON_LIST, codes.LIST, codes.FILLED_LIST, codes.AS_LIST)
# Types whose serializers write null by themselves, and in how many zero bytes.
_NULLS = {Scalar.STRING: 1, Scalar.BIG_INTEGER: 4, Scalar.BIG_DECIMAL: 4}
_WIDE = {Scalar.INTEGER: codes.INTEGER, Scalar.LONG: codes.LONG, Scalar.DOUBLE: codes.DOUBLE}
# The numbers that a wider one has as they are.
WIDER_THAN = {
    Scalar.INTEGER: (Scalar.BYTE, Scalar.SHORT),
    Scalar.LONG: (Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER),
    Scalar.DOUBLE: (Scalar.FLOAT,),
}


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Nodes: their children, which of them have the same type, how null is written there, and a cell for each class.

    The fields of a POJO follow one another, from its child FIELDS on.

    A cell says whether the class is allowed, or counts it. Where values stay Kryo's, `copies` says which line of
    `new_ids` has the ids by which the new serializer writes classes (-1: by name); elsewhere it is -1.
    """

    children: npt.NDArray[np.int64]
    kinships: npt.NDArray[np.int64]
    nulls: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int64]
    copies: npt.NDArray[np.int64]
    new_ids: npt.NDArray[np.int64]
    pojos: Mapping[int, PojoType] = field(default_factory=dict)

    def names(self) -> dict[int, str]:
        """Returns the nodes that there are with their names: `map`, `key`, `value`, `value.element`, `value.f0`..."""
        names = {0: ROOT}
        waiting = [0]
        while waiting:
            node = waiting.pop()
            prefix = f"{names[node]}." if node else ""
            if node in self.pojos:
                first = int(self.children[node, codes.FIELDS])
                found = {first + number: one.name for number, one in enumerate(self.pojos[node].fields)}
            else:
                found = {
                    child: _part(column) for column, child in enumerate(self.children[node].tolist()) if child >= 0
                }
            names |= {child: prefix + name for child, name in found.items()}
            waiting += found
        return names


def places_to_find(table: ClassTable) -> Places:
    """Returns the places before anything is known of them: the map."""
    children = np.full((codes.MOST_NODES, codes.CHILDREN), -1, np.int64)
    nothing = np.zeros(codes.MOST_NODES, np.int64)
    cells = np.zeros((codes.MOST_NODES, len(table.names)), np.int64)
    return Places(children, nothing, nothing, cells, np.full(codes.MOST_NODES, -1, np.int64), _no_ids(1, table))


def _no_ids(lines: int, table: ClassTable) -> npt.NDArray[np.int64]:
    return np.full((lines, len(table.names)), -1, np.int64)


def _part(column: int) -> str:
    named = {codes.ELEMENT: "element", codes.KEY: "key", codes.VALUE: "value"}
    return named.get(column) or f"f{column - codes.FIELDS}"


def _nodes_of(type_: MapType | ListType | SetType) -> tuple[list[list[int]], list[FlinkType]]:
    """Returns the children of all nodes of a type, and the types at the nodes."""
    lines: list[list[int]] = []
    types: list[FlinkType] = []

    def add(parts: Sequence[FlinkType]) -> int:
        """Adds nodes, one behind another; returns the number of the first."""
        first = len(lines)
        lines.extend([-1] * codes.CHILDREN for _ in parts)
        types.extend(parts)
        for node, part in enumerate(parts, first):
            if isinstance(part, PojoType):
                lines[node][codes.FIELDS] = add([one.type for one in part.fields])
            for column, child in _parts(part):
                lines[node][column] = add([child])
        return first

    add([type_])
    return lines, types


def _behind_flags(lines: list[list[int]], types: list[FlinkType]) -> Iterator[int]:
    """Yields the nodes of which a flag says whether they are null."""
    yield 0
    for line, part in zip(lines, types, strict=True):
        match part:
            case MapType():
                yield line[codes.VALUE]
            case ArrayType():
                yield line[codes.ELEMENT]
            case PojoType(_, fields):
                yield from range(line[codes.FIELDS], line[codes.FIELDS] + len(fields))


def places_of(type_: MapType | ListType | SetType, table: ClassTable, *, widen: bool = False) -> Places:
    """Returns the places of maps, lists or sets of a type. Refuses types that objects of Kryo can't become.

    With `widen` numbers of narrower types are allowed too, but in the keys of maps inside the map.
    """
    lines, types = _nodes_of(type_)
    kinds = {part: number for number, part in enumerate(dict.fromkeys(types))}
    in_inner_keys = _in_inner_keys(lines)
    cells = np.zeros((len(types), len(table.names)), np.int64)
    for node, part in enumerate(types):
        cells[node, [row for row, known in enumerate(table.known) if row and _becomes(known, part, table.classes)]] = 1
        if widen and node not in in_inner_keys and isinstance(part, Scalar):
            for narrow in WIDER_THAN.get(part, ()):
                cells[node, table.row(f"java.lang.{narrow.label}")] = -_WIDE[part]
        if not cells[node].any():
            raise RefusedError(
                f"a map that Kryo wrote can't become {type_name(type_)}: no class becomes {type_name(part)}"
            )
    nulls = np.array([zeros_of_null(part) for part in types], np.int64)
    cells[:, codes.NULL] = nulls > 0
    cells[list(_behind_flags(lines, types)), codes.NULL] = 1
    copied = tuple(dict.fromkeys(part for part in types if isinstance(part, KryoType)))
    copies = np.array([copied.index(part) if part in copied else -1 for part in types], np.int64)
    new_ids = _no_ids(max(1, len(copied)), table)
    for line_of_ids, part in zip(new_ids, copied, strict=False):
        ids = {name: number for number, name in registered_ids(part).items()}
        for row, name in enumerate(table.names):
            line_of_ids[row] = ids.get(table.job.enum_of.get(name, name), -1)
    kin = np.array([kinds[part] for part in types], np.int64)
    pojos = {node: part for node, part in enumerate(types) if isinstance(part, PojoType)}
    return Places(np.array(lines, np.int64), kin, nulls, cells, copies, new_ids, pojos)


def _in_inner_keys(lines: Sequence[Sequence[int]]) -> set[int]:
    """Returns the nodes of the keys of maps inside the map, and those in them."""
    found: set[int] = set()
    for node, line in enumerate(lines):
        whole = node in found
        found |= {child for column, child in enumerate(line) if whole or (column == codes.KEY and node > 0)}
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
        case TupleType(fields) if len(fields) <= codes.CHILDREN - codes.FIELDS:
            yield from enumerate(fields, codes.FIELDS)
        case _:
            return


def _becomes(known: KnownClass, type_: FlinkType, classes: JobClasses | None) -> bool:
    """Whether objects of the class become values of the type."""
    match type_:
        case MapType():
            return known.kinds[0] in MAPS
        case ListType():
            return known.kinds[0] in LISTS
        case SetType():
            return known.name in SETS
        case ArrayType(element):
            return isinstance(element, Scalar) and known.component == f"java.lang.{element.label}" != _STRING
        case PrimitiveArrayType(Scalar.STRING):
            return known.component == _STRING
        case EnumType(class_name):
            return known.kinds[0] == codes.ENUM and is_a(known, class_name, classes)
        case KryoType(class_name):
            return known.kinds != (codes.FOREIGN,) * 2 and is_a(known, class_name, classes)
        case PojoType(class_name):
            return known.kinds[0] == codes.PARTS and known.name == class_name
        case TupleType():
            return known.name == type_.class_name and known.param == len(type_.fields)
        case _:
            return known.type == type_


_STRING = "java.lang.String"
