"""The text of dates, times and exact numbers, as the `toString` of their Java classes gives it."""

from __future__ import annotations

from decimal import Decimal

from stateferry.values.java_values import BigDecimal, Instant, LocalDate, LocalDateTime, LocalTime, SqlTimestamp

_SECONDS_PER_DAY = 86_400
_DAYS_PER_ERA = 146_097  # 400 years
_DAYS_FROM_YEAR_0_TO_1970 = 719_468  # the year 0 of a calendar whose years begin in March


def integer_text(value: int) -> str:
    """Returns all digits; Python's own `str` refuses long integers."""
    return format(Decimal(value), "f")


def big_decimal_text(value: BigDecimal) -> str:
    """Returns the text of `BigDecimal.toString()`."""
    digits = integer_text(abs(value.unscaled))
    sign = "-" if value.unscaled < 0 else ""
    if value.scale == 0:
        return sign + digits
    exponent = len(digits) - 1 - value.scale
    if value.scale > 0 and exponent >= -6:
        padded = digits.rjust(value.scale + 1, "0")
        return f"{sign}{padded[: -value.scale]}.{padded[-value.scale :]}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    power = f"E{exponent:+d}" if exponent else ""
    return f"{sign}{digits[0]}{fraction}{power}"


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
