"""Compiles types into small programs for the walking kernels.

A program and the fewest bytes of a value are found in one pass over the type. Other programs also mark places inside
values: where elements, entries or keys begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flinkstate.serializers import kernels
from flinkstate.serializers.binary import encode_modified_utf8
from flinkstate.serializers.types import (
    AvroArrayType,
    AvroFixedType,
    AvroMapType,
    AvroUnionType,
    CountedType,
    EitherType,
    EnumType,
    FlinkType,
    MapType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SequenceType,
    TupleType,
)

NULL_FLAG = (kernels.NULL_FLAG, 0)
PRESENT_FLAG = (kernels.BRANCH, 0)
_FLAGS = {"isNull": NULL_FLAG, "isPresent": PRESENT_FLAG}
# The bytes of a collection without elements.
_COUNT = 4


@dataclass(frozen=True, slots=True, eq=False)
class WalkProgram:
    """A program that finds the end of a value of `type`.

    `code` has the instructions, `pool` the texts that they compare with, `registers` is how many registers they use.
    `opaque` says for each instruction at which the walk stops what the value is that it can't walk.
    """

    type: FlinkType
    code: npt.NDArray[np.int64]
    pool: npt.NDArray[np.uint8]
    registers: int
    least_size: int
    opaque: tuple[tuple[int, OpaqueType], ...] = ()


# The code of a scalar and the fewest bytes that it has, unless all its values have the same length.
_SCALARS: dict[Scalar, tuple[tuple[int, ...], int]] = {
    Scalar.BOOLEAN: ((kernels.BOOLEAN,), 1),
    Scalar.BOOLEAN_VALUE: ((kernels.BOOLEAN,), 1),
    Scalar.STRING: ((kernels.STRING, 1), 1),
    Scalar.STRING_VALUE: ((kernels.STRING, 0), 1),
    Scalar.BIG_INTEGER: ((kernels.BIG_INTEGER,), 4),
    Scalar.BIG_DECIMAL: ((kernels.BIG_DECIMAL,), 4),
    Scalar.VARIANT: ((kernels.VARIANT,), 8),
    Scalar.BITMAP: ((kernels.BLOCK, 1), 4),
    Scalar.NULL_VALUE: ((), 0),
    # Not 0: a list with a count of these must have bytes.
    Scalar.NOTHING: ((kernels.NO_VALUES,), 1),
    Scalar.AVRO_NULL: ((), 0),
    Scalar.AVRO_STRING: ((kernels.BLOCK, 1), 4),
}


class _Compiler:
    def __init__(self) -> None:
        self.code: list[int] = []
        self.pool = bytearray()
        # The kernels use register 0 themselves.
        self.registers = 1
        self.opaque: list[tuple[int, OpaqueType]] = []

    def emit(self, *words: int) -> int:
        at = len(self.code)
        self.code += words
        return at

    def register(self) -> int:
        self.registers += 1
        return self.registers - 1

    def compile(self, type_: FlinkType) -> int:
        """Adds the code that finds the end of a value. Returns the fewest bytes that a value can have."""
        match type_:
            case Scalar():
                return self.scalar(type_)
            case PrimitiveArrayType(element) if element.length is not None and element is not Scalar.BOOLEAN:
                self.emit(kernels.BLOCK, element.length)
                return _COUNT
            case CountedType():
                return self.loop(type_)
            case MapType(key, value):
                return self.map(key, value)
            case SequenceType(parts=parts):
                return sum([self.compile(part) for _, part in parts])
            case RowType(fields, has_kind):
                return self.row(fields, 2 if has_kind else 0)
            case PojoType():
                return self.pojo(type_)
            case NullableType(value, padding):
                return self.guarded((kernels.NULL_FLAG, padding), value)
            case OptionType(value):
                return self.guarded(PRESENT_FLAG, value)
            case EitherType():
                return self.either(type_)
            case EnumType(_, names, ids):
                self.emit(*(kernels.ENUM, len(names)) if ids is None else (kernels.ENUM_IDS, len(names), *sorted(ids)))
                return 4
            case AvroFixedType(_, size):
                self.emit(kernels.FIXED, size)
                return size
            case AvroArrayType() | AvroMapType():
                return self.blocks(type_)
            case AvroUnionType(branches):
                return self.union(tuple(branch.type for branch in branches))
            case OpaqueType():
                self.opaque.append((self.emit(kernels.OPAQUE), type_))
                # Not 0: a list with a count of these must have bytes.
                return 1

    def scalar(self, type_: Scalar) -> int:
        length = type_.length or 0
        code, least = _SCALARS.get(type_, ((kernels.FIXED, length), length))
        self.emit(*code)
        return least

    def either(self, type_: EitherType) -> int:
        branch = self.emit(kernels.BRANCH, type_.right_tag, 0)
        least_left = self.compile(type_.left)
        end = self.emit(kernels.JUMP, 0)
        self.code[branch + 2] = len(self.code)
        least_right = self.compile(type_.right)
        self.code[end + 1] = len(self.code)
        return 1 + min(least_left, least_right)

    def guarded(self, flag: tuple[int, ...], value: FlinkType) -> int:
        at = self.emit(*flag, 0)
        self.compile(value)
        self.code[at + len(flag)] = len(self.code)
        return 1

    def loop(self, type_: CountedType, *, marks: bool = False) -> int:
        register = self.register()
        at = self.emit(kernels.LOOP, register, 0, 0)
        if marks:
            self.emit(kernels.MARK)
        # A null element is only its flag.
        element = type_.element
        self.code[at + 2] = self.compile(element) if type_.flag is None else self.guarded(_FLAGS[type_.flag], element)
        self.emit(kernels.NEXT, register, at + 4)
        self.code[at + 3] = len(self.code)
        return _COUNT

    def map(self, key: FlinkType, value: FlinkType, *, marks: bool = False) -> int:
        register = self.register()
        sizes = _plain_size(key), _plain_size(value)
        if marks and None not in sizes:
            at = self.emit(kernels.LOOP, register, least_size(key) + 1, 0)
            self.emit(kernels.ENTRIES, register, *(size or 0 for size in sizes))
            self.code[at + 3] = len(self.code)
            return _COUNT
        mark = (kernels.MARK,) if marks else ()
        at = self.emit(kernels.LOOP, register, 0, 0, *mark)
        self.code[at + 2] = self.compile(key) + 1
        self.emit(*mark)
        self.guarded(NULL_FLAG, value)
        self.emit(kernels.NEXT, register, at + 4)
        self.code[at + 3] = len(self.code)
        return _COUNT

    def blocks(self, type_: AvroArrayType | AvroMapType, *, marks: bool = False) -> int:
        register = self.register()
        mark = (kernels.MARK,) if marks else ()
        at = self.emit(kernels.AVRO_BLOCK, register, 0, 0, *mark)
        if isinstance(type_, AvroMapType):
            least = self.compile(type_.key)
            self.emit(*mark)
            least += self.compile(type_.value)
        else:
            least = self.compile(type_.element)
        self.code[at + 2] = least
        self.emit(kernels.NEXT, register, at + 4)
        self.emit(kernels.JUMP, at)
        self.code[at + 3] = len(self.code)
        return 1

    def union(self, branches: tuple[FlinkType, ...]) -> int:
        at = self.emit(kernels.AVRO_UNION, len(branches), *[0] * len(branches))
        ends, least = [], []
        for index, branch in enumerate(branches):
            self.code[at + 2 + index] = len(self.code)
            least.append(self.compile(branch))
            ends.append(self.emit(kernels.JUMP, 0))
        for end in ends:
            self.code[end + 1] = len(self.code)
        return 4 + min(least, default=0)

    def row(self, fields: tuple[FlinkType, ...], offset: int) -> int:
        register = self.register()
        size = (len(fields) + offset + 7) // 8
        self.emit(kernels.MASK, register, size)
        for index, field in enumerate(fields):
            self.guarded((kernels.FIELD, register, index + offset), field)
        return size

    def pojo(self, type_: PojoType) -> int:
        tagged, named = type_.registered_subclasses, type_.other_subclasses
        at = self.emit(kernels.POJO, 0, len(tagged), len(named), *[0] * (len(tagged) + 3 * len(named)))
        for field in type_.fields:
            self.guarded(NULL_FLAG, field.type)
        ends = [self.emit(kernels.JUMP, 0)]
        for index, subclass in enumerate(tagged):
            self.code[at + 4 + index] = len(self.code)
            self.compile(subclass)
            ends.append(self.emit(kernels.JUMP, 0))
        for index, (name, subclass) in enumerate(named):
            encoded = encode_modified_utf8(name)
            slot = at + 4 + len(tagged) + 3 * index
            self.code[slot : slot + 3] = [len(self.pool), len(encoded), len(self.code)]
            self.pool += encoded
            self.compile(subclass)
            ends.append(self.emit(kernels.JUMP, 0))
        for end in (*ends, at):
            self.code[end + 1] = len(self.code)
        return 1

    def finish(self, type_: FlinkType, least: int) -> WalkProgram:
        self.emit(kernels.HALT)
        pool = np.frombuffer(bytes(self.pool) or b"\0", np.uint8).copy()
        return WalkProgram(type_, np.array(self.code, np.int64), pool, self.registers, least, tuple(self.opaque))


def _plain_size(type_: FlinkType) -> int | None:
    """Returns the size of a value without content to check: 0 for a String; None if it isn't that plain."""
    if type_ is Scalar.STRING:
        return 0
    return type_.length or None if isinstance(type_, Scalar) and type_ not in _SCALARS else None


