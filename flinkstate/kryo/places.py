"""The places in a map, as the kernels use them: the map itself, its keys, its values, the elements of its values...

A place is a node, a line of `children`. When classes are found, nodes are made where objects are met. When a type is
told, they are made of the type.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flinkstate.errors import RefusedError
from flinkstate.kryo import kernels
from flinkstate.kryo.classes import KNOWN, ClassTable, KnownClass
from flinkstate.serializers.types import (
    ArrayType,
    FlinkType,
    ListType,
    MapType,
    PrimitiveArrayType,
    Scalar,
    TupleType,
    type_name,
)

ROOT = "map"
MAPS = (kernels.EMPTY_MAP, kernels.SINGLETON_MAP, kernels.MAP, kernels.SORTED_MAP)
LISTS = (kernels.EMPTY_LIST, kernels.SINGLETON_LIST, kernels.LIST, kernels.FILLED_LIST, kernels.AS_LIST)
# Types whose serializers write null by themselves, and in how many zero bytes.
_NULLS = {Scalar.STRING: 1, Scalar.BIG_INTEGER: 4, Scalar.BIG_DECIMAL: 4}
_WIDE = {Scalar.INTEGER: kernels.INTEGER, Scalar.LONG: kernels.LONG, Scalar.DOUBLE: kernels.DOUBLE}
# The numbers that a wider one has as they are.
WIDER_THAN = {
    Scalar.INTEGER: (Scalar.BYTE, Scalar.SHORT),
    Scalar.LONG: (Scalar.BYTE, Scalar.SHORT, Scalar.INTEGER),
    Scalar.DOUBLE: (Scalar.FLOAT,),
}


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Nodes: their children, which of them have the same type, how null is written there, and a cell for each class.

    A cell says whether the class is allowed, or counts it.
    """

    children: npt.NDArray[np.int64]
    kinships: npt.NDArray[np.int64]
    nulls: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int64]


def places_to_find(table: ClassTable) -> Places:
    """Returns the places before anything is known of them: the map."""
    children = np.full((kernels.MOST_NODES, kernels.CHILDREN), -1, np.int64)
    nothing = np.zeros(kernels.MOST_NODES, np.int64)
    return Places(children, nothing, nothing, np.zeros((kernels.MOST_NODES, len(table.names)), np.int64))


def names_of(children: npt.NDArray[np.int64]) -> dict[int, str]:
    """Returns the nodes that there are with their names: `map`, `key`, `value`, `value.element`, `value.f0`..."""
    names = {0: ROOT}
    waiting = [0]
    while waiting:
        node = waiting.pop()
        for column, child in enumerate(children[node].tolist()):
            if child >= 0:
                names[child] = _part(column) if node == 0 else f"{names[node]}.{_part(column)}"
                waiting.append(child)
    return names


def _part(column: int) -> str:
    named = {kernels.ELEMENT: "element", kernels.KEY: "key", kernels.VALUE: "value"}
    return named.get(column) or f"f{column - kernels.FIELDS}"


def places_of(type_: MapType, table: ClassTable, *, widen: bool = False) -> Places:
    """Returns the places of maps of a type. Refuses types that objects of Kryo can't become.

    With `widen` numbers of narrower types are allowed too, but for the keys of maps inside the map.
    """
    lines: list[list[int]] = []
    types: list[FlinkType] = []

    def add(part: FlinkType) -> int:
        node = len(lines)
        lines.append([-1] * kernels.CHILDREN)
        types.append(part)
        for column, child in _parts(part):
            lines[node][column] = add(child)
        return node

    add(type_)
    kinds = {part: number for number, part in enumerate(dict.fromkeys(types))}
    inner_keys = {line[kernels.KEY] for line in lines[1:]}
    cells = np.zeros((len(types), len(table.names)), np.int64)
    for node, part in enumerate(types):
        cells[node, [row for row, known in enumerate(KNOWN) if row and _becomes(known, part)]] = 1
        if widen and node not in inner_keys and isinstance(part, Scalar):
            for narrow in WIDER_THAN.get(part, ()):
                cells[node, table.row(f"java.lang.{narrow.label}")] = -_WIDE[part]
        if not cells[node].any():
            raise RefusedError(
                f"a map that Kryo wrote can't become {type_name(type_)}: no class becomes {type_name(part)}"
            )
    nulls = np.array([_NULLS[part] if isinstance(part, Scalar) and part in _NULLS else 0 for part in types], np.int64)
    cells[:, kernels.NULL] = nulls > 0
    cells[0, kernels.NULL] = 1
    for line, part in zip(lines, types, strict=True):
        if isinstance(part, MapType):
            # A flag says whether a value is null.
            cells[line[kernels.VALUE], kernels.NULL] = 1
        elif isinstance(part, ArrayType):
            cells[line[kernels.ELEMENT], kernels.NULL] = 1
    return Places(np.array(lines, np.int64), np.array([kinds[part] for part in types], np.int64), nulls, cells)


def _parts(type_: FlinkType) -> Iterator[tuple[int, FlinkType]]:
    match type_:
        case MapType(key, value):
            yield kernels.KEY, key
            yield kernels.VALUE, value
        case ListType(element) | ArrayType(element) | PrimitiveArrayType(Scalar.STRING as element):
            yield kernels.ELEMENT, element
        case TupleType(fields) if len(fields) <= kernels.CHILDREN - kernels.FIELDS:
            yield from enumerate(fields, kernels.FIELDS)
        case _:
            return


def _becomes(known: KnownClass, type_: FlinkType) -> bool:
    """Whether objects of the class become values of the type."""
    match type_:
        case MapType():
            return known.kinds[0] in MAPS
        case ListType():
            return known.kinds[0] in LISTS
        case ArrayType(element):
            return isinstance(element, Scalar) and known.component == f"java.lang.{element.label}" != _STRING
        case PrimitiveArrayType(Scalar.STRING):
            return known.component == _STRING
        case TupleType():
            return known.name == type_.class_name and known.param == len(type_.fields)
        case _:
            return known.type == type_


_STRING = "java.lang.String"
