"""Text becomes the bytes that Flink wrote: every value of the golden savepoints goes to text and back."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RefusedError, UsageError
from flinkstate.keyed.state import StateKind
from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType, ListType, NullableType, RowType, Scalar, TupleType
from flinkstate.values.codecs import encode
from flinkstate.values.value_json import json_text
from flinkstate.values.value_of_text import bytes_of_text

GOLDEN = Path(__file__).parents[1] / "savepoints"
CASES = [
    "composites-2.3-rocksdb",
    "scalars-2.3-rocksdb",
    "scala-1.20-rocksdb",
    "arrays-1.20-hashmap",
    "subclasses-2.3-rocksdb",
]
MOST = 300


def text_of(type_: FlinkType, value: Any) -> str:
    text = json_text(type_)(value)
    return json.loads(text) if text.startswith('"') else text


@pytest.mark.part
@pytest.mark.parametrize("case", CASES)
def test_every_value_comes_back_from_its_text(case: str) -> None:
    savepoint = Savepoint.open(str(GOLDEN / case))
    for operator in savepoint.keyed_operators():
        for state in savepoint.keyed_states(operator):
            if state.kind is not StateKind.VALUE or state.value is None:
                continue
            for _, entry in zip(range(MOST), read_entries(savepoint, operator, state), strict=False):
                if entry.value is not None:
                    check(state.value, entry.value)


def check(type_: FlinkType, value: Any) -> None:
    with suppress(RefusedError):  # Some types have no text.
        assert bytes_of_text(type_, text_of(type_, value)) == encode(type_, value)


def test_types_without_text_are_refused_by_name() -> None:
    with pytest.raises(RefusedError, match="the type Bitmap can't be given as text"):
        bytes_of_text(Scalar.BITMAP, "[]")


@pytest.mark.parametrize(
    ("type_", "text", "bytes_"),
    [
        (Scalar.INTEGER, "-5", "fffffffb"),
        (Scalar.LONG, "5", "0000000000000005"),
        (Scalar.STRING, "ab", "036162"),
        (Scalar.STRING, '"', "0222"),
        (Scalar.STRING, "", "01"),
        (Scalar.BOOLEAN, "true", "01"),
        (Scalar.DOUBLE, "1.5", "3ff8000000000000"),
        (Scalar.DOUBLE, "NaN", "7ff8000000000000"),
        (Scalar.LOCAL_DATE, "2024-02-29", "000007e8021d"),
        (Scalar.INSTANT, "1969-12-31T23:59:59Z", "ffffffffffffffff00000000"),
        (Scalar.INSTANT, "-0001-01-01T00:00:00Z", "fffffff184aa508000000000"),
        (NullableType(Scalar.INTEGER, 0), "7", "0000000007"),
        (ListType(Scalar.INTEGER), "[1]", "0000000100000001"),
        (RowType((Scalar.STRING, Scalar.INTEGER), True), '["a",null]', "100261"),
    ],
)
def test_text_has_these_bytes(type_: FlinkType, text: str, bytes_: str) -> None:
    assert bytes_of_text(type_, text).hex() == bytes_


@pytest.mark.parametrize(
    ("type_", "text", "hint"),
    [
        (Scalar.INTEGER, "5.5", "such as 42"),
        (Scalar.INTEGER, "true", "such as 42"),
        (Scalar.INTEGER, "2147483648", "no value"),
        (Scalar.BOOLEAN, "1", "true or false"),
        (Scalar.CHARACTER, "ab", "one character"),
        (Scalar.LOCAL_DATE, "2023-02-29", "expected a LocalDate"),
        (Scalar.INSTANT, "2023-02-29T00:00:00Z", "calendar"),
        (Scalar.INSTANT, "yesterday", "such as 2024"),
        (Scalar.BIG_DECIMAL, "NaN", "such as 12.50"),
        (ListType(Scalar.INTEGER), "1", "a JSON array"),
        (ListType(Scalar.INTEGER), "[1", "as JSON"),
        (TupleType((Scalar.INTEGER, Scalar.STRING), "Tuple2"), "[1]", "array of 2"),
        (TupleType((Scalar.INTEGER,), "Tuple1"), "[null]", "no value"),
    ],
)
def test_other_text_is_refused_in_one_line(type_: FlinkType, text: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint) as raised:
        bytes_of_text(type_, text)
    assert "\n" not in str(raised.value)