@lru_cache(maxsize=512)
def compile_type(type_: FlinkType) -> WalkProgram:
    """Returns the program that finds the end of a value."""
    compiler = _Compiler()
    return compiler.finish(type_, compiler.compile(type_))


def compile_each(types: tuple[FlinkType, ...]) -> tuple[WalkProgram, tuple[int, ...]]:
    """Returns a program with a part that finds the end of a value for each type, and where each part begins."""
    compiler, begins = _Compiler(), list[int]()
    for type_ in types:
        begins.append(len(compiler.code))
        compiler.compile(type_)
        compiler.emit(kernels.HALT)
    return compiler.finish(TupleType(types, "parts of a value"), 0), tuple(begins)


def least_size(type_: FlinkType) -> int:
    """Returns the fewest bytes that a value of the type can have."""
    return compile_type(type_).least_size


def least_item_size(type_: AvroArrayType | AvroMapType) -> int:
    """Returns the fewest bytes that an element of the array, or an entry of the map, can have."""
    return least_size(type_.element) if isinstance(type_, AvroArrayType) else 4 + least_size(type_.value)


@lru_cache(maxsize=512)
def compile_elements(type_: CountedType) -> WalkProgram:
    """Returns a program that marks where each element begins, with its flag if it has one."""
    compiler = _Compiler()
    return compiler.finish(type_, compiler.loop(type_, marks=True))


