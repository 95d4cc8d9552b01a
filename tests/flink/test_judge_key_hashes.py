"""Flink's own classes judge the hashes, key groups and ranges that the library computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from flinkstate.hashing import key_group_arrays, key_groups
from flinkstate.hashing.java_hash import hash_codes, unstable_reason
from flinkstate.serializers.binary import ByteReader
from flinkstate.serializers.snapshots import SnapshotParser
from flinkstate.serializers.type_parts import with_kryo
from flinkstate.serializers.types import FlinkType
from flinkstate.values.key_hashes import codes_of_keys, key_runs, why_no_hash
from tests.flink.harness import FlinkHarness

pytestmark = [pytest.mark.flink, pytest.mark.timeout(900)]
Flink = Callable[[str], FlinkHarness]

NEW, OLD = "2.3.0", "1.20.0"
MAX_PARALLELISMS = [1, 128, 129, 300, 32768]
MANY, SOME, FEW = 1_000_000, 50_000, 500

JAVA_SCALARS = [
    *("String", "String{0-300}", "Long", "Integer", "Short", "Byte", "Boolean", "Double", "Float", "Character"),
    *("BigInteger", "BigDecimal", "Date", "SqlDate", "SqlTime", "SqlTimestamp"),
    *("Instant", "LocalDate", "LocalTime", "LocalDateTime"),
]
FLINK_VALUES = [
    *("BooleanValue", "ByteValue", "ShortValue", "IntValue", "LongValue", "FloatValue", "DoubleValue", "CharValue"),
    *("StringValue", "NullValue"),
]
COMPOSITES = [
    "Tuple1<String>",
    "Tuple2<String,Long>",
    "Tuple3<Integer,Boolean,Double>",
    "Tuple4<String?,BigDecimal?,LocalDate?,Instant?>",
    "Tuple5<Byte,Short,Float,Character,SqlTime>",
    "Tuple3<Nullable<Long>,PaddedNullable<Long>,Tuple2<Date?,BigInteger?>>",
    "Row<String?,Long?,Row<Integer?,Boolean?>?>",
    "Either<String,Tuple2<Long,Long>>",
    "List<String?>",
    "Row<byte[]?,short[],int[],long[]?,float[],double[],boolean[],char[],String?[],Long?[]?,byte[][],List<long[]>>",
]
# The judge draws maps and sets in the order of their JSON, which takes long.
COLLECTIONS = [
    "Map<String,Long?>",
    "Map<Tuple2<String,Long>,List<String>>",
    "Row<List<Long>?,Either<String,Long>?,Tuple2<String,String>?,Double?,Character?,Short?,Byte?>",
    "Row<Map<String,Long?>?,List<Map<Long,String?>>?,Map<String,List<Row<Long?>>>?>",
]
BY_KRYO = [
    *("UUID", "Tuple2<UUID,Long>", "List<UUID>", "Object<String>", "Object<Double>", "Object<Long>"),
    *("Object<Character>", "Object<BigDecimal>", "Object<SqlTimestamp>", "Object<LocalDateTime>", "Object<Instant>"),
    *("HashMap<String,Long>", "HashSet<Long>", "ArrayList<String>", "LinkedList<Double>", "TreeMap<String,UUID>"),
    *("Object<Tuple2<Double,String>>", "Object<Either<Long,String>>"),
    "Row<ArrayList<String>?,HashMap<String,Long>?,UUID?,HashSet<Long>,List<LinkedList<Double>>>",
]
SETS_OF_FLINK_2 = ["Set<String>", "Tuple2<Set<Long>,String>"]


@dataclass(frozen=True)
class Keys:
    """Keys as Flink serialized them, with what Java says about each."""

    type: FlinkType
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    codes: NDArray[np.int32]
    key_groups: NDArray[np.int32]


def drawn_keys(flink: FlinkHarness, type_: str, count: int, path: Path) -> Keys:
    flink.ask("keys", type=type_, count=count, seed=count, max_parallelisms=MAX_PARALLELISMS, target=str(path))
    data = np.fromfile(path, dtype=np.uint8)
    path.unlink()
    header = ByteReader(data[: 1 << 16].tobytes(), type_)
    snapshot = header.take(header.i32("length"), "the serializer's snapshot")
    parsed, end = SnapshotParser(snapshot, type_).read(0)
    assert end == len(snapshot)
    assert header.i32("number of keys") == count
    assert [header.i32("max parallelism") for _ in range(header.i32("number"))] == MAX_PARALLELISMS
    starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    facts = np.empty((1 + len(MAX_PARALLELISMS), count), np.int32)
    assert split_records(data, header.position, starts, ends, facts) == len(data)
    return Keys(parsed.type, data, starts, ends, facts[0], facts[1:])


@numba.njit(nogil=True)
def split_records(
    data: NDArray[np.uint8],
    position: int,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    facts: NDArray[np.int32],
) -> int:
    """Each record: i32 length, so many bytes, one i32 for each row of `facts`."""
    word = np.empty(len(facts) + 1, dtype=np.uint32)
    for row in range(len(starts)):
        for column in range(len(word)):
            word[column] = 0
            for byte in data[position : position + 4]:
                word[column] = word[column] << np.uint32(8) | np.uint32(byte)
            position += 4
            if column == 0:
                starts[row] = position
                position = int(position + np.int64(word[0]))
                ends[row] = position
            else:
                facts[column - 1, row] = np.int32(word[column])
    return position


def check_keys(flink: FlinkHarness, type_: str, count: int, scratch: Path) -> None:
    keys = drawn_keys(flink, type_, count, scratch / "keys")
    assert unstable_reason(keys.type) is None
    codes = hash_codes(keys.type, keys.data, keys.starts, keys.ends)
    np.testing.assert_array_equal(codes, keys.codes)
    for max_parallelism, expected in zip(MAX_PARALLELISMS, keys.key_groups, strict=True):
        np.testing.assert_array_equal(key_group_arrays.assign_to_key_groups(codes, max_parallelism), expected)


@pytest.mark.matrix(most=15)
@pytest.mark.parametrize("count", [SOME, pytest.param(MANY, marks=pytest.mark.full)])
@pytest.mark.parametrize("type_", [*JAVA_SCALARS, *FLINK_VALUES, *COMPOSITES])
def test_keys_hash_as_in_java(flink: Flink, type_: str, count: int, tmp_path: Path) -> None:
    check_keys(flink(NEW), type_, count, tmp_path)


@pytest.mark.parametrize("version", [NEW, OLD])
@pytest.mark.parametrize("type_", BY_KRYO)
def test_objects_by_kryo_hash_as_in_java(flink: Flink, type_: str, version: str, tmp_path: Path) -> None:
    keys = drawn_keys(flink(version), type_, FEW, tmp_path / "keys")
    assert unstable_reason(keys.type)
    known = with_kryo(keys.type, lambda kryo: replace(kryo, five=version == NEW))
    assert why_no_hash(known) is None
    np.testing.assert_array_equal(codes_of_keys(known, keys.data, keys.starts, keys.ends), keys.codes)
    assert np.isin(key_runs(known, keys.data, keys.starts, keys.ends + 4)[1], keys.ends).all()


@pytest.mark.parametrize("type_", [*COLLECTIONS, *SETS_OF_FLINK_2])
def test_collections_hash_as_in_java(flink: Flink, type_: str, tmp_path: Path) -> None:
    check_keys(flink(NEW), type_, SOME, tmp_path)


@pytest.mark.matrix(most=15)
@pytest.mark.parametrize("type_", [*JAVA_SCALARS, *FLINK_VALUES, *COMPOSITES, *COLLECTIONS])
def test_keys_of_flink_1_hash_as_in_java(flink: Flink, type_: str, tmp_path: Path) -> None:
    check_keys(flink(OLD), type_, SOME, tmp_path)


def test_wide_tuples_hash_as_in_java(flink: Flink, tmp_path: Path) -> None:
    scalars = [*JAVA_SCALARS, *FLINK_VALUES[:-1]]
    for arity in range(6, 26):
        fields = ",".join(scalars[(arity * 7 + field) % len(scalars)] for field in range(arity))
        check_keys(flink(NEW), f"Tuple{arity}<{fields}>", SOME // 5, tmp_path)


def test_every_layout_of_a_sweep_has_flinks_ranges_and_owners(flink: Flink, tmp_path: Path) -> None:
    pairs = [(parallelism, most) for most in range(1, 161) for parallelism in range(1, most + 1)]
    for most in (255, 256, 257, 300, 1000, 4096, 32767, 32768):
        pairs += [(parallelism, most) for parallelism in (1, 2, 3, 5, 7, 100, most // 2, most // 2 + 1, most - 1, most)]
    target = tmp_path / "ranges"
    flink(NEW).ask("key_group_ranges", pairs=pairs, target=str(target))
    answers = np.fromfile(target, dtype=">i4").astype(np.int32)
    position = 0
    for parallelism, most in pairs:
        assert answers[position : position + 2].tolist() == [parallelism, most]
        owners = position + 2 + 2 * parallelism
        owned = [[part.start, part.end] for part in key_groups.ranges(most, parallelism)]
        assert owned == answers[position + 2 : owners].reshape(-1, 2).tolist()
        position = owners + most
        found = [owner for owner, (start, end) in enumerate(owned) for _ in range(start, end + 1)]
        assert found == answers[owners:position].tolist()
    assert position == len(answers)


def test_default_max_parallelism_of_every_parallelism(flink: Flink, tmp_path: Path) -> None:
    target = tmp_path / "defaults"
    flink(NEW).ask("default_max_parallelisms", target=str(target))
    every = range(1, key_groups.UPPER_BOUND_MAX_PARALLELISM + 1)
    expected = np.fromfile(target, dtype=">i4").tolist()
    assert [key_groups.default_max_parallelism(parallelism) for parallelism in every] == expected
