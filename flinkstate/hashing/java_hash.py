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
| array, deeply | of objects as a list, deeply; of primitives 31 + the hash of a list of them |

Where it isn't hashed deeply, the hash of an array is its identity.

A row is hashed by position. If a job sets a row's fields by name only, the hash in that job is another one. Then the
key's present key group doesn't fit the hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from flinkstate.basics.array_types import Bytes, Codes, Positions, read_only
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.hashing.scalar_hashes import HASHED_SCALARS, RowHashes, SerializedValues, hash_scalars
from flinkstate.serializers.types import (
    FLINK_EITHER,
    ArrayType,
    AvroType,
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
    type_name,
)

_TUPLE_CLASS = "org.apache.flink.api.java.tuple.Tuple"
_ROW_KIND_BITS = 2
# With this size all columns of a block stay in the processor's cache.
_ROWS_PER_BLOCK = 1 << 14


HashRows = Callable[[SerializedValues], RowHashes]


class _UnstableHashError(Exception):
    """The hash doesn't follow from the bytes; the message says why."""


def unstable_reason(type_: FlinkType) -> str | None:
    """Returns why the hash of such a key can't be computed from its bytes, or None if it can."""
    try:
        _hasher(type_, deep=False)
    except _UnstableHashError as unstable:
        return f"{unstable}"
    return None


@lru_cache(maxsize=512)
def _hasher(type_: FlinkType, *, deep: bool) -> HashRows:
    """What hashes the next value of every row and moves the rows' cursors behind it; `deep` as a row does a field."""
    match type_:
        case RowType(fields, has_kind):
            return _shallow(partial(_hash_row, tuple(_hasher(field, deep=True) for field in fields), has_kind), deep)
        case ListType(element):
            return partial(_hash_list, _hasher(element, deep=deep))
        case MapType(key, value):
            return partial(_hash_map, _hasher(key, deep=deep), _hasher(value, deep=deep), int(deep))
        case NullableType(value, padding):
            return partial(_hash_nullable, _hasher(value, deep=deep), padding)
        case PrimitiveArrayType(element) if deep:
            is_of_objects = element is Scalar.STRING
            array = partial(_hash_list, _hasher(element, deep=is_of_objects))
            return array if is_of_objects else _shallow(array, deep)
        case ArrayType(element) if deep:
            return partial(_hash_list, partial(_hash_flagged, _hasher(element, deep=True)))
    return _shallow(_plain_hasher(type_), deep)


def _plain_hasher(type_: FlinkType) -> HashRows:
    """What hashes values of a type into which a row doesn't look."""
    match type_:
        case Scalar():
            if type_ not in HASHED_SCALARS:
                raise _UnstableHashError(f"the hash of a {type_.label} doesn't follow from its bytes")
            return partial(hash_scalars, type_)
        case TupleType(fields, class_name):
            if class_name != f"{_TUPLE_CLASS}{len(fields)}":
                raise _UnstableHashError(f"the hash of {class_name} may be that class's own code")
            return partial(_hash_tuple, tuple(_hasher(field, deep=False) for field in fields))
        case SetType(element):
            return partial(_hash_set, _hasher(element, deep=False))
        case EitherType(left, right, class_name):
            if class_name != FLINK_EITHER:
                raise _UnstableHashError(f"the hash of {class_name} is Scala's own")
            return partial(_hash_either, _hasher(left, deep=False), _hasher(right, deep=False))
        case AvroType():
            reason = f"the hash of {type_name(type_)} is Avro's own or that of a class made by it"
        case OptionType() | TraversableType() | EnumType(_, _, (_, *_)):
            reason = f"the hash of {type_name(type_)} is Scala's own"
        case EnumType():
            reason = f"an enum ({type_.class_name}) hashes by identity, differently in every JVM"
        case ArrayType() | PrimitiveArrayType():
            reason = f"an array ({type_name(type_)}) hashes by identity, differently in every JVM"
        case PojoType():
            reason = f"the hash of {type_.class_name} is that class's own code"
        case OpaqueType():
            reason = (
                f"the hash of {type_.class_name} is that class's own code, and its bytes can't be read: {type_.reason}"
            )
        case TtlType() | TimerType():
            reason = f"a {type_name(type_)} can't be a key"
    raise _UnstableHashError(reason)


def _shallow(plain: HashRows, deep: bool) -> HashRows:
    """What Flink's `RowUtils` doesn't look into: a field of a row counts 31 more than the value by itself."""

    def more(rows: SerializedValues) -> RowHashes:
        hashes = plain(rows)
        return RowHashes(np.where(hashes.present, hashes.codes + np.int32(31), np.int32(0)), hashes.present)

    return more if deep else plain


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
    hash_rows = _hasher(type_, deep=False)
    codes = np.empty(len(starts), dtype=np.int32)
    shared = read_only(data)
    for first in range(0, len(starts), _ROWS_PER_BLOCK):
        block = slice(first, first + _ROWS_PER_BLOCK)
        rows = SerializedValues(shared, starts[block].astype(np.int64), ends[block].astype(np.int64))
        _check_inside(rows)
        hashes = hash_rows(rows)
        _check_finished(type_, rows, hashes)
        codes[block] = hashes.codes
    return codes


