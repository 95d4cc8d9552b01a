"""Java's `hashCode` of values without parts, computed for a block of serialized values at a time.

| type | bytes | hash |
|---|---|---|
| Long, Date | i64 | low word xor high word |
| Double, Float | their bits, all NaN as one | as Long; the bits |
| String | units of 7 bits a byte, length + 1 in front | 31 * h + unit |
| BigInteger | i32 length + 4, two's complement; lengths 0..3 are null, 0, 1, 10 | 31 * h + word, with the sign |
| BigDecimal | BigInteger, i32 scale | 31 * h(unscaled) + scale |
| java.sql.Timestamp | i64 ms, i32 nanoseconds of the second | as Long over the milliseconds |
| LocalDate | i32 year, i8 month, i8 day | year's high bits xor (year << 11) + (month << 6) + day |
| LocalTime | i8 hour, i8 minute, i8 second, i32 nanoseconds | as Long over the nanosecond of the day |
| LocalDateTime | LocalDate, LocalTime | hash of the date xor hash of the time |
| Instant | i64 seconds, i32 nanoseconds | as Long over the seconds, + 51 * nanoseconds |

Flink's `LongValue` and similar classes hash differently from Java's boxes: some add a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flinkstate.basics.array_types import ByteFlags, Bytes, Codes, Positions
from flinkstate.errors import DamagedError
from flinkstate.hashing import kernels as hash_kernels
from flinkstate.serializers.types import Scalar

_SHOWN_BYTES = 16
_NULL_LONG = -(2**63)
_NULL_INT = -(2**31)
_NULL_BYTE = -128
_MOST_NANOS = 999_999_999
_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@dataclass(slots=True)
class SerializedValues:
    """The serialized values of a block: up to where each has been read, and where it ends."""

    data: Bytes
    cursors: Positions
    ends: Positions

    def __len__(self) -> int:
        return len(self.cursors)

    def subset(self, rows: NDArray[np.intp]) -> SerializedValues:
        """Returns some of the rows. The caller hands their progress back by `resume`."""
        return SerializedValues(self.data, self.cursors[rows], self.ends[rows])

    def resume(self, rows: NDArray[np.intp], subset: SerializedValues) -> None:
        """Takes over the progress of a subset."""
        self.cursors[rows] = subset.cursors

    def integers(self, width: int, what: str) -> Positions:
        """Reads the next `width` bytes of every row as a signed number."""
        values = np.empty(len(self), dtype=np.int64)
        self.check(hash_kernels.read_integers(self.data, self.cursors, self.ends, width, values), what)
        return values

    def skip(self, width: int, what: str) -> None:
        good = self.ends - self.cursors >= width
        self.check(-1 if good.all() else int(np.argmin(good)), f"{width} bytes of {what}")
        self.cursors += width

    def booleans(self, what: str) -> NDArray[np.bool_]:
        values = self.integers(1, what)
        self.check_values((values == 0) | (values == 1), f"{what}: 0 or 1", 1)
        is_true: NDArray[np.bool_] = values == 1
        return is_true

    def check(self, bad_row: int, expected: str) -> None:
        """Raises for the row at which a compiled loop stopped; a negative number means that none did."""
        if bad_row < 0:
            return
        cursor, end = int(self.cursors[bad_row]), int(self.ends[bad_row])
        shown = self.data[cursor : min(end, cursor + _SHOWN_BYTES)].tobytes().hex(" ")
        dots = " ..." if end - cursor > _SHOWN_BYTES else ""
        raise DamagedError(expected, f"{end - cursor} bytes until the end: {shown}{dots}", offset=cursor)

    def check_values(self, good: NDArray[np.bool_], expected: str, width: int) -> None:
        """Raises for the first row whose value (the `width` bytes that were just read) isn't valid."""
        if not good.all():
            cursor = int(self.cursors[int(np.argmin(good))]) - width
            raise DamagedError(expected, self.data[cursor : cursor + width].tobytes().hex(" "), offset=cursor)


@dataclass(slots=True)
class RowHashes:
    """The hash of every row. It is 0 for a null value, which has `present` False."""

    codes: Codes
    present: NDArray[np.bool_]


def hash_scalars(scalar: Scalar, rows: SerializedValues) -> RowHashes:
    """Hashes the next value of every row and moves the rows' cursors behind it."""
    return _HASHES[scalar](rows, f"a {scalar.label}")


