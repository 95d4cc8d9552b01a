"""The text of dates, times and exact numbers, as the `toString` of their Java classes gives it."""

from __future__ import annotations

from datetime import date
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal

from flinkstate.values.java_values import Instant, LocalDate, LocalDateTime, LocalTime, SqlTimestamp

# Integers of up to so many bits are printed by Python itself.
_SHORT_BITS = 4096
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
SECONDS_PER_DAY = 86_400
# Python's calendar ends in the year 9999, but repeats after 400 years.
YEARS_OF_ERA, DAYS_OF_ERA = 400, 146_097
EPOCH_DAY_1970 = date(1970, 1, 1).toordinal()


def integer_text(number: int) -> str:
    """Returns the text of `BigInteger.toString()`, in nearly linear time; Python refuses to print long integers."""
    return str(number) if number.bit_length() <= _SHORT_BITS else str(_decimal(number))


def big_decimal_text(unscaled: int, scale: int) -> str:
    """Returns the text of `BigDecimal.toString()`; Python's `Decimal` has the same text."""
    return str(Decimal(f"{integer_text(unscaled)}E{-scale}"))


def _decimal(number: int) -> Decimal:
    """Converts the number exactly. Decimals multiply in nearly linear time; integers don't."""
    bits = number.bit_length()
    if bits <= _SHORT_BITS:
        return Decimal(number)
    half = bits // 2
    high, low = number >> half, number & (1 << half) - 1
    return _EXACT.fma(_decimal(high), _EXACT.power(2, half), _decimal(low))


def local_date_text(day: LocalDate) -> str:
    """Returns the text of `LocalDate.toString()`."""
    sign = "-" if day.year < 0 else "+" if day.year > 9999 else ""
    return f"{sign}{abs(day.year):04d}-{day.month:02d}-{day.day:02d}"


def local_time_text(time: LocalTime) -> str:
    """Returns the text of `LocalTime.toString()`."""
    if time.second == 0 and time.nano == 0:
        return f"{time.hour:02d}:{time.minute:02d}"
    return f"{time.hour:02d}:{time.minute:02d}:{time.second:02d}{_fraction(time.nano)}"


def local_date_time_text(value: LocalDateTime) -> str:
    """Returns the text of `LocalDateTime.toString()`."""
    return f"{local_date_text(value.date)}T{local_time_text(value.time)}"


def instant_text(instant: Instant) -> str:
    """Returns the text of `Instant.toString()`."""
    return f"{_utc(instant.seconds)}{_fraction(instant.nano)}Z"


def millis_text(millis: int) -> str:
    """Returns an instant in UTC with milliseconds, because the `toString` of `Date` depends on a time zone."""
    seconds, fraction = divmod(millis, 1000)
    return f"{_utc(seconds)}.{fraction:03d}Z"


def sql_timestamp_text(timestamp: SqlTimestamp) -> str:
    """Returns an instant in UTC, always with nine digits of nanoseconds."""
    return f"{_utc(timestamp.millis // 1000)}.{timestamp.nano:09d}Z"


def _fraction(nano: int) -> str:
    """Returns no digits, three, six or nine, whichever is enough."""
    if nano == 0:
        return ""
    if nano % 1_000_000 == 0:
        return f".{nano // 1_000_000:03d}"
    if nano % 1000 == 0:
        return f".{nano // 1000:06d}"
    return f".{nano:09d}"


def _utc(epoch_seconds: int) -> str:
    days, second = divmod(epoch_seconds, SECONDS_PER_DAY)
    minutes, second = divmod(second, 60)
    hour, minute = divmod(minutes, 60)
    return f"{local_date_text(_date_of_epoch_day(days))}T{hour:02d}:{minute:02d}:{second:02d}"


def _date_of_epoch_day(epoch_day: int) -> LocalDate:
    era, ordinal = divmod(epoch_day + EPOCH_DAY_1970 - 1, DAYS_OF_ERA)
    found = date.fromordinal(ordinal + 1)
    return LocalDate(era * YEARS_OF_ERA + found.year, found.month, found.day)