@lru_cache(maxsize=512)
def compile_entries(type_: MapType) -> WalkProgram:
    """Returns a program that marks where each entry begins and where its key ends."""
    compiler = _Compiler()
    return compiler.finish(type_, compiler.map(type_.key, type_.value, marks=True))


@lru_cache(maxsize=512)
def compile_blocks(type_: AvroArrayType | AvroMapType) -> WalkProgram:
    """Returns a program that marks where each element begins; of a map where each entry and its value begin."""
    compiler = _Compiler()
    return compiler.finish(type_, compiler.blocks(type_, marks=True))


@lru_cache(maxsize=512)
def compile_list_state(element: FlinkType, *, marks: bool = True) -> WalkProgram:
    """Returns a program that walks delimited elements, and marks where each of them begins."""
    compiler = _Compiler()
    compiler.emit(*((kernels.MARK,) if marks else ()))
    least = compiler.compile(element)
    at = compiler.emit(kernels.UNLESS_END, 0, kernels.DELIMITER, kernels.JUMP, 0)
    compiler.code[at + 1] = len(compiler.code)
    return compiler.finish(element, least)


def compile_values(type_: FlinkType, of_lists: bool) -> WalkProgram:
    """Returns the program that finds the end of a value, or of a whole value of a ListState with such elements."""
    return compile_list_state(type_, marks=False) if of_lists else compile_type(type_)


@lru_cache(maxsize=512)
def compile_key(key: FlinkType, namespace: FlinkType, suffixes: bool) -> WalkProgram:
    """Returns a program that marks the key's end, the namespace's begin and end, and the begin of what follows."""
    compiler = _Compiler()
    register, least = compiler.register(), 0
    for part in (key, namespace):
        compiler.emit(kernels.REMEMBER, register)
        least += compiler.compile(part)
        compiler.emit(kernels.MARK)
        if suffixes:
            compiler.emit(kernels.SUFFIX, register)
        compiler.emit(kernels.MARK)
    return compiler.finish(TupleType((key, namespace), "a key and its namespace"), least)
