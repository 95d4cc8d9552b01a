"""Where keys end, and Java's hash codes of them, also of keys with parts by Kryo.

A key with parts by Kryo is read object by object, as the hash depends on the classes in it; a UUID by Kryo 5 is not.
All other keys are hashed by `flinkstate.hashing.java_hash`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flinkstate.basics.array_types import Bytes, Codes, Positions
from flinkstate.errors import RefusedError
from flinkstate.hashing.java_hash import hash_codes, unstable_reason
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.serializers.type_parts import kept_by_kryo, with_opaque
from flinkstate.serializers.types import FlinkType, KryoType, OpaqueType, Scalar
from flinkstate.serializers.walker import skip_each, skip_runs
from flinkstate.values.codec_parts import Decode
from flinkstate.values.codecs import decoder
from flinkstate.values.hash_codes import class_without_hash, hash_code
from flinkstate.values.kryo_values import known_classes

_SO = ". So the key's place at another max parallelism isn't known: keep the max parallelism"
_UUID = "java.util.UUID"
# Class tag, mark, two numbers.
_UUID_SIZE = 18


def why_no_hash(type_: FlinkType) -> str | None:
    """Returns why the hash of such a key can't be computed, or None if it can; of what is by Kryo each object decides.

    It must be known which Kryo wrote that.
    """
    return unstable_reason(with_opaque(type_, lambda part: Scalar.LONG if _is_readable(part) else part))


def _is_readable(part: OpaqueType) -> bool:
    return isinstance(part, KryoType) and part.five is not None


def key_runs(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> tuple[Positions, Positions]:
    """Returns where keys begin and end, without those that have the same bytes as the one before them."""
    if not kept_by_kryo(type_):
        return skip_runs(type_, data, starts, limits)
    if _are_uuids(type_, data, starts, limits):
        return starts, starts + _UUID_SIZE
    read, content, last = decoder(type_), data.tobytes(), b""
    runs: list[tuple[int, int]] = []
    for start, limit in zip(starts.tolist(), limits.tolist(), strict=True):
        # The bytes of a key say where it ends, so what begins with the same bytes has the same key.
        if not last or not content.startswith(last, start, limit):
            end = _read(read, content, start, limit)[1]
            runs.append((start, end))
            last = content[start:end]
    found = np.array(runs, np.int64).reshape(-1, 2)
    return np.ascontiguousarray(found[:, 0]), np.ascontiguousarray(found[:, 1])


def codes_of_keys(type_: FlinkType, data: Bytes, starts: Positions, ends: Positions) -> Codes:
    """Returns the `hashCode` of each key, whose bytes are `data[start:end]`."""
    if not kept_by_kryo(type_):
        return hash_codes(type_, data, starts, ends)
    if _are_uuids(type_, data, starts, ends) and bool((ends - starts == _UUID_SIZE).all()):
        return _of_uuids(data, starts)
    read, content = decoder(type_), data.tobytes()
    codes = np.empty(len(starts), np.int32)
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        key = _read(read, content, start, end)[0]
        code = hash_code(type_, key)
        if code is None:
            raise RefusedValueError(f"the hash of {class_without_hash(type_, key)} isn't known{_SO}", start)
        codes[row] = code
    return codes


def codes_of_rows(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> Codes:
    """Returns the `hashCode` of each row's key, behind which there may be more; neighbours may have the same key."""
    if not kept_by_kryo(type_):
        return hash_codes(type_, data, starts, skip_each(type_, data, starts, limits))
    firsts, ends = key_runs(type_, data, starts, limits)
    codes = codes_of_keys(type_, data, firsts, ends)
    return np.repeat(codes, np.diff(np.searchsorted(starts, firsts), append=len(starts)))


def _read(read: Decode, data: bytes, start: int, limit: int) -> tuple[Any, int]:
    try:
        return read(data, start, limit)
    except RefusedError as error:
        raise RefusedValueError(f"{error}{_SO}", start) from None


def _are_uuids(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions) -> bool:
    """Whether each key is a UUID by Kryo 5."""
    if not (isinstance(type_, KryoType) and type_.five and type_.class_name == _UUID) or not len(starts):
        return False
    try:
        ids, own = known_classes(type_)
    except RefusedError:
        return False
    number = next(number for number, name in ids.items() if name == _UUID)
    if _UUID in own or not bool((limits - starts >= _UUID_SIZE).all()):
        return False
    return bool(((data[starts] == number + 2) & (data[starts + 1] == 1)).all())


def _of_uuids(data: Bytes, starts: Positions) -> Codes:
    words = data[starts[:, None] + np.arange(2, _UUID_SIZE)].view("<u4")
    codes: Codes = np.ascontiguousarray(np.bitwise_xor.reduce(words, axis=1)).view(np.int32)
    return codes
