"""Compiles types into small programs for the walking kernels, and makes errors of what the kernels report."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.serializers import kernels
from flinkstate.serializers.binary import encode_modified_utf8
from flinkstate.serializers.types import (
    ArrayType,
    AvroArrayType,
    AvroFixedType,
    AvroMapType,
    AvroRecordType,
    AvroUnionType,
    EitherType,
    EnumType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    SetType,
    TimerType,
    TraversableType,
    TtlType,
    TupleType,
    opaque_parts,
    type_name,
)

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A program that finds the end of a value of `type`.

    `code` has the instructions, `pool` the texts that they compare with, `registers` is how many registers they use.
    """

    type: FlinkType
    code: Positions
    pool: Bytes
    registers: int
    least_size: int


_SCALAR_CODE: dict[Scalar, tuple[int, ...]] = {
    Scalar.BOOLEAN: (kernels.BOOLEAN,),
    Scalar.BOOLEAN_VALUE: (kernels.BOOLEAN,),
    Scalar.STRING: (kernels.STRING, 1),
    Scalar.STRING_VALUE: (kernels.STRING, 0),
    Scalar.BIG_INTEGER: (kernels.BIG_INTEGER,),
    Scalar.BIG_DECIMAL: (kernels.BIG_DECIMAL,),
    Scalar.VARIANT: (kernels.VARIANT,),
    Scalar.BITMAP: (kernels.BLOCK, 1),
    Scalar.NULL_VALUE: (),
    Scalar.NOTHING: (kernels.NO_VALUES,),
    Scalar.AVRO_NULL: (),
    Scalar.AVRO_STRING: (kernels.BLOCK, 1),
}
_SCALAR_LEAST = {
    Scalar.STRING: 1,
    Scalar.STRING_VALUE: 1,
    Scalar.BIG_INTEGER: 4,
    Scalar.BIG_DECIMAL: 4,
    Scalar.VARIANT: 8,
    Scalar.BITMAP: 4,
    # Not 0: a list with a count of these must have bytes.
    Scalar.NOTHING: 1,
    Scalar.AVRO_STRING: 4,
}