def _all_present(codes: NDArray[np.int64] | NDArray[np.int32]) -> RowHashes:
    return RowHashes(codes.astype(np.int32, copy=False), np.ones(len(codes), dtype=np.bool_))


def _null_where(null: NDArray[np.bool_], codes: NDArray[np.int64]) -> RowHashes:
    return RowHashes(np.where(null, 0, codes).astype(np.int32), ~null)


def _fold(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns `Long.hashCode`, in the lower 32 bits."""
    return values ^ values >> 32


def _integer(width: int) -> Callable[[SerializedValues, str], RowHashes]:
    return lambda rows, what: _all_present(rows.integers(width, what))


def _character(rows: SerializedValues, what: str) -> RowHashes:
    return _all_present(rows.integers(2, what) & 0xFFFF)


def _boolean(if_true: int, if_false: int) -> Callable[[SerializedValues, str], RowHashes]:
    return lambda rows, what: _all_present(np.where(rows.booleans(what), np.int32(if_true), np.int32(if_false)))


def _long(constant: int = 0) -> Callable[[SerializedValues, str], RowHashes]:
    return lambda rows, what: _all_present(_fold(rows.integers(8, what)) + constant)


def _double(constant: int = 0) -> Callable[[SerializedValues, str], RowHashes]:
    def hash_rows(rows: SerializedValues, what: str) -> RowHashes:
        bits = rows.integers(8, what)
        bits[bits & 0x7FFF_FFFF_FFFF_FFFF > 0x7FF0_0000_0000_0000] = 0x7FF8_0000_0000_0000
        return _all_present(_fold(bits) + constant)

    return hash_rows


def _float(rows: SerializedValues, what: str) -> RowHashes:
    bits = rows.integers(4, what)
    bits[bits & 0x7FFF_FFFF > 0x7F80_0000] = 0x7FC0_0000
    return _all_present(bits)


def _string(null_lengths: int) -> Callable[[SerializedValues, str], RowHashes]:
    def hash_rows(rows: SerializedValues, what: str) -> RowHashes:
        codes, present = _outputs(rows)
        rows.check(hash_kernels.hash_strings(rows.data, rows.cursors, rows.ends, null_lengths, codes, present), what)
        return RowHashes(codes, present.astype(np.bool_))

    return hash_rows


def _big_integer(rows: SerializedValues, what: str) -> RowHashes:
    codes, present = _outputs(rows)
    rows.check(hash_kernels.hash_big_integers(rows.data, rows.cursors, rows.ends, codes, present), what)
    return RowHashes(codes, present.astype(np.bool_))


def _outputs(rows: SerializedValues) -> tuple[Codes, ByteFlags]:
    return np.empty(len(rows), dtype=np.int32), np.empty(len(rows), dtype=np.uint8)


def _big_decimal(rows: SerializedValues, what: str) -> RowHashes:
    unscaled = _big_integer(rows, what)
    with_scale = np.flatnonzero(unscaled.present)
    scaled = rows.subset(with_scale)
    scales = scaled.integers(4, f"the scale of {what}")
    rows.resume(with_scale, scaled)
    unscaled.codes[with_scale] = (unscaled.codes[with_scale].astype(np.int64) * 31 + scales).astype(np.int32)
    return unscaled


def _date(rows: SerializedValues, what: str) -> RowHashes:
    milliseconds = rows.integers(8, what)
    return _null_where(milliseconds == _NULL_LONG, _fold(milliseconds))


def _sql_timestamp(rows: SerializedValues, what: str) -> RowHashes:
    milliseconds = rows.integers(8, what)
    nanos = rows.integers(4, f"the nanoseconds of {what}")
    null = milliseconds == _NULL_LONG
    _check_nanos(rows, nanos, null)
    # Java's `setNanos` replaces the fraction of the milliseconds, so only the nanoseconds count.
    return _null_where(null, _fold(milliseconds // 1000 * 1000 + nanos // 1_000_000))


def _instant(rows: SerializedValues, what: str) -> RowHashes:
    seconds = rows.integers(8, what)
    nanos = rows.integers(4, f"the nanoseconds of {what}")
    null = (seconds == _NULL_LONG) & (nanos == _NULL_INT)
    in_range = (seconds >= -31_557_014_167_219_200) & (seconds <= 31_556_889_864_403_199)
    rows.check_values(null | in_range, f"{what} within the years -1000000000..1000000000", 12)
    _check_nanos(rows, nanos, null)
    return _null_where(null, _fold(seconds) + 51 * nanos)


def _local_date(rows: SerializedValues, what: str) -> RowHashes:
    year = rows.integers(4, what)
    month = rows.integers(1, f"the month of {what}")
    day = rows.integers(1, f"the day of {what}")
    null = year == _NULL_INT
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    days = np.where((month == 2) & leap, 29, _DAYS[np.clip(month, 0, 12)])
    good = (np.abs(year) <= 999_999_999) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= days)
    rows.check_values(null | good, f"{what}: a year, month and day of the calendar", 6)
    return _null_where(null, (year & ~0x7FF) ^ ((year << 11) + (month << 6) + day))


def _local_time(rows: SerializedValues, what: str) -> RowHashes:
    hour, minute, second = (rows.integers(1, f"the {part} of {what}") for part in ("hour", "minute", "second"))
    nanos = rows.integers(4, f"the nanoseconds of {what}")
    null = hour == _NULL_BYTE
    good = (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60) & (second >= 0) & (second < 60)
    rows.check_values(null | good, f"{what}: an hour, minute and second of the day", 7)
    _check_nanos(rows, nanos, null)
    return _null_where(null, _fold(((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nanos))


def _local_date_time(rows: SerializedValues, what: str) -> RowHashes:
    date = _local_date(rows, what)
    time = _local_time(rows, what)
    rows.check_values(date.present == time.present, f"{what}: date and time both null or neither", 13)
    return RowHashes(date.codes ^ time.codes, date.present)


def _check_nanos(rows: SerializedValues, nanos: NDArray[np.int64], null: NDArray[np.bool_]) -> None:
    rows.check_values(null | ((nanos >= 0) & (nanos <= _MOST_NANOS)), f"nanoseconds of 0..{_MOST_NANOS}", 4)


def _void(rows: SerializedValues, what: str) -> RowHashes:
    rows.integers(1, what)
    return RowHashes(np.zeros(len(rows), dtype=np.int32), np.zeros(len(rows), dtype=np.bool_))


def _tuple0(rows: SerializedValues, what: str) -> RowHashes:
    return _all_present(rows.integers(1, what) * 0)


def _null_value(rows: SerializedValues, what: str) -> RowHashes:
    return _all_present(np.full(len(rows), 53, dtype=np.int32))


_HASHES: dict[Scalar, Callable[[SerializedValues, str], RowHashes]] = {
    Scalar.BOOLEAN: _boolean(1231, 1237),
    Scalar.BYTE: _integer(1),
    Scalar.SHORT: _integer(2),
    Scalar.INTEGER: _integer(4),
    Scalar.LONG: _long(),
    Scalar.FLOAT: _float,
    Scalar.DOUBLE: _double(),
    Scalar.CHARACTER: _character,
    Scalar.STRING: _string(1),
    Scalar.BIG_INTEGER: _big_integer,
    Scalar.BIG_DECIMAL: _big_decimal,
    Scalar.DATE: _date,
    Scalar.SQL_DATE: _date,
    Scalar.SQL_TIME: _date,
    Scalar.SQL_TIMESTAMP: _sql_timestamp,
    Scalar.INSTANT: _instant,
    Scalar.LOCAL_DATE: _local_date,
    Scalar.LOCAL_TIME: _local_time,
    Scalar.LOCAL_DATE_TIME: _local_date_time,
    Scalar.VOID: _void,
    Scalar.TUPLE0: _tuple0,
    Scalar.BOOLEAN_VALUE: _boolean(1, 0),
    Scalar.BYTE_VALUE: _integer(1),
    Scalar.SHORT_VALUE: _integer(2),
    Scalar.INT_VALUE: _integer(4),
    Scalar.LONG_VALUE: _long(43),
    Scalar.FLOAT_VALUE: _float,
    Scalar.DOUBLE_VALUE: _double(31),
    Scalar.CHAR_VALUE: _character,
    Scalar.STRING_VALUE: _string(0),
    Scalar.NULL_VALUE: _null_value,
}

HASHED_SCALARS = frozenset(_HASHES)
