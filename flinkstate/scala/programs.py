"""Compiles how values of flink-scala become values of Flink's own serializers.

| by flink-scala | bytes | may become | bytes |
|---|---|---|---|
| case class | the fields | tuple | the same |
| | | POJO | `02`, each field behind a bool `isNull`, by their names |
| `Option` | bool `isSome`, value | nullable | bool `isNull`, value |
| | | `String` | an empty one stands for null; so it is written `00` |
| `Either` | bool `isLeft`, value | Flink's `Either` | the same; a value that is null is refused |
| enumeration | i32 number | enum | i32 ordinal |
| `Unit` | a byte | `Void` | the same |
| collection | i32 count, each element behind a bool `isPresent` | list | i32 count, elements |
| | | set | i32 count, each element behind a bool `isNull` |
| of pairs | | map | i32 count, each entry as key, bool `isNull`, value |
| | | nullable ones | `00`, the same with keys and elements nullable |

Where the new serializer has a flag for null, an `Option` needs none of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flinkstate.errors import RefusedError, UsageError
from flinkstate.scala import kernels
from flinkstate.scala.kernels import NOTHING, REFUSED
from flinkstate.serializers.programs import WalkProgram, compile_each
from flinkstate.serializers.type_parts import has_scala, opaque_parts, with_parts
from flinkstate.serializers.types import (
    CaseClassType,
    EitherType,
    EnumType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    OptionType,
    PojoType,
    Scalar,
    ScalaType,
    SetType,
    TraversableType,
    TtlType,
    TupleType,
    type_name,
)
from flinkstate.values.codecs import encode

_NOT_NULL, _NULL = 0, 1
_POJO_ITSELF = 2


@dataclass(frozen=True, slots=True, eq=False)
class ScalaProgram:
    """How values of `type`, in which there are `ScalaType`s, are written; `copied` walks over what is copied."""

    type: FlinkType
    code: npt.NDArray[np.int64]
    registers: int
    copied: WalkProgram


def scala_parts(type_: FlinkType | None) -> tuple[ScalaType, ...]:
    """Returns the parts of a type that are written anew."""
    return () if type_ is None else tuple(one for one in with_parts(type_) if isinstance(one, ScalaType))


class _Compiler:
    def __init__(self) -> None:
        self.code: list[int] = []
        self.registers = 1
        self._copied: dict[FlinkType, list[int]] = {}

    def emit(self, *words: int) -> int:
        at = len(self.code)
        self.code += words
        return at

    def stored(self, type_: FlinkType) -> None:
        """Compiles what is around the parts that are written anew."""
        match type_:
            case ScalaType(source=source, made=made):
                self.value(source, made)
            case TtlType() | TupleType() if scala_parts(type_):
                for _, part in type_.parts:
                    self.stored(part)
            case ListType(element) if scala_parts(type_):
                self._loop(lambda: self.stored(element))
            case MapType(key, value) if scala_parts(type_):
                self._loop(lambda: self._stored_entry(key, value))
            case NullableType(value, 0) if scala_parts(type_):
                at = self.emit(kernels.FLAG, _NOT_NULL, _NULL, _NULL, 0)
                self.stored(value)
                self.code[at + 4] = len(self.code)
            case _ if scala_parts(type_):
                raise RefusedError(f"a value of flink-scala inside of a {type_name(type_)} is not rewritten")
            case _:
                self._copy(type_)

    def _stored_entry(self, key: FlinkType, value: FlinkType) -> None:
        self.stored(key)
        self.stored(NullableType(value, 0))

    def value(self, source: FlinkType, made: FlinkType) -> None:
        """Compiles a value; both types are alike, as `made_of` in the plan's check makes them."""
        match source, made:
            case _ if not has_scala(source) or source in (Scalar.UNIT, Scalar.NOTHING):
                self._copy(source)
            case OptionType(value), Scalar.STRING:
                self._option(value, made, 0, flagged=False)
            case OptionType(value), NullableType(inner, 0):
                self._option(value, inner, _NULL)
            case CaseClassType(fields), TupleType():
                for part, new in zip(fields, made.fields, strict=True):
                    self.value(part, new)
            case CaseClassType(), PojoType():
                self._pojo(source, made)
            case EitherType(), EitherType():
                self._either(source, made)
            case EnumType(), EnumType():
                numbers = [word for ordinal, number in enumerate(source.name_of) for word in (number, ordinal)]
                self.emit(kernels.NUMBER, len(source.names), *numbers)
            case TraversableType(), NullableType(inner, 0):
                self.emit(kernels.PUT, _NOT_NULL)
                self.value(source, inner)
            case TraversableType(element), ListType() | SetType() | MapType():
                self._loop(lambda: self._element(element, made))
            case _:
                raise RefusedError(f"a {type_name(made)} isn't made of a {type_name(source)} of flink-scala")

    def _copy(self, type_: FlinkType, *operation: int) -> None:
        if opaque := opaque_parts(type_):
            raise RefusedError(f"a part of a value of flink-scala is {opaque[0].class_name}, {opaque[0].reason}")
        self._copied.setdefault(type_, []).append(self.emit(*(operation or (kernels.COPY, 0))) + 1)

    def _option(self, value: FlinkType, made: FlinkType, none: int, *, flagged: bool = True) -> None:
        """Compiles an Option as a value with a flag for null before it, or without; `none` is written for None."""
        at = self.emit(kernels.FLAG, none, NOTHING, 0, 0)
        if flagged:
            self._nullable(value, made)
        else:
            self.value(value, made)
        self.code[at + 4] = len(self.code)

    def _nullable(self, source: FlinkType, made: FlinkType) -> None:
        """Compiles a value, with a flag for null before it."""
        null = null_of(made)
        if isinstance(source, OptionType):
            self._option(source.value, made, _NULL)
        elif null is not None and (source is Scalar.UNIT or not has_scala(source)):
            # A null that Flink wrote without a flag.
            self._copy(source, kernels.COPY_OR_NULL, 0, len(null), *null)
        else:
            self.emit(kernels.PUT, _NOT_NULL)
            self.value(source, made)

    def _pojo(self, source: CaseClassType, made: PojoType) -> None:
        count, first = len(made.fields), self.registers
        self.registers += count
        fields = {one.name: one.type for one in made.fields}
        self.emit(kernels.PUT, _POJO_ITSELF)
        for number, (name, part) in enumerate(zip(source.names, source.fields, strict=True)):
            self.emit(kernels.HERE, first + number)
            self._nullable(part, fields[name])
        self.emit(kernels.ORDER, count, first, *map(source.names.index, fields))

    def _either(self, source: EitherType, made: EitherType) -> None:
        at = self.emit(kernels.FLAG, 0, 1, 0, 0)
        self._side(source.left, made.left)
        end = self.emit(kernels.JUMP, 0)
        self.code[at + 4] = len(self.code)
        self._side(source.right, made.right)
        self.code[end + 1] = len(self.code)

    def _side(self, source: FlinkType, made: FlinkType) -> None:
        """Compiles a side of an `Either`: Scala's may be null, Flink's may not."""
        null = None if has_scala(source) else null_of(made)
        if null is None:
            self.value(source, made)
        else:
            self._copy(source, kernels.COPY_UNLESS_NULL, 0, len(null), *null)

    def _loop(self, body: Callable[[], None]) -> None:
        register, self.registers = self.registers, self.registers + 1
        at = self.emit(kernels.LOOP, register, 0)
        body()
        self.emit(kernels.NEXT, register, at + 3)
        self.code[at + 2] = len(self.code)

    def _element(self, element: FlinkType, made: FlinkType) -> None:
        """Compiles an element behind its flag `isPresent`."""
        match made:
            case ListType(NullableType(inner, 0)) | SetType(inner) if not isinstance(element, OptionType):
                at = self.emit(kernels.FLAG, _NULL, NOTHING, 0, 0)
                self._nullable(element, inner)
                self.code[at + 4] = len(self.code)
                return
        at = self.emit(kernels.FLAG, REFUSED, NOTHING, 0, 0)
        match element, made:
            case CaseClassType((key, value)), MapType(NullableType(of_key, 0), of_value):
                self._nullable(key, of_key)
                self._nullable(value, of_value)
            case CaseClassType((key, value)), MapType(of_key, of_value):
                self.value(key, of_key)
                self._nullable(value, of_value)
            case _, ListType(NullableType(inner, 0)) | SetType(inner):
                self._nullable(element, inner)
            case _, ListType(inner):
                self.value(element, inner)
        self.code[at + 4] = len(self.code)

    def finish(self, type_: FlinkType) -> ScalaProgram:
        self.emit(kernels.END)
        copied, places = compile_each(tuple(self._copied))
        for operands, place in zip(self._copied.values(), places, strict=True):
            for operand in operands:
                self.code[operand] = place
        return ScalaProgram(type_, np.array(self.code, np.int64), self.registers, copied)


def null_of(made: FlinkType) -> bytes | None:
    """Returns what a type's own serializer writes of null; None if it can't."""
    try:
        return encode(made, None)
    except (RefusedError, UsageError):
        return None


@lru_cache(maxsize=64)
def compile_scala(type_: FlinkType) -> ScalaProgram:
    """Returns the program that writes a stored value."""
    compiler = _Compiler()
    compiler.stored(type_)
    return compiler.finish(type_)


@lru_cache(maxsize=64)
def compile_scala_list(element: FlinkType) -> ScalaProgram:
    """Returns the program that writes delimited elements."""
    compiler = _Compiler()
    at = compiler.emit(kernels.ELEMENTS, 0)
    compiler.stored(element)
    compiler.emit(kernels.JUMP, at)
    compiler.code[at + 1] = len(compiler.code)
    return compiler.finish(element)
