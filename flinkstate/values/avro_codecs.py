"""Reads and writes values of Flink's Avro serializer. `types.py` has the layouts.

An array is a list, a map a list of pairs, a record a `PojoValue`, a fixed value `bytes`, null None.
"""

from __future__ import annotations

import struct
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.serializers.binary import varint
from flinkstate.serializers.types import AvroRecordType, AvroUnionType, Scalar, type_name
from flinkstate.values.codec_parts import MOST_WITHOUT_BYTES, Codec, as_list, by_names, cut_short, read_count, read_i32
from flinkstate.values.java_values import PojoValue, UnionValue

_I32 = struct.Struct(">i")
_MOST_COUNT = 2**31 - 1


def fixed(size: int, what: str) -> Codec:
    """Returns the codec of a value of `size` bytes."""

    def decode(data: bytes, position: int, limit: int) -> tuple[bytes, int]:
        end = position + size
        if end > limit:
            raise cut_short(position, size, limit, what)
        return data[position:end], end

    def encode(value: bytes) -> bytes:
        if len(value) != size:
            raise ValueError(f"{len(value)} bytes for {size}")
        return bytes(value)

    return Codec(decode, encode, size)


def null() -> Codec:
    """Returns the codec of null, which has no bytes."""
    return Codec(lambda data, position, limit: (None, position), _no_bytes, 0)


def _no_bytes(value: object) -> bytes:
    if value is not None:
        raise ValueError(f"{value!r} is not null")
    return b""


def string() -> Codec:
    """Returns the codec of an Avro string."""

    def decode(data: bytes, position: int, limit: int) -> tuple[str, int]:
        start = position + 4
        end = start + read_count(data, position, limit, "the length of an Avro string", 1)
        try:
            return data[start:end].decode("utf-8"), end
        except UnicodeDecodeError as error:
            found = data[start + error.start : end][:4].hex()
            raise DamagedError("an Avro string in UTF-8", found, offset=start + error.start) from None

    def encode(value: str) -> bytes:
        encoded = value.encode("utf-8")
        return _I32.pack(len(encoded)) + encoded

    return Codec(decode, encode, 4)


def blocks(item: Codec, what: str) -> Codec:
    """Returns the codec of an array or map: blocks of items, each behind its count, until a count of 0."""

    def decode(data: bytes, position: int, limit: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, end = _read_count(data, position, limit, what, item.least)
            if count == 0:
                return items, end
            if item.least == 0 and len(items) + count > MOST_WITHOUT_BYTES:
                raise RefusedError(
                    f"{what} of {len(items) + count} elements that may have no bytes at all: "
                    f"more than {MOST_WITHOUT_BYTES} of them are not read"
                )
            position = end
            for _ in range(count):
                value, position = item.decode(data, position, limit)
                items.append(value)

    def encode(items: Any) -> bytes:
        if len(as_list(items)) == 0:
            return b"\0"
        return varint(len(items)) + b"".join(map(item.encode, items)) + b"\0"

    return Codec(decode, encode, 1)


def _read_count(data: bytes, position: int, limit: int, what: str, least: int) -> tuple[int, int]:
    count, at = 0, position
    for shift in range(0, 35, 7):
        if at >= limit:
            raise cut_short(at, 1, limit, f"a count in {what}")
        byte = data[at]
        count |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            break
    else:
        raise DamagedError(f"a count of at most 5 bytes in {what}", "more", offset=position)
    if count > _MOST_COUNT or count * least > limit - at:
        most = f"at most {(limit - at) // least} fit into the bytes that follow" if least else f"at most {_MOST_COUNT}"
        raise DamagedError(f"a count in {what} ({most})", f"{count}", offset=position)
    return count, at


def union(type_: AvroUnionType, branches: tuple[Codec, ...]) -> Codec:
    """Returns the codec of a union, from those of its branches."""
    name, bare = type_name(type_), type_.nullable is not None
    null_branch = next((index for index, branch in enumerate(type_.branches) if branch.type is Scalar.AVRO_NULL), -1)

    what = f"the branch of a {name}"

    def decode(data: bytes, position: int, limit: int) -> tuple[Any, int]:
        branch = read_i32(data, position, limit, what)
        if not 0 <= branch < len(branches):
            expected = f"the number of one of {len(branches)} branches of {name}"
            raise DamagedError(expected, f"{branch}", offset=position)
        value, end = branches[branch].decode(data, position + 4, limit)
        return value if bare or branch == null_branch else UnionValue(branch, value), end

    def encode(value: Any) -> bytes:
        if value is None:
            branch = null_branch
            if branch < 0:
                raise ValueError("a null in a union without null")
        else:
            branch, value = (1 - null_branch, value) if bare else (value.branch, value.value)
        return _I32.pack(branch) + branches[branch].encode(value)

    return Codec(decode, encode, 4 + min((branch.least for branch in branches), default=0))


def record(type_: AvroRecordType, fields: Codec) -> Codec:
    """Returns the codec of a record, from that of all its fields."""
    names = tuple(field.name for field in type_.fields)

    def decode(data: bytes, position: int, limit: int) -> tuple[PojoValue, int]:
        values, end = fields.decode(data, position, limit)
        return PojoValue(type_.class_name, dict(zip(names, values, strict=True))), end

    def encode(value: PojoValue | None) -> bytes:
        if value is None:
            # Without fields nothing else would look at it.
            raise ValueError("a null for a record")
        return fields.encode(by_names(value.fields, names))

    return Codec(decode, encode, fields.least)
