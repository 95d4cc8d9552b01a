"""Java's `hashCode` of keys, computed from their serialized bytes, a whole column at a time.

The hash of a key is that of the object that Flink would read from the bytes. It determines the key group. It can be
computed if the key's class hashes by content; `unstable_reason` tells for which types it can't.

| type | hash |
|---|---|
| Tuple | 31 * h + field, starting with the first field; a null field counts 0 |
| List | 31 * h + element, starting with 1 |
| Set, Map | sum of the elements' hashes; sum of key xor value |
| Either | that of the value |
| Row | 31 * kind + (31 * h + field, starting with 1), fields hashed deeply |
| deeply | null 0; a list as above, elements hashed deeply; a map's sum starts with 1; all else 31 + its hash |

A row is hashed by position. If a job sets a row's fields by name only, the hash in that job is another one. Then the
key's present key group doesn't fit the hash.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.hashing.kernels import Bytes, Codes, Positions
from flinkstate.hashing.scalar_hashes import HASHED_SCALARS, Hashes, SerializedValues, hash_scalars
from flinkstate.serializers.types import (
    FLINK_EITHER,
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
    children,
    type_name,
)

_TUPLE_CLASS = "org.apache.flink.api.java.tuple.Tuple"
_ROW_KIND_BITS = 2
# With this size all columns of a block stay in the processor's cache.
_ROWS_PER_BLOCK = 1 << 14


def unstable_reason(type_: FlinkType) -> str | None:
    """Returns why the hash of such a key can't be computed from its bytes, or None if it can."""
    match type_:
        case AvroRecordType() | AvroFixedType() | AvroArrayType() | AvroMapType() | AvroUnionType():
            return f"the hash of {type_name(type_)} is Avro's own or that of a class made by it"
        case OptionType() | TraversableType() | EnumType(_, _, (_, *_)):
            return f"the hash of {type_name(type_)} is Scala's own"
        case EitherType(class_name=class_name) if class_name != FLINK_EITHER:
            return f"the hash of {class_name} is Scala's own"
        case EnumType():
            return f"an enum ({type_.class_name}) hashes by identity, differently in every JVM"
        case ArrayType() | PrimitiveArrayType():
            return f"an array ({type_name(type_)}) hashes by identity, differently in every JVM"
        case PojoType():
            return f"the hash of {type_.class_name} is that class's own code"
        case OpaqueType():
            return (
                f"the hash of {type_.class_name} is that class's own code, and its bytes can't be read: {type_.reason}"
            )
        case TupleType(fields, class_name) if class_name != f"{_TUPLE_CLASS}{len(fields)}":
            return f"the hash of {class_name} may be that class's own code"
        case Scalar() if type_ not in HASHED_SCALARS:
            return f"the hash of a {type_.label} doesn't follow from its bytes"
        case TtlType() | TimerType():
            return f"a {type_name(type_)} can't be a key"
    return next((reason for child in children(type_) if (reason := unstable_reason(child))), None)


def hash_codes(type_: FlinkType, data: Bytes, starts: Positions, ends: Positions) -> Codes:
    """Returns the `hashCode` of each key, whose bytes are `data[start:end]`.

    Raises `DamagedError`, with the offset in `data`, if a key's bytes are not exactly one value of the type.
    """
    reason = unstable_reason(type_)
    if reason is not None:
        raise RefusedError(
            f"expected keys whose hash follows from their bytes, found {type_name(type_)}: {reason}; "
            "keep the max parallelism, so that each key keeps its key group"
        )
    if len(starts) != len(ends):
        raise ValueError(f"{len(starts)} starts and {len(ends)} ends")
    codes = np.empty(len(starts), dtype=np.int32)
    shared = _read_only(data)
    for first in range(0, len(starts), _ROWS_PER_BLOCK):
        block = slice(first, first + _ROWS_PER_BLOCK)
        rows = SerializedValues(shared, starts[block].astype(np.int64), ends[block].astype(np.int64))
        _check_inside(rows)
        hashes = _hash(type_, rows)
        _check_finished(type_, rows, hashes)
        codes[block] = hashes.codes
    return codes


def _read_only(data: Bytes) -> Bytes:
    """Returns a read-only view, so that one compiled version of each loop serves memory maps and other arrays."""
    view = np.ascontiguousarray(data).view()
    view.flags.writeable = False
    return view


def _check_inside(rows: SerializedValues) -> None:
    good = (rows.cursors >= 0) & (rows.cursors <= rows.ends) & (rows.ends <= len(rows.data))
    if not good.all():
        bad = int(np.argmin(good))
        raise DamagedError(
            f"a key within the {len(rows.data)} bytes read", f"one from {rows.cursors[bad]} to {rows.ends[bad]}"
        )


def _check_finished(type_: FlinkType, rows: SerializedValues, hashes: Hashes) -> None:
    if not np.array_equal(rows.cursors, rows.ends):
        bad = int(np.argmax(rows.cursors != rows.ends))
        cursor, end = int(rows.cursors[bad]), int(rows.ends[bad])
        raise DamagedError(f"the end of a key of type {type_name(type_)}", f"{end - cursor} more bytes", offset=cursor)
    if not hashes.present.all():
        cursor = int(rows.ends[int(np.argmin(hashes.present))])
        raise DamagedError(f"a key of type {type_name(type_)}", "a null, which can't be a key", offset=cursor)


def _hash(type_: FlinkType, rows: SerializedValues) -> Hashes:
    """Hashes the next value of every row and moves the rows' cursors behind it."""
    match type_:
        case Scalar():
            return hash_scalars(type_, rows)
        case TupleType(fields):
            return _hash_tuple(fields, rows)
        case RowType():
            return _hash_row(type_, rows)
        case ListType(element):
            return _hash_list(element, rows, deep=False)
        case SetType(element):
            return _hash_set(element, rows)
        case MapType(key, value):
            return _hash_map(key, value, rows, deep=False)
        case NullableType():
            return _hash_nullable(type_, rows, deep=False)
        case EitherType():
            return _hash_either(type_, rows)
        case _:
            raise RefusedError(f"no hash is known for {type_name(type_)}")


