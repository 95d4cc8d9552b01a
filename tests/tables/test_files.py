"""What the data files of the tables look like inside: what is kept once, what is never null."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.columns import column_decoder, kernels
from flinkstate.columns.arrays import Column
from flinkstate.errors import RefusedError
from flinkstate.serializers.types import FlinkType, MapType, Scalar, TupleType
from flinkstate.values.codecs import encode
from flinkstate.values.java_values import Instant
from stateferry.tables.rows import UserKeys
from tests.support.legacy_states import LegacyState, UserMap
from tests.support.table_nights import Nights

Spans = tuple[np.ndarray, np.ndarray, np.ndarray]


def laid_out(values: Sequence[bytes]) -> Spans:
    """The values behind each other, and where each begins and ends."""
    ends = np.cumsum([len(value) for value in values], dtype=np.int64)
    starts = ends - np.array([len(value) for value in values], np.int64)
    data = np.frombuffer(b"".join(values) or b"\0", np.uint8)
    return data, starts, ends


@given(st.lists(st.sampled_from([b"", b"a", b"a" * 8, b"b" + b"a" * 7, b"ab" * 9]) | st.binary(max_size=20)))
def test_runs_are_numbered_in_the_order_in_which_different_ones_come(values: list[bytes]) -> None:
    data, starts, ends = laid_out(values)
    different = list(dict.fromkeys(values))
    for room in (len(different), len(different) - 1):
        if room < 0:
            continue
        slots = np.full(1 << (2 * room).bit_length(), -1, np.int32)
        firsts, numbers = np.empty(room, np.int64), np.empty(len(values), np.int32)
        found = kernels.number_runs(data, starts, ends, slots, firsts, numbers)
        if room < len(different):
            assert found == -1
        else:
            assert numbers.tolist() == [different.index(value) for value in values]
            assert firsts.tolist() == [values.index(value) for value in different]


def columns_of(user_keys: UserKeys, type_: FlinkType, values: Sequence[object]) -> dict[str, pa.Array]:
    return user_keys.columns(*laid_out([encode(type_, value) for value in values]))


@pytest.mark.parametrize(
    "values", [["a", "b", "ü"] * 4, ["a", None, "b"] * 4, [None] * 12, [f"{number}" for number in range(12)]]
)
def test_user_keys_are_the_same_in_a_dictionary_and_without(values: list[object]) -> None:
    user_keys = UserKeys(Scalar.STRING)
    repeated = len(set(values)) < len(values)
    # What comes later is kept as what came first.
    for piece in (values, ["a", "b"], [f"other {n}" for n in range(20)]):
        columns = columns_of(user_keys, Scalar.STRING, piece)
        assert [pa.types.is_dictionary(column.type) for column in columns.values()] == [repeated] * 2
        assert columns["user_key"].to_pylist() == piece
        assert columns["user_key_raw"].to_pylist() == [encode(Scalar.STRING, value) for value in piece]


def test_numbers_are_not_worth_a_dictionary() -> None:
    columns = columns_of(UserKeys(Scalar.LONG), Scalar.LONG, [1] * 12)
    assert [column.type for column in columns.values()] == [pa.binary(8), pa.int64()]


_NEVER = 2**63 - 1


@pytest.mark.parametrize(
    ("type_", "good", "others"),
    [
        (Scalar.DATE, 86_400_000, [_NEVER, -_NEVER]),
        (Scalar.INSTANT, Instant(5, 0), [Instant(31_556_889_864_403_199, 999_999_999)]),
        (TupleType((Scalar.STRING, Scalar.DATE), "Tuple2"), ("a", 0), [("b", _NEVER)]),
        (MapType(Scalar.STRING, Scalar.LONG), [("a", 1)], [[("b", 2), (None, 3)]]),
    ],
)
def test_values_that_a_column_can_not_hold_are_null_and_no_others(
    type_: FlinkType, good: object, others: list[object]
) -> None:
    (held,) = columns_of(UserKeys(type_), type_, [good])["user_key"]
    values = [good, *others, good, good, others[0], *[good] * 20, others[-1]]
    columns = columns_of(UserKeys(type_), type_, values)
    assert [value.as_py() for value in columns["user_key"]] == [held.as_py() if one is good else None for one in values]
    assert held.is_valid
    assert columns["user_key_raw"].to_pylist() == [encode(type_, value) for value in values]
    alone = columns_of(UserKeys(type_), type_, others)["user_key"]
    assert (alone.null_count, alone.type) == (len(others), columns["user_key"].type)


def test_many_values_that_do_not_fit_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    type_ = TupleType((Scalar.DATE, Scalar.INSTANT, MapType(Scalar.STRING, Scalar.LONG)), "Tuple3")
    never = Instant(31_556_889_864_403_199, 999_999_999)
    good = (0, Instant(5, 0), [("a", 1)])
    bad = [(_NEVER, Instant(5, 0), []), (0, never, []), (0, Instant(5, 0), [("a", 1), (None, 2)]), (_NEVER, never, [])]
    tries, decode = [], column_decoder.decode

    def counted(*of: Any) -> Column:
        tries.append(of)
        return decode(*of)

    monkeypatch.setattr("stateferry.tables.rows.column_decoder.decode", counted)
    found = columns_of(UserKeys(type_), type_, [good, *bad] * 1000)["user_key"]
    assert found.is_valid().to_pylist() == [True, False, False, False, False] * 1000
    assert len(tries) <= 4


def test_values_that_are_too_long_together_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = [None, pa.py_buffer(np.array([0, 1 << 30], np.int32)), pa.py_buffer(np.zeros(1 << 30, np.uint8))]
    long = pa.Array.from_buffers(pa.string(), 1, buffers)

    def one_at_a_time(_: FlinkType, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Column:
        if len(starts) > 1:
            raise RefusedError("2147483648 elements or bytes in one column")
        return long, ends

    monkeypatch.setattr("stateferry.tables.rows.column_decoder.decode", one_at_a_time)
    assert columns_of(UserKeys(Scalar.STRING), Scalar.STRING, ["a", "b"])["user_key"].to_pylist() == [None, None]


def entry_file(nights: Nights, run: str) -> pq.ParquetFile:
    (chunk,) = nights.steps[run].chunks
    (file,) = Path(chunk.entry_folder.removeprefix("file://")).glob(f"{chunk.file_stem}-*.parquet")
    return pq.ParquetFile(file)


def column(file: pq.ParquetFile, name: str) -> int:
    return int(file.schema_arrow.get_field_index(name))


@pytest.mark.slow
def test_what_all_maps_have_in_common_is_kept_once(tmp_path: Path) -> None:
    nights = Nights(tmp_path, chunks=1)
    same = {f"key-{key}": ({f"user-{entry}": key for entry in range(5)}, 0) for key in range(50)}
    own = {f"key-{key}": ({f"user-{key}-{entry}": key for entry in range(5)}, 0) for key in range(50)}
    for run, blobs, kept in (("same", same, True), ("own", own, False)):
        state = LegacyState(blobs, max_parallelism=2, checkpoint_id=1 + len(nights.steps))
        nights.run(run, state)
        file = entry_file(nights, run)
        for name in ("user_key", "user_key_raw"):
            encodings = file.metadata.row_group(0).column(column(file, name)).encodings
            assert ("RLE_DICTIONARY" in encodings) is kept
        assert nights.current(state, run) == state.migrated(nights.rules(state.write(str(tmp_path / f"{run} again"))))


@pytest.mark.slow
@pytest.mark.parametrize("null", [None, "first", "last"])
def test_nulls_may_come_after_rows_without_any(
    null: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stateferry.tables.chunk._ROWS_IN_GROUP", 1)
    nights = Nights(tmp_path, chunks=1)
    plain = {f"key-{key}": ({f"user-{entry}": key for entry in range(3)}, 0) for key in range(30)}
    in_order = keys_in_order(nights, plain)
    with_null = {None: None, "first": in_order[0], "last": in_order[-1]}[null]
    blobs: dict[str, tuple[UserMap, int]] = dict(plain)
    if with_null:
        blobs[with_null] = {**plain[with_null][0], "null": None}, 0
    state = LegacyState(blobs, checkpoint_id=2)
    done = nights.run("run", state)
    file = entry_file(nights, "run")
    assert file.num_row_groups > 3
    levels = {name: file.schema.column(column(file, name)).max_definition_level for name in ("value", "value_raw")}
    assert levels == dict.fromkeys(levels, 0 if null is None else 1)
    # An attempt that was given up doesn't count.
    assert done.counts.rows_written == sum(len(content) for content, _ in blobs.values())
    assert done.counts.keys_walked == 30
    assert nights.current(state, "run") == state.migrated(nights.rules(state.write(str(tmp_path / "again"))))


def keys_in_order(nights: Nights, blobs: Mapping[str, tuple[UserMap, int]]) -> list[str]:
    """The keys in the order of the rows."""
    nights.run("order", LegacyState(blobs), to_main=False)
    return list(dict.fromkeys(entry_file(nights, "order").read(["key"]).column(0).to_pylist()))


_FULL = """
import resource, signal, sys
import numpy as np, pyarrow as pa
from stateferry.tables.iceberg.files import DataFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
table = pa.table({"number": np.random.default_rng(1).integers(0, 1 << 60, 400_000)})
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
with DataFile(sys.argv[1]) as file:
    file.write(table)
"""


@pytest.mark.matrix(most=2)
@pytest.mark.slow
@pytest.mark.parametrize("room", [100_000, 1_200_000, 2_500_000, 2_900_000])
def test_a_disk_that_is_full_leaves_no_file(tmp_path: Path, room: int) -> None:
    """Whether it is found out while rows are written or when the last of them are."""
    path = tmp_path / "file.parquet"
    command = [sys.executable, "-c", _FULL, str(path), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert not path.exists()