def _check_inside(rows: SerializedValues) -> None:
    good = (rows.cursors >= 0) & (rows.cursors <= rows.ends) & (rows.ends <= len(rows.data))
    if not good.all():
        bad = int(np.argmin(good))
        raise DamagedError(
            f"a key within the {len(rows.data)} bytes read", f"one from {rows.cursors[bad]} to {rows.ends[bad]}"
        )


def _check_finished(type_: FlinkType, rows: SerializedValues, hashes: RowHashes) -> None:
    if not np.array_equal(rows.cursors, rows.ends):
        bad = int(np.argmax(rows.cursors != rows.ends))
        cursor, end = int(rows.cursors[bad]), int(rows.ends[bad])
        raise DamagedError(f"the end of a key of type {type_name(type_)}", f"{end - cursor} more bytes", offset=cursor)
    if not hashes.present.all():
        cursor = int(rows.ends[int(np.argmin(hashes.present))])
        raise DamagedError(f"a key of type {type_name(type_)}", "a null, which can't be a key", offset=cursor)


def _hash_tuple(fields: tuple[HashRows, ...], rows: SerializedValues) -> RowHashes:
    codes = np.zeros(len(rows), dtype=np.int32)
    for field in fields:
        codes = codes * np.int32(31) + field(rows).codes
    return _present(codes)


def _hash_row(fields: tuple[HashRows, ...], has_kind: bool, rows: SerializedValues) -> RowHashes:
    kind_bits = _ROW_KIND_BITS if has_kind else 0
    mask = np.empty((len(rows), (kind_bits + len(fields) + 7) // 8), dtype=np.uint8)
    for position in range(mask.shape[1]):
        mask[:, position] = rows.integers(1, "the mask of a row").astype(np.uint8)
    bits = np.unpackbits(mask, axis=1).astype(np.bool_)
    unused = bits[:, kind_bits + len(fields) :]
    rows.check_values(~np.any(unused, axis=1), "the mask of a row without further bits", mask.shape[1])
    codes = np.full(len(rows), 1, dtype=np.int32)
    for position, field in enumerate(fields, start=kind_bits):
        codes = codes * np.int32(31) + _hash_where(field, rows, ~bits[:, position]).codes
    if has_kind:
        # The lower bit of the kind comes first.
        codes += np.int32(31) * (bits[:, 0] + np.int32(2) * bits[:, 1])
    return _present(codes)


def _hash_list(element: HashRows, rows: SerializedValues) -> RowHashes:
    codes = np.full(len(rows), 1, dtype=np.int32)
    for active, part in _rounds(rows, "the size of a list"):
        codes[active] = codes[active] * np.int32(31) + element(part).codes
    return _present(codes)


def _hash_flagged(element: HashRows, rows: SerializedValues) -> RowHashes:
    return _hash_where(element, rows, rows.booleans("whether an element is present"))


def _hash_set(element: HashRows, rows: SerializedValues) -> RowHashes:
    codes = np.zeros(len(rows), dtype=np.int32)
    for active, part in _rounds(rows, "the size of a set"):
        null = part.booleans("the null flag of an element")
        codes[active] += _hash_where(element, part, ~null).codes
    return _present(codes)


def _hash_map(key: HashRows, value: HashRows, start: int, rows: SerializedValues) -> RowHashes:
    codes = np.full(len(rows), start, dtype=np.int32)
    for active, part in _rounds(rows, "the size of a map"):
        keys = key(part)
        null = part.booleans("the null flag of a value")
        codes[active] += keys.codes ^ _hash_where(value, part, ~null).codes
    return _present(codes)


def _hash_nullable(value: HashRows, padding: int, rows: SerializedValues) -> RowHashes:
    null = rows.booleans("the null flag of a value")
    padded = np.flatnonzero(null)
    part = rows.subset(padded)
    part.skip(padding, "the padding of a null")
    rows.resume(padded, part)
    return _hash_where(value, rows, ~null)


def _hash_either(left: HashRows, right: HashRows, rows: SerializedValues) -> RowHashes:
    is_left = rows.booleans("the side of an Either")
    lefts = _hash_where(left, rows, is_left)
    rights = _hash_where(right, rows, ~is_left)
    rows.check_values(lefts.present | rights.present, "a value that isn't null in an Either", 1)
    return _present(lefts.codes + rights.codes)


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


def _hash_where(hash_rows: HashRows, rows: SerializedValues, has_value: NDArray[np.bool_]) -> RowHashes:
    """Hashes the next value of the rows that have one; the others have a null and no bytes."""
    if has_value.all():
        return hash_rows(rows)
    hashes = RowHashes(np.zeros(len(rows), dtype=np.int32), np.zeros(len(rows), dtype=np.bool_))
    active = np.flatnonzero(has_value)
    part = rows.subset(active)
    found = hash_rows(part)
    rows.resume(active, part)
    hashes.codes[active], hashes.present[active] = found.codes, found.present
    return hashes


def _present(codes: Codes) -> RowHashes:
    return RowHashes(codes, np.ones(len(codes), dtype=np.bool_))
