"""The map in a field of an object that Kryo wrote as a whole, and the object with null there, one value at a time.

Kryo says the name of a class, and an object, only once in a value; later it gives their numbers. So an object without
its map can have other numbers behind it, and what is said in the map alone must be said where it is needed later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flinkstate.errors import RefusedError
from flinkstate.serializers.binary import varint
from flinkstate.serializers.types import KryoMapType, KryoType, PojoMapType
from flinkstate.values.kryo_jobs import KryoField
from flinkstate.values.kryo_map_places import read_varint
from flinkstate.values.kryo_reader import KryoReader
from flinkstate.values.kryo_references import KryoObject
from flinkstate.values.kryo_values import by_either, map_entries, read_by_either

_BY_NAME = 1
_NEW, _NULL = b"\1", b"\0"


@dataclass(frozen=True, slots=True)
class _Said:
    """A part of a value that has a number: a class by name, or the mark of an object; `is_new` if it is the first."""

    begin: int
    end: int
    number: int
    is_class: bool
    is_new: bool


@dataclass(slots=True)
class _Extent:
    """Where something is: its bytes, and which of the parts with numbers are in it."""

    begin: int
    first: int
    end: int = 0
    behind: int = 0


def map_of_object(type_: PojoMapType, data: bytes, position: int) -> list[tuple[Any, Any]]:
    """Returns the entries of the map in the field of the object that takes up all bytes from the position on."""
    assert isinstance(type_.pojo, KryoType)
    assert isinstance(type_.map, KryoMapType)
    map_ = type_.map

    def meant(found: KryoObject | None) -> list[tuple[Any, Any]]:
        if found is not None and (not isinstance(found.value, dict) or type_.field not in found.value):
            raise RefusedError(f"a {found.class_name} has no field {type_.field}")
        return map_entries(map_, None if found is None else found.value[type_.field])

    return by_either(map_.kryo, data, position, len(data), meant)


def object_without_map(type_: PojoMapType, data: bytes, position: int) -> bytes:
    """Returns the value with null in the field; the object begins at the position."""
    assert isinstance(type_.map, KryoMapType)

    def without(reader: _Tracer) -> bytes:
        reader.field = type_.field
        found = reader.whole()
        return data[position:] if found is None else _Writer(reader, data).without_field()

    return data[:position] + read_by_either(type_.map.kryo, data, position, len(data), _Tracer, without)


class _Tracer(KryoReader):
    """Notes where what has numbers is, and where the field of the outermost object is."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.begin = self.position
        self.field = ""
        self.said: list[_Said] = []
        self.objects: list[_Extent] = []
        self.left_out = _Extent(0, 0)

    def _class(self) -> str | None:
        begin, known = self.position, len(self._names)
        name = super()._class()
        if self._data[begin] == _BY_NAME:
            assert name is not None
            is_new = len(self._names) > known
            self.said.append(_Said(begin, self.position, self._names.index(name), is_class=True, is_new=is_new))
        return name

    def _referable(
        self, name: str, read: Callable[[KryoReader, str], Any], *, may_be_null: bool, like: str = ""
    ) -> KryoObject | None:
        begin, number = self.position, len(self._objects)

        def noted(reader: KryoReader, class_name: str) -> Any:
            self.said.append(_Said(begin, self.position, number, is_class=False, is_new=True))
            self.objects.append(_Extent(self.position, len(self.said)))
            found = read(reader, class_name)
            self._close(self.objects[number])
            return found

        found = super()._referable(name, noted, may_be_null=may_be_null, like=like)
        if found is not None and number == len(self.objects):
            mark, end = read_varint(self._data, begin)
            self.said.append(_Said(begin, end, mark - 2, is_class=False, is_new=False))
        return found

    def _field(self, field: KryoField) -> KryoObject | None:
        is_left_out = self._depth == 1 and field.name == self.field
        if is_left_out:
            self.left_out = _Extent(self.position, len(self.said))
        found = super()._field(field)
        if is_left_out:
            self._close(self.left_out)
        return found

    def _close(self, extent: _Extent) -> None:
        extent.end, extent.behind = self.position, len(self.said)


class _Writer:
    """Writes parts of a value that was read, with numbers of their own."""

    def __init__(self, traced: _Tracer, data: bytes) -> None:
        self._traced, self._data = traced, data
        self._names: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._out = bytearray()

    def without_field(self) -> bytes:
        traced, field = self._traced, self._traced.left_out
        if not field.end:
            raise RefusedError(f"an object has no field {traced.field}")
        self._write(_Extent(traced.begin, 0, field.begin, field.first))
        self._out += _NULL
        self._write(_Extent(field.end, field.behind, traced.position, len(traced.said)))
        return bytes(self._out)

    def _write(self, extent: _Extent) -> None:
        position, index = extent.begin, extent.first
        while index < extent.behind:
            said = self._traced.said[index]
            self._out += self._data[position : said.begin]
            position, index = said.end, index + 1
            if said.is_class:
                self._write_class(said.number)
            elif said.number in self._numbers:
                self._out += varint(self._numbers[said.number] + 2)
                if said.is_new:
                    # It was written where an object before it refers to it.
                    position, index = self._traced.objects[said.number].end, self._traced.objects[said.number].behind
            else:
                self._numbers[said.number] = len(self._numbers)
                self._out += _NEW
                if not said.is_new:
                    self._write(self._traced.objects[said.number])
        self._out += self._data[position : extent.end]

    def _write_class(self, number: int) -> None:
        self._out.append(_BY_NAME)
        if number in self._names:
            self._out += varint(self._names[number])
            return
        self._names[number] = len(self._names)
        named = next(one for one in self._traced.said if one.is_class and one.is_new and one.number == number)
        _, name = read_varint(self._data, named.begin + 1)
        self._out += varint(self._names[number]) + self._data[name : named.end]