class _Compiler:
    def __init__(self) -> None:
        self.code: list[int] = []
        self.pool = bytearray()
        # The kernels use register 0 themselves.
        self.registers = 1

    def emit(self, *words: int) -> int:
        at = len(self.code)
        self.code += words
        return at

    def register(self) -> int:
        self.registers += 1
        return self.registers - 1

    def compile(self, type_: FlinkType) -> None:
        match type_:
            case Scalar():
                self.emit(*_SCALAR_CODE.get(type_, (kernels.FIXED, type_.length or 0)))
            case PrimitiveArrayType(element) if element.length is not None and element is not Scalar.BOOLEAN:
                self.emit(kernels.BLOCK, element.length)
            case PrimitiveArrayType(element) | ListType(element):
                self.loop(element, ())
            case SetType(element):
                self.loop(element, (kernels.NULL_FLAG, 0))
            case ArrayType(element) | TraversableType(element):
                self.loop(element, (kernels.BRANCH,))
            case MapType(key, value):
                self.map(key, value)
            case TupleType(fields):
                for field in fields:
                    self.compile(field)
            case RowType(fields, has_kind):
                self.row(fields, 2 if has_kind else 0)
            case PojoType():
                self.pojo(type_)
            case NullableType(value, padding):
                self.guarded((kernels.NULL_FLAG, padding), value)
            case EitherType(left, right):
                branch = self.emit(kernels.BRANCH, 0)
                self.compile(left)
                end = self.emit(kernels.JUMP, 0)
                self.code[branch + 1] = len(self.code)
                self.compile(right)
                self.code[end + 1] = len(self.code)
            case OptionType(value):
                self.guarded((kernels.BRANCH,), value)
            case EnumType(_, names, None):
                self.emit(kernels.ENUM, len(names))
            case EnumType(_, names, ids):
                self.emit(kernels.ENUM_IDS, len(names), *sorted(ids or ()))
            case AvroFixedType(_, size):
                self.emit(kernels.FIXED, size)
            case AvroArrayType() | AvroMapType():
                self.blocks(type_)
            case AvroUnionType(branches):
                self.union(tuple(branch.type for branch in branches))
            case AvroRecordType(_, parts):
                for part in parts:
                    self.compile(part.type)
            case TtlType(value):
                self.emit(kernels.FIXED, 8)
                self.compile(value)
            case TimerType(key, namespace):
                self.emit(kernels.FIXED, 8)
                self.compile(key)
                self.compile(namespace)
            case OpaqueType():
                self.emit(kernels.OPAQUE)

    def guarded(self, flag: tuple[int, ...], value: FlinkType) -> None:
        at = self.emit(*flag, 0)
        self.compile(value)
        self.code[at + len(flag)] = len(self.code)

    def loop(self, element: FlinkType, flag: tuple[int, ...], *, marks: bool = False) -> None:
        register = self.register()
        # A null element is only its flag.
        least = 1 if flag else least_size(element)
        at = self.emit(kernels.LOOP, register, least, 0)
        if marks:
            self.emit(kernels.MARK)
        guard = self.emit(*flag, 0) if flag else 0
        self.compile(element)
        if flag:
            self.code[guard + len(flag)] = len(self.code)
        self.emit(kernels.NEXT, register, at + 4)
        self.code[at + 3] = len(self.code)

    def map(self, key: FlinkType, value: FlinkType, *, marks: bool = False) -> None:
        register = self.register()
        sizes = _plain_size(key), _plain_size(value)
        if marks and None not in sizes:
            at = self.emit(kernels.LOOP, register, least_size(key) + 1, 0)
            self.emit(kernels.ENTRIES, register, *(size or 0 for size in sizes))
            self.code[at + 3] = len(self.code)
            return
        mark = (kernels.MARK,) if marks else ()
        at = self.emit(kernels.LOOP, register, least_size(key) + 1, 0, *mark)
        self.compile(key)
        self.emit(*mark)
        self.guarded((kernels.NULL_FLAG, 0), value)
        self.emit(kernels.NEXT, register, at + 4)
        self.code[at + 3] = len(self.code)

    def blocks(self, type_: AvroArrayType | AvroMapType, *, marks: bool = False) -> None:
        register = self.register()
        mark = (kernels.MARK,) if marks else ()
        at = self.emit(kernels.AVRO_BLOCK, register, least_item_size(type_), 0, *mark)
        if isinstance(type_, AvroMapType):
            self.emit(*_SCALAR_CODE[Scalar.AVRO_STRING], *mark)
            self.compile(type_.value)
        else:
            self.compile(type_.element)
        self.emit(kernels.NEXT, register, at + 4)
        self.emit(kernels.JUMP, at)
        self.code[at + 3] = len(self.code)

    def union(self, branches: tuple[FlinkType, ...]) -> None:
        at = self.emit(kernels.AVRO_UNION, len(branches), *[0] * len(branches))
        ends = []
        for index, branch in enumerate(branches):
            self.code[at + 2 + index] = len(self.code)
            self.compile(branch)
            ends.append(self.emit(kernels.JUMP, 0))
        for end in ends:
            self.code[end + 1] = len(self.code)

    def row(self, fields: tuple[FlinkType, ...], offset: int) -> None:
        register = self.register()
        self.emit(kernels.MASK, register, (len(fields) + offset + 7) // 8)
        for index, field in enumerate(fields):
            self.guarded((kernels.FIELD, register, index + offset), field)

    def pojo(self, type_: PojoType) -> None:
        tagged, named = type_.registered_subclasses, type_.other_subclasses
        at = self.emit(kernels.POJO, 0, len(tagged), len(named), *[0] * (len(tagged) + 3 * len(named)))
        for field in type_.fields:
            self.guarded((kernels.NULL_FLAG, 0), field.type)
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

    def finish(self, type_: FlinkType) -> Program:
        self.emit(kernels.HALT)
        pool = np.frombuffer(bytes(self.pool) or b"\0", np.uint8).copy()
        return Program(type_, np.array(self.code, np.int64), pool, self.registers, least_size(type_))


def _plain_size(type_: FlinkType) -> int | None:
    """Returns the size of a value without content to check: 0 for a String; None if it isn't that plain."""
    if type_ is Scalar.STRING:
        return 0
    return type_.length or None if isinstance(type_, Scalar) and type_ not in _SCALAR_CODE else None


def least_size(type_: FlinkType) -> int:
    """Returns the fewest bytes that a value of the type can have."""
    match type_:
        case Scalar():
            return _SCALAR_LEAST.get(type_, type_.length or 0)
        case ListType() | SetType() | ArrayType() | MapType() | PrimitiveArrayType() | EnumType() | TraversableType():
            return 4
        case TupleType(fields):
            return sum(map(least_size, fields))
        case RowType(fields, has_kind):
            return (len(fields) + (2 if has_kind else 0) + 7) // 8
        case PojoType() | NullableType() | OptionType() | AvroArrayType() | AvroMapType():
            return 1
        case AvroFixedType(_, size):
            return size
        case AvroUnionType(branches):
            return 4 + min((least_size(branch.type) for branch in branches), default=0)
        case AvroRecordType(_, parts):
            return sum(least_size(part.type) for part in parts)
        case EitherType(left, right):
            return 1 + min(least_size(left), least_size(right))
        case TtlType(value):
            return 8 + least_size(value)
        case TimerType(key, namespace):
            return 8 + least_size(key) + least_size(namespace)
        case OpaqueType():
            # Not 0: a list with a count of these must have bytes.
            return 1


def least_item_size(type_: AvroArrayType | AvroMapType) -> int:
    """Returns the fewest bytes that an element of the array, or an entry of the map, can have."""
    return least_size(type_.element) if isinstance(type_, AvroArrayType) else 4 + least_size(type_.value)


@lru_cache(maxsize=512)
def compile_type(type_: FlinkType) -> Program:
    """Returns the program that finds the end of a value."""
    compiler = _Compiler()
    compiler.compile(type_)
    return compiler.finish(type_)


_FLAGS = {SetType: (kernels.NULL_FLAG, 0), ArrayType: (kernels.BRANCH,), TraversableType: (kernels.BRANCH,)}


@lru_cache(maxsize=512)
def _compile_elements(type_: ListType | SetType | ArrayType | TraversableType | PrimitiveArrayType) -> Program:
    """Returns a program that marks where each element begins, with its flag if it has one."""
    compiler = _Compiler()
    flag = _FLAGS.get(type(type_), ())
    compiler.loop(type_.element, flag, marks=True)
    return compiler.finish(type_)


@lru_cache(maxsize=512)
def _compile_entries(type_: MapType) -> Program:
    """Returns a program that marks where each entry begins and where its key ends."""
    compiler = _Compiler()
    compiler.map(type_.key, type_.value, marks=True)
    return compiler.finish(type_)


@lru_cache(maxsize=512)
def _compile_blocks(type_: AvroArrayType | AvroMapType) -> Program:
    """Returns a program that marks where each element begins; of a map where each entry and its value begin."""
    compiler = _Compiler()
    compiler.blocks(type_, marks=True)
    return compiler.finish(type_)


@lru_cache(maxsize=512)
def _compile_list_state(element: FlinkType) -> Program:
    """Returns a program that marks where each of the delimited elements begins."""
    compiler = _Compiler()
    compiler.emit(kernels.MARK)
    compiler.compile(element)
    at = compiler.emit(kernels.UNLESS_END, 0, kernels.DELIMITER, kernels.JUMP, 0)
    compiler.code[at + 1] = len(compiler.code)
    return compiler.finish(element)


@lru_cache(maxsize=512)
def _compile_key(key: FlinkType, namespace: FlinkType, suffixes: bool) -> Program:
    """Returns a program that marks the key's end, the namespace's begin and end, and the begin of what follows."""
    compiler = _Compiler()
    register = compiler.register()
    for part in (key, namespace):
        compiler.emit(kernels.REMEMBER, register)
        compiler.compile(part)
        compiler.emit(kernels.MARK)
        if suffixes:
            compiler.emit(kernels.SUFFIX, register)
        compiler.emit(kernels.MARK)
    return compiler.finish(TupleType((key, namespace), "a key and its namespace"))


def _walk(
    program: Program, data: Bytes, starts: Positions, limits: Positions, marks: int
) -> tuple[Positions, Positions, Positions]:
    """Returns where the values end, the marks, and the number of marks up to the end of each value."""
    ends, mark_ends, failure = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64), new_failure()
    marked = np.empty(marks, np.int64)
    registers = np.zeros(program.registers, np.int64)
    walked = kernels.walk(program.code, program.pool, registers, data, starts, limits, ends, marked, mark_ends, failure)
    if walked < len(starts):
        raise failed(failure, data, program.type)
    return ends, marked, mark_ends


