"""Reads single values of every type from Flink's bytes, and writes them; `java_values` describes the Python values.

Reading is strict where Flink writes only one form: flags are 0 or 1, unused bits of a mask are 0, a value that a flag
announces is not null. A caller that reads many values of a type asks once for its `decoder`.
"""

from __future__ import annotations

import struct
from functools import lru_cache, partial
from typing import Any

from flinkstate.errors import DamagedError, RefusedError, UsageError
from flinkstate.serializers.binary import ByteReader, ByteWriter
from flinkstate.serializers.types import (
    AvroArrayType,
    AvroFixedType,
    AvroMapType,
    AvroRecordType,
    AvroUnionType,
    CountedType,
    EitherType,
    EnumType,
    FlinkType,
    KryoCollectionType,
    KryoType,
    MapType,
    NullableType,
    OpaqueType,
    OptionType,
    PojoType,
    PrimitiveArrayType,
    RowType,
    Scalar,
    ScalaType,
    SequenceType,
    TimerType,
    TtlType,
    TupleType,
    type_name,
)
from flinkstate.values.avro_codecs import blocks, fixed, record, union
from flinkstate.values.codec_parts import (
    Codec,
    Decode,
    as_list,
    as_pairs,
    by_names,
    byte_array,
    converted,
    counted,
    cut_short,
    flagged,
    present,
    read_flag,
    read_i32,
    read_tag,
    sequence,
)
from flinkstate.values.java_values import (
    EitherValue,
    OptionValue,
    PojoValue,
    RowKind,
    RowValue,
    TimerValue,
    TtlValue,
)
from flinkstate.values.kryo_values import as_collection, read_kryo, read_kryo_part
from flinkstate.values.scala_values import as_made
from flinkstate.values.scalar_codecs import SCALAR_CODECS

_I32 = struct.Struct(">i")
_SIGN_BIT = 1 << 63


def decode(type_: FlinkType, data: bytes, position: int = 0, limit: int | None = None) -> tuple[Any, int]:
    """Returns the value at `position`, and its end, which is at most `limit` (by default the end of `data`)."""
    end = len(data) if limit is None else limit
    if not 0 <= position <= end <= len(data):
        raise UsageError(f"position {position} and limit {end} do not lie within {len(data)} bytes")
    return codec(type_).decode(data, position, end)


def decode_whole(type_: FlinkType, data: bytes) -> Any:
    """Returns the value that fills `data`."""
    value, end = whole_codec(type_).decode(data, 0, len(data))
    if end != len(data):
        raise DamagedError(f"the end of a {type_name(type_)}", f"{len(data) - end} more bytes", offset=end)
    return value


def whole_codec(type_: FlinkType) -> Codec:
    """As `codec`, for values that take up all bytes to the limit. Only there can a value by Kryo be read.

    Inside of another value, what follows could be a part of it or not, depending on the Kryo that wrote it.
    """
    match type_:
        case KryoType(five=None):
            return codec(type_)._replace(
                decode=lambda data, start, limit: (read_kryo(type_, data, start, limit), limit)
            )
        case TtlType(KryoType(five=None) as value):
            return _ttl(sequence((codec(Scalar.LONG), whole_codec(value))))
    return codec(type_)


