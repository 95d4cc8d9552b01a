"""Measures hashing keys to key groups, and moving a savepoint to another max parallelism."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt

from benchmarks.measuring import Rate, Scale, Subject, expect, timed
from benchmarks.sections import demo, made_up
from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.hashing.java_hash import hash_codes
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType, Scalar, TupleType
from flinkstate.values.codecs import encode
from flinkstate.values.hash_codes import key_group_of
from flinkstate.writing.operator_rewrite import Layout
from tests.support.rewriting import rewrite

MAX_PARALLELISM = 1024
_DISTINCT_KEYS = 20_000

_PAIR = TupleType((Scalar.LONG, Scalar.STRING), "org.apache.flink.api.java.tuple.Tuple2")
KEYS: tuple[tuple[str, FlinkType, Callable[[int], object]], ...] = (
    ("String keys of 15 characters", Scalar.STRING, lambda number: f"customer-{number:06d}"),
    ("Long keys", Scalar.LONG, lambda number: number * 7_919),
    ("Tuple2<Long,String> keys", _PAIR, lambda number: (number, f"item-{number:06d}")),
)


def serialized(type_: FlinkType, values: list[object], count: int) -> tuple[Bytes, Positions, Positions]:
    """The bytes, starts and ends of `count` keys, which repeat the values in turn."""
    keys = [encode(type_, value) for value in values]
    sizes = np.resize([len(key) for key in keys], count)
    ends = np.cumsum(sizes, dtype=np.int64)
    again = -(-count // len(keys))
    return np.frombuffer(b"".join(chain.from_iterable([keys] * again)), np.uint8).copy(), ends - sizes, ends


def key_groups(type_: FlinkType, data: Bytes, starts: Positions, ends: Positions) -> npt.NDArray[np.int32]:
    """The key groups, by the compiled kernels."""
    return assign_to_key_groups(hash_codes(type_, data, starts, ends), MAX_PARALLELISM)


def plain_key_groups(type_: FlinkType, values: list[object]) -> list[int | None]:
    """The key groups, by plain Python."""
    return [key_group_of(type_, value, MAX_PARALLELISM) for value in values]


def measure(scale: Scale) -> Iterator[Rate]:
    """One rate for each type of key, and one for a whole savepoint."""
    for what, type_, value_of in KEYS:
        yield _hash(what, type_, [value_of(number) for number in range(min(scale.twin_entries, _DISTINCT_KEYS))], scale)
    yield _rehash(scale)


def _hash(what: str, type_: FlinkType, values: list[object], scale: Scale) -> Rate:
    keys = serialized(type_, values, scale.entries)
    same = key_groups(type_, *keys)[: len(values)].tolist() == plain_key_groups(type_, values)
    expect(same, True, "(the key groups of plain Python)")
    timing = timed(scale.entries, lambda: len(key_groups(type_, *keys)), scale.rounds)
    twin = timed(len(values), lambda: len(plain_key_groups(type_, values)), 3, first=False)
    return Rate(what, "keys", timing, twin=twin)


def _rehash(scale: Scale) -> Rate:
    """Moves a savepoint with 100 rows for each key to a max parallelism that gives the key group a second byte."""
    state = demo(scale, migrated=1.0)
    source, target = made_up(scale, "rows", state), scale.folder / "larger"

    def work() -> int:
        rewrite(source, str(target), Layout(max_parallelism=MAX_PARALLELISM), exchange_in=scale.folder)
        return state.keys * state.entries

    timing = timed(
        state.keys * state.entries, work, scale.rounds, before=lambda: shutil.rmtree(target, ignore_errors=True)
    )
    (operator,) = Savepoint.open(str(target)).keyed_operators()
    expect(operator.max_parallelism, MAX_PARALLELISM, "key groups")
    return Rate(f"a savepoint of {state.entries} rows a key to max parallelism {MAX_PARALLELISM}", "entries", timing)


SUBJECT = Subject("Hashing keys, and moving to another max parallelism", measure)