def skip_each(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> Positions:
    """Returns where each value ends."""
    return _walk(compile_type(type_), data, starts, limits, 0)[0]


def skip_runs(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> tuple[Positions, Positions]:
    """Returns where values begin and end, without values that have the same bytes as the one before them."""
    program = compile_type(type_)
    firsts, ends, failure = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64), new_failure()
    marks, mark_ends, registers = np.empty(0, np.int64), np.empty(1, np.int64), np.zeros(program.registers, np.int64)
    count = kernels.walk_runs(
        program.code, program.pool, registers, data, starts, limits, firsts, ends, marks, mark_ends, failure
    )
    if count < 0:
        raise failed(failure, data, type_)
    return firsts[:count], ends[:count]


def read_counts(data: Bytes, starts: Positions, limits: Positions, least: int) -> Positions:
    """Reads the i32 count at each start, and checks it against the bytes that follow if each item takes `least`."""
    counts, failure = np.empty(len(starts), np.int64), new_failure()
    if kernels.read_counts(data, starts, limits, least, counts, failure) < len(starts):
        raise failed(failure, data)
    return counts


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of many lists, one after another: list i has the next `counts[i]` of them and stops at `stops[i]`.

    `present` is None if the serializer has no null elements. A null element has no bytes.
    """

    counts: Positions
    starts: Positions
    present: Flags | None
    stops: Positions


def walk_elements(
    type_: ListType | SetType | ArrayType | TraversableType | PrimitiveArrayType,
    data: Bytes,
    starts: Positions,
    limits: Positions,
) -> Elements:
    """Finds the elements of many lists, sets or arrays."""
    flagged = type(type_) in _FLAGS
    least = 1 if flagged else least_size(type_.element)
    counts = read_counts(data, starts, limits, least)
    if least == 0:
        return Elements(counts, np.zeros(int(counts.sum()), np.int64), None, starts + 4)
    stops, marks, _ = _walk(_compile_elements(type_), data, starts, limits, int(counts.sum()))
    if not flagged:
        return Elements(counts, marks, None, stops)
    return Elements(counts, marks + 1, data[marks] == (0 if isinstance(type_, SetType) else 1), stops)


@dataclass(frozen=True, slots=True)
class MapEntries:
    """Entries of many maps, one after another: map i has the next `counts[i]` and stops at `stops[i]`.

    The key of entry j is at `starts[j]` to `key_ends[j]`. Its null flag is at `key_ends[j]`; behind it is the
    value, unless it is null, to `ends[j]`.
    """

    counts: Positions
    starts: Positions
    key_ends: Positions
    ends: Positions
    stops: Positions


def walk_entries(type_: MapType, data: Bytes, starts: Positions, limits: Positions) -> MapEntries:
    """Finds the entries of many maps."""
    counts = read_counts(data, starts, limits, least_size(type_.key) + 1)
    total = int(counts.sum())
    stops, marks, _ = _walk(_compile_entries(type_), data, starts, limits, 2 * total)
    entries, key_ends = marks[0::2], marks[1::2]
    ends = np.empty(total, np.int64)
    ends[:-1] = entries[1:]
    filled = counts > 0
    ends[np.cumsum(counts[filled]) - 1] = stops[filled]
    return MapEntries(counts, entries, key_ends, ends, stops)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Elements of many Avro arrays, or entries of many Avro maps, one after another.

    Array i has the next `counts[i]` of them and stops at `stops[i]`. The value of an entry is at `values`.
    """

    counts: Positions
    starts: Positions
    values: Positions
    stops: Positions


def walk_blocks(type_: AvroArrayType | AvroMapType, data: Bytes, starts: Positions, limits: Positions) -> Blocks:
    """Finds the items of many Avro arrays or maps. Items without bytes are not counted."""
    stops = skip_each(type_, data, starts, limits)
    each = 2 if isinstance(type_, AvroMapType) else 1
    most = each * (int((stops - starts).sum()) // max(least_item_size(type_), 1))
    _, marks, mark_ends = _walk(_compile_blocks(type_), data, starts, stops, most)
    marks = marks[: mark_ends[-1] if len(mark_ends) else 0]
    return Blocks(np.diff(mark_ends, prepend=0) // each, marks[::each], marks[each - 1 :: each], stops)


def walk_list_state(element: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> Elements:
    """Finds the elements of ListState values. They have no count but delimiters, up to the limit of each value."""
    most = int((limits - starts).sum()) // (least_size(element) + 1) + len(starts)
    stops, marks, mark_ends = _walk(_compile_list_state(element), data, starts, limits, most)
    return Elements(np.diff(mark_ends, prepend=0), marks[: mark_ends[-1] if len(mark_ends) else 0], None, stops)


@dataclass(frozen=True, slots=True)
class SplitKeys:
    """Where each entry's key ends, its namespace begins and ends, and what follows both begins."""

    key_ends: Positions
    namespace_starts: Positions
    namespace_ends: Positions
    rests: Positions


def split_keys(
    key: FlinkType, namespace: FlinkType, suffixes: bool, data: Bytes, starts: Positions, limits: Positions
) -> SplitKeys:
    """Finds the key and the namespace of each entry."""
    _, marks, _ = _walk(_compile_key(key, namespace, suffixes), data, starts, limits, 4 * len(starts))
    return SplitKeys(*(marks[part::4] for part in range(4)))


def new_failure() -> Positions:
    """Returns an array that a kernel fills on failure."""
    return np.zeros(3, np.int64)


def failed(failure: Positions, data: Bytes, type_: FlinkType | None = None) -> StateferryError:
    """Makes an error of what a kernel reported; its offset is a position in `data`."""
    code, position, detail = (int(number) for number in failure)
    what = type_name(type_) if type_ is not None else "a value"
    if code == kernels.OPAQUE_VALUE:
        return RefusedError(f"a value of {what} can't be split: {_opaque_reason(type_)}")
    if code == kernels.UNKNOWN_SUBCLASS:
        name = bytes(data[position + 2 : position + 2 + detail]).decode("utf-8", "replace")
        return RefusedError(f"a value of {what} is of the subclass {name}, which the savepoint doesn't describe")
    expected, found = {
        kernels.TRUNCATED: (f"{detail} bytes of {what}", "its end"),
        kernels.BAD_FLAG: (f"a flag 0 or 1 in {what}", f"{detail}"),
        kernels.BAD_COUNT: (f"a number of elements that fits into the rest of {what}", f"{detail}"),
        kernels.BAD_STRING: ("a character of at most 16 bits", "more"),
        kernels.BAD_LENGTH: ("a length that fits", f"{detail}"),
        kernels.BAD_POJO_FLAG: (f"a POJO flag 1, 2, 4 or 8 in {what}", f"{detail}"),
        kernels.UNKNOWN_TAG: (f"the tag of a registered subclass in {what}", f"{detail}"),
        kernels.BAD_ENUM: (f"an ordinal of an enum constant in {what}", f"{detail}"),
        kernels.WRONG_KEY_GROUP: ("the key group's own number before a key", f"{detail}"),
        kernels.SHORT_KEY: ("a key behind the key group", f"a key length of {detail}"),
        kernels.BAD_SUFFIX: (f"the length {detail} behind a key or namespace", "another"),
        kernels.BAD_DELIMITER: ("the delimiter 44 between list elements", f"{detail}"),
        kernels.BAD_ENUM_ID: (f"the number of an enumeration's constant in {what}", f"{detail}"),
        kernels.BAD_BRANCH: (f"the number of a union's branch in {what}", f"{detail}"),
        kernels.HAS_NO_VALUES: (f"no value, because {what} has the type Nothing, which has no values", "one"),
    }[code]
    return DamagedError(expected, found, offset=position)


def _opaque_reason(type_: FlinkType | None) -> str:
    return (
        "; ".join(dict.fromkeys(f"{part.class_name} is {part.reason}" for part in opaque_parts(type_))) if type_ else ""
    )
