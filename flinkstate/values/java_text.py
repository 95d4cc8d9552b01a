"""The text of dates, times and exact numbers, as the `toString` of their Java classes gives it."""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal

from flinkstate.values.java_values import Instant, LocalDate, LocalDateTime, LocalTime, SqlTimestamp

# Integers of up to so many bits are printed by Python itself.
_SHORT_BITS = 4096
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_SECONDS_PER_DAY = 86_400
_DAYS_PER_ERA = 146_097  # 400 years
_DAYS_FROM_YEAR_0_TO_1970 = 719_468  # the year 0 of a calendar whose years begin in March


def integer_text(number: int) -> str:
    """Returns the text of `BigInteger.toString()`, in nearly linear time; Python refuses to print long integers."""
    return str(number) if number.bit_length() <= _SHORT_BITS else str(_decimal(number, {}))


def big_decimal_text(unscaled: int, scale: int) -> str:
    """Returns the text of `BigDecimal.toString()`; Python's `Decimal` has the same text."""
    return str(Decimal(f"{integer_text(unscaled)}E{-scale}"))


def _decimal(number: int, powers: dict[int, Decimal]) -> Decimal:
    """Converts the number exactly. Decimals multiply in nearly linear time; integers don't."""
    bits = number.bit_length()
    if bits <= _SHORT_BITS:
        return Decimal(number)
    half = _SHORT_BITS
    while half * 2 < bits:
        half *= 2
    high, low = number >> half, number & (1 << half) - 1
    return _EXACT.fma(_decimal(high, powers), _power_of_two(half, powers), _decimal(low, powers))


def _power_of_two(exponent: int, powers: dict[int, Decimal]) -> Decimal:
    """Returns a power of two whose exponent is `_SHORT_BITS` doubled some times; each is the square of the last."""
    if exponent not in powers:
        short = exponent == _SHORT_BITS
        root = Decimal(2) if short else _power_of_two(exponent // 2, powers)
        powers[exponent] = _EXACT.power(root, exponent) if short else _EXACT.multiply(root, root)
    return powers[exponent]


def local_date_text(date: LocalDate) -> str:
    """Returns the text of `LocalDate.toString()`."""
    sign = "-" if date.year < 0 else "+" if date.year > 9999 else ""
    return f"{sign}{abs(date.year):04d}-{date.month:02d}-{date.day:02d}"


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
    days, second = divmod(epoch_seconds, _SECONDS_PER_DAY)
    minutes, second = divmod(second, 60)
    hour, minute = divmod(minutes, 60)
    return f"{local_date_text(_date_of_epoch_day(days))}T{hour:02d}:{minute:02d}:{second:02d}"


def _date_of_epoch_day(epoch_day: int) -> LocalDate:
    era, day_of_era = divmod(epoch_day + _DAYS_FROM_YEAR_0_TO_1970, _DAYS_PER_ERA)
    # These corrections keep the last day of 4, 100 and 400 years in its year.
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return LocalDate(era * 400 + year_of_era + (month <= 2), month, day)