def _deep_hash(type_: FlinkType, rows: SerializedValues) -> Hashes:
    """Hashes a field of a row. Flink's `RowUtils` looks into lists and maps, and adds 31 to all else but null."""
    match type_:
        case ListType(element):
            return _hash_list(element, rows, deep=True)
        case MapType(key, value):
            return _hash_map(key, value, rows, deep=True)
        case NullableType():
            return _hash_nullable(type_, rows, deep=True)
    hashes = _hash(type_, rows)
    return Hashes(np.where(hashes.present, hashes.codes + np.int32(31), np.int32(0)), hashes.present)


def _hash_tuple(fields: tuple[FlinkType, ...], rows: SerializedValues) -> Hashes:
    codes = np.zeros(len(rows), dtype=np.int32)
    for field in fields:
        codes = codes * np.int32(31) + _hash(field, rows).codes
    return _present(codes)


def _hash_row(type_: RowType, rows: SerializedValues) -> Hashes:
    kind_bits = _ROW_KIND_BITS if type_.has_kind else 0
    mask = np.empty((len(rows), (kind_bits + len(type_.fields) + 7) // 8), dtype=np.uint8)
    for position in range(mask.shape[1]):
        mask[:, position] = rows.integers(1, "the mask of a row").astype(np.uint8)
    bits = np.unpackbits(mask, axis=1).astype(np.bool_)
    unused = bits[:, kind_bits + len(type_.fields) :]
    rows.check_values(~np.any(unused, axis=1), "the mask of a row without further bits", mask.shape[1])
    codes = np.full(len(rows), 1, dtype=np.int32)
    for position, field in enumerate(type_.fields, start=kind_bits):
        codes = codes * np.int32(31) + _hash_where(field, rows, ~bits[:, position], deep=True).codes
    if type_.has_kind:
        # The lower bit of the kind comes first.
        codes += np.int32(31) * (bits[:, 0] + np.int32(2) * bits[:, 1])
    return _present(codes)


def _hash_list(element: FlinkType, rows: SerializedValues, *, deep: bool) -> Hashes:
    codes = np.full(len(rows), 1, dtype=np.int32)
    for active, part in _rounds(rows, "the size of a list"):
        hashes = _deep_hash(element, part) if deep else _hash(element, part)
        codes[active] = codes[active] * np.int32(31) + hashes.codes
    return _present(codes)


def _hash_set(element: FlinkType, rows: SerializedValues) -> Hashes:
    codes = np.zeros(len(rows), dtype=np.int32)
    for active, part in _rounds(rows, "the size of a set"):
        null = part.booleans("the null flag of an element")
        codes[active] += _hash_where(element, part, ~null).codes
    return _present(codes)


def _hash_map(key: FlinkType, value: FlinkType, rows: SerializedValues, *, deep: bool) -> Hashes:
    codes = np.full(len(rows), 1 if deep else 0, dtype=np.int32)
    for active, part in _rounds(rows, "the size of a map"):
        keys = _deep_hash(key, part) if deep else _hash(key, part)
        null = part.booleans("the null flag of a value")
        codes[active] += keys.codes ^ _hash_where(value, part, ~null, deep=deep).codes
    return _present(codes)


def _hash_nullable(type_: NullableType, rows: SerializedValues, *, deep: bool) -> Hashes:
    null = rows.booleans("the null flag of a value")
    padded = np.flatnonzero(null)
    part = rows.subset(padded)
    part.skip(type_.padding, "the padding of a null")
    rows.resume(padded, part)
    return _hash_where(type_.value, rows, ~null, deep=deep)


def _hash_either(type_: EitherType, rows: SerializedValues) -> Hashes:
    is_left = rows.booleans("the side of an Either")
    left = _hash_where(type_.left, rows, is_left)
    right = _hash_where(type_.right, rows, ~is_left)
    rows.check_values(left.present | right.present, "a value that isn't null in an Either", 1)
    return _present(left.codes + right.codes)


def _rounds(rows: SerializedValues, what: str) -> Iterator[tuple[NDArray[np.intp], SerializedValues]]:
    """Reads the size of every row's collection. Yields all rows with a first element, then with a second, and so on."""
    sizes = rows.integers(4, what)
    rows.check_values(
        (sizes >= 0) & (sizes <= rows.ends - rows.cursors), f"{what} that fits into the bytes that follow", 4
    )
    active = np.flatnonzero(sizes)
    element = 0
    while len(active):
        part = rows.subset(active)
        yield active, part
        rows.resume(active, part)
        element += 1
        active = active[sizes[active] > element]


def _hash_where(type_: FlinkType, rows: SerializedValues, chosen: NDArray[np.bool_], *, deep: bool = False) -> Hashes:
    """Hashes the next value of the chosen rows; the other rows have a null and no value."""
    hash_rows = _deep_hash if deep else _hash
    if chosen.all():
        return hash_rows(type_, rows)
    hashes = Hashes(np.zeros(len(rows), dtype=np.int32), np.zeros(len(rows), dtype=np.bool_))
    active = np.flatnonzero(chosen)
    part = rows.subset(active)
    found = hash_rows(type_, part)
    rows.resume(active, part)
    hashes.codes[active], hashes.present[active] = found.codes, found.present
    return hashes


def _present(codes: Codes) -> Hashes:
    return Hashes(codes, np.ones(len(codes), dtype=np.bool_))