def encode(type_: FlinkType, value: Any) -> bytes:
    """Returns the bytes of a value."""
    try:
        return codec(type_).encode(value)
    except (struct.error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{str(value)[:100]!r} is no value of the type {type_name(type_)}: {error}") from error


def decoder(type_: FlinkType) -> Decode:
    """Returns `decode` for one type, without the check of the arguments."""
    return codec(type_).decode


@lru_cache(maxsize=512)
def codec(type_: FlinkType) -> Codec:
    """Returns the codec of a type."""
    match type_:
        case Scalar():
            return SCALAR_CODECS[type_]
        case PrimitiveArrayType(Scalar.BYTE):
            return byte_array("a byte[]")
        case CountedType(element):
            item, name = codec(element), f"a {type_name(type_)}"
            if type_.flag is not None:
                item = flagged(item, int(type_.flag == "isNull"), f"{type_.flag} of an element of {name}")
            return counted(item, name)
        case MapType(key, value):
            pairs = sequence((codec(key), flagged(codec(value), 1, "a Map's value isNull")))
            return _map(counted(pairs, f"a {type_name(type_)}"))
        case TupleType():
            return _in_order(type_)
        case RowType(fields, has_kind):
            return _row(tuple(present(codec(field)) for field in fields), has_kind)
        case PojoType():
            return _pojo(type_)
        case NullableType(value, padding):
            return flagged(codec(value), 1, "Nullable isNull", padding)
        case OptionType(value):
            return _option(codec(value))
        case EitherType(left, right):
            return _either(type_, codec(left), codec(right))
        case EnumType():
            return _enum(type_)
        case AvroFixedType(_, size):
            return fixed(size, f"a {type_name(type_)}")
        case AvroArrayType(element):
            return blocks(codec(element), f"a {type_name(type_)}")
        case AvroMapType(value):
            return _map(blocks(sequence((codec(type_.key), codec(value))), f"a {type_name(type_)}"))
        case AvroUnionType(branches):
            return union(type_, tuple(codec(branch.type) for branch in branches))
        case AvroRecordType():
            return record(type_, _in_order(type_))
        case TtlType():
            return _ttl(_in_order(type_))
        case TimerType():
            return converted(_in_order(type_), _timer_of, _parts_of_timer)
        case KryoType(five=bool()):
            return _opaque(type_)._replace(decode=_by_known_kryo(type_))
        case KryoCollectionType():
            return _opaque(type_)._replace(decode=_collection(type_))
        case ScalaType(source=source, made=made):
            return _opaque(type_)._replace(
                decode=converted(codec(source), partial(as_made, source, made), tuple).decode
            )
        case OpaqueType():
            return _opaque(type_)


def _by_known_kryo(type_: KryoType) -> Decode:
    return lambda data, position, limit: read_kryo_part(type_, data, position, limit, five=bool(type_.five))


def _collection(type_: KryoCollectionType) -> Decode:
    def decode(data: bytes, position: int, limit: int) -> tuple[Any, int]:
        found, end = read_kryo_part(type_.kryo, data, position, limit, five=False)
        return as_collection(type_.made, found), end

    return decode


def _in_order(type_: SequenceType) -> Codec:
    return sequence(tuple(codec(part) for _, part in type_.parts))


def _ttl(parts: Codec) -> Codec:
    return converted(parts, lambda parts: TtlValue(*parts), lambda ttl: (ttl.timestamp, ttl.value))


def _map(pairs: Codec) -> Codec:
    """Returns the codec of a list of pairs, which also writes a mapping."""
    return pairs._replace(encode=lambda value: pairs.encode(as_pairs(value)))


def _row(fields: tuple[Codec, ...], has_kind: bool) -> Codec:
    kind_bits = 2 if has_kind else 0
    size = (kind_bits + len(fields) + 7) // 8
    unused = size * 8 - kind_bits - len(fields)

    def decode(data: bytes, position: int, limit: int) -> tuple[RowValue, int]:
        end = position + size
        if end > limit:
            raise cut_short(position, size, limit, "a Row's bit mask")
        mask = int.from_bytes(data[position:end], "big")
        if mask & ((1 << unused) - 1):
            raise DamagedError(
                f"zeros in the last {unused} bits of a Row's bit mask", f"{mask:0{size * 8}b}", offset=position
            )
        # The first bit, the highest of the mask, is the lower bit of the kind.
        kind = RowKind(mask >> size * 8 - 1 | (mask >> size * 8 - 2 & 1) << 1) if has_kind else RowKind.INSERT
        values: list[Any] = []
        for index, field in enumerate(fields):
            if mask >> size * 8 - kind_bits - index - 1 & 1:
                values.append(None)
            else:
                value, end = field.decode(data, end, limit)
                values.append(value)
        return RowValue(tuple(values), kind), end

    def encode(row: RowValue) -> bytes:
        if row.kind is not RowKind.INSERT and not has_kind:
            raise ValueError(f"the row kind {row.kind.name} where none is written")
        mask = (row.kind.value & 1) << 1 | row.kind.value >> 1
        body = b""
        for field, value in zip(fields, as_list(row.fields), strict=True):
            mask = mask << 1 | (value is None)
            body += b"" if value is None else field.encode(value)
        return (mask << unused).to_bytes(size, "big") + body

    return Codec(decode, encode, size)


_NULL, _ITSELF, _OTHER_SUBCLASS, _REGISTERED_SUBCLASS = 1, 2, 4, 8


def _pojo(type_: PojoType) -> Codec:
    names = tuple(field.name for field in type_.fields)
    body = sequence(tuple(flagged(codec(field.type), 1, f"the field {field.name!r} isNull") for field in type_.fields))
    registered = tuple(present(codec(subclass)) for subclass in type_.registered_subclasses)
    others = {name: present(codec(subclass)) for name, subclass in type_.other_subclasses}
    tags = {
        subclass.class_name: tag
        for tag, subclass in enumerate(type_.registered_subclasses)
        if isinstance(subclass, PojoType)
    }

    def decode(data: bytes, position: int, limit: int) -> tuple[PojoValue | None, int]:
        if position >= limit:
            raise cut_short(position, 1, limit, f"the flag of a {type_name(type_)}")
        flag = data[position]
        start = position + 1
        if flag == _NULL:
            return None, start
        if flag == _ITSELF:
            values, end = body.decode(data, start, limit)
            return PojoValue(type_.class_name, dict(zip(names, values, strict=True))), end
        if flag == _OTHER_SUBCLASS:
            reader = ByteReader(data, "", position=start, limit=limit)
            class_name = reader.utf("the name of a subclass")
            if class_name not in others:
                raise RefusedError(
                    f"{class_name}: a subclass of {type_.class_name} that the savepoint doesn't describe"
                )
            return others[class_name].decode(data, reader.position, limit)
        if flag == _REGISTERED_SUBCLASS:
            if start >= limit:
                raise cut_short(start, 1, limit, "the tag of a registered subclass")
            tag = data[start]
            if tag >= len(registered):
                expected = f"the tag of one of {len(registered)} registered subclasses of {type_.class_name}"
                raise DamagedError(expected, f"{tag}", offset=start)
            return registered[tag].decode(data, start + 1, limit)
        raise DamagedError(f"the flag of a {type_name(type_)}: 1, 2, 4 or 8", f"{flag}", offset=position)

    def encode(value: PojoValue | None) -> bytes:
        if value is None:
            return bytes([_NULL])
        if value.class_name == type_.class_name:
            return bytes([_ITSELF]) + body.encode(by_names(value.fields, names))
        if value.class_name in tags:
            tag = tags[value.class_name]
            return bytes([_REGISTERED_SUBCLASS, tag]) + registered[tag].encode(value)
        name = ByteWriter().utf(value.class_name).bytes()
        return bytes([_OTHER_SUBCLASS]) + name + others[value.class_name].encode(value)

    return Codec(decode, encode, 1)


def _option(value: Codec) -> Codec:
    def decode(data: bytes, position: int, limit: int) -> tuple[OptionValue, int]:
        if not read_flag(data, position, limit, "Option isSome"):
            return OptionValue(None, False), position + 1
        found, end = value.decode(data, position + 1, limit)
        return OptionValue(found, True), end

    def encode(option: OptionValue) -> bytes:
        if not option.is_some and option.value is not None:
            raise ValueError("an Option has a value, or is none")
        return b"\1" + value.encode(option.value) if option.is_some else b"\0"

    return Codec(decode, encode, 1)


def _either(type_: EitherType, left: Codec, right: Codec) -> Codec:
    what = f"the side of a {type_name(type_)}"

    def decode(data: bytes, position: int, limit: int) -> tuple[EitherValue, int]:
        is_left = read_tag(data, position, limit, what, type_.right_tag)
        value, end = (left if is_left else right).decode(data, position + 1, limit)
        return EitherValue(value, is_left), end

    def encode(either: EitherValue) -> bytes:
        tag, side = (1, left) if either.is_left else (type_.right_tag, right)
        return bytes([tag]) + side.encode(either.value)

    return Codec(decode, encode, 1 + min(left.least, right.least))


def _enum(type_: EnumType) -> Codec:
    name_of = type_.name_of
    number_of = {name: number for number, name in name_of.items()}
    what = f"the number of a {type_name(type_)}"

    def decode(data: bytes, position: int, limit: int) -> tuple[str, int]:
        number = read_i32(data, position, limit, what)
        if number not in name_of:
            expected = f"the number of one of {len(type_.names)} constants of {type_name(type_)}"
            raise DamagedError(expected, f"{number}", offset=position)
        return name_of[number], position + 4

    return Codec(decode, lambda name: _I32.pack(number_of[name]), 4)


def _timer_of(parts: tuple[int, Any, Any]) -> TimerValue:
    timestamp, key, namespace = parts
    # Flink flips the sign bit, so that timers are sorted like their bytes.
    return TimerValue(timestamp + _SIGN_BIT if timestamp < 0 else timestamp - _SIGN_BIT, key, namespace)


def _parts_of_timer(timer: TimerValue) -> tuple[int, Any, Any]:
    timestamp = timer.timestamp
    return timestamp + _SIGN_BIT if timestamp < 0 else timestamp - _SIGN_BIT, timer.key, timer.namespace


def _opaque(type_: OpaqueType) -> Codec:
    message = f"{type_.class_name} ({type_.reason}): its values can be copied, but not decoded"

    def decode(data: bytes, position: int, limit: int) -> tuple[Any, int]:
        raise RefusedError(message)

    def encode(value: Any) -> bytes:
        raise RefusedError(message)

    return Codec(decode, encode, 0)
