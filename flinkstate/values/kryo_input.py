"""Reads the numbers, texts and dates in a value that Kryo 2 (Flink 1.x) or Kryo 5 (Flink 2.x) wrote.

All varints have 7 bits a byte, the lowest first, in no more bytes than they need; zigzag puts the sign into bit 0.

| class | bytes |
|---|---|
| String | 2 to 63 ASCII characters (Kryo 5: 32, or a class's name): the bytes, the last with bit 7 set. Else: varint
  length + 1 with bit 7 of its first byte set and 6 bits in it, then each UTF-16 unit as UTF-8 |
| Integer, Long | zigzag varint; a long's ninth byte has 8 bits |
| Short, Character, Float, Double | big endian, of Kryo 5 little endian |
| UUID | Kryo 2: two zigzag longs. Kryo 5: two i64, little endian |
| BigInteger | varint n + 1, n bytes; BigDecimal: behind it the scale, zigzag |
| Date, java.sql.Date, java.sql.Time | varint milliseconds |
| java.sql.Timestamp | varint milliseconds (Kryo 5: of the whole second), varint nanoseconds |
| LocalDate | Kryo 2: i16 day, i16 month, zigzag year. Kryo 5: varint year, i8 month, i8 day |
| LocalTime | Kryo 2: i8 hour, i8 minute, zigzag nanoseconds, i8 second. Kryo 5: i8 hour, minute, second, varint
  nanoseconds, without the zeros at the end; the last byte before them is inverted |
| Instant | Kryo 2: zigzag nanoseconds, zigzag seconds. Kryo 5: varint seconds, varint nanoseconds |

This shares no code with the compiled reading in `flinkstate/kryo/`, and is there to be held against it.
"""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from flinkstate.errors import DamagedError
from flinkstate.values.java_values import BigDecimal, Instant, LocalDate, LocalTime, SqlTimestamp

_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_INSTANTS = range(-31_557_014_167_219_200, 31_556_889_864_403_200)  # seconds of Java's Instant.MIN and MAX

_LONGEST_NAME = 65_535


class KryoInput:
    """The bytes of one value, of Kryo 5 or of Kryo 2. Only what that Kryo could have written is read."""

    def __init__(self, five: bool, data: bytes, position: int, limit: int) -> None:
        self.five, self.position = five, position
        self._data, self._limit = data, limit

    @property
    def left(self) -> int:
        """How many bytes there are still."""
        return self._limit - self.position

    def expect(self, number: int, allowed: range, what: str) -> int:
        """Returns the number if it is one of those that are allowed."""
        if number not in allowed:
            raise self.damaged(what, f"{number}")
        return number

    def damaged(self, expected: str, found: str) -> DamagedError:
        return DamagedError(expected, found, offset=self.position)

    def byte(self) -> int:
        return self.take(1)[0]

    def signed_byte(self) -> int:
        return self.byte() - ((self._data[self.position - 1] & 0x80) << 1)

    def take(self, count: int) -> bytes:
        begin = self.position
        if count > self._limit - begin:
            raise self.damaged(f"{count} more bytes of a value that Kryo wrote", f"{self._limit - begin}")
        self.position = begin + count
        return self._data[begin : self.position]

    def unpack(self, layout: str) -> Any:
        parts = struct.Struct(("<" if self.five else ">") + layout)
        return parts.unpack(self.take(parts.size))[0]

    def floating(self, layout: str, nan: int) -> float:
        """Reads a number of which Java writes only one NaN, with these bits."""
        found: float = self.unpack(layout)
        bits = int.from_bytes(
            self._data[self.position - struct.calcsize(layout) : self.position], "little" if self.five else "big"
        )
        if found != found and bits != nan:
            raise self.damaged("the NaN that Java writes", f"{bits:x}")
        return found

    def varint(self, *, most: int = 5, number: int = 0, shift: int = 0) -> int:
        """Reads a number of at most so many bytes; `number` are its lowest `shift` bits."""
        for index in range(most):
            byte = self.byte()
            is_ninth = index == 8
            number |= (byte if is_ninth else byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or is_ninth:
                if byte == 0 and shift > 7:
                    break
                if most == 5 and number >= 1 << 32:
                    break
                return number
        raise self.damaged("a number in no more bytes than it needs", "another")

    def integer(self) -> int:
        return _unzigzag(self.varint())

    def unsigned_long(self) -> int:
        return self.varint(most=9)

    def long(self) -> int:
        return _unzigzag(self.unsigned_long())

    def positive_long(self) -> int:
        """Reads a long whose sign is its highest bit."""
        number = self.unsigned_long()
        return number - (1 << 64) if number >> 63 else number

    def flagged(self) -> tuple[int, bool]:
        """Reads a number whose first byte has a flag in bit 7 and 6 bits."""
        first = self.byte()
        number = first & 0x3F
        if first & 0x40:
            number = self.varint(number=number, shift=6)
            if number >= 1 << 31:
                raise self.damaged("a number of elements", f"{number}")
        return number, first >= 0x80

    def count(self, number: int, least: int = 1) -> int:
        """A number of parts, each of at least so many bytes."""
        if number < 0 or number * least > self._limit - self.position:
            raise self.damaged("a number of parts that fits into the rest of the value", f"{number}")
        return number

    def string(self, *, is_name: bool = False) -> str:
        longest = 32 if self.five else 63
        begin = self.position
        if self.byte() < 0x80:
            most = _LONGEST_NAME if is_name and self.five else longest
            while self.byte() < 0x80 and self.position - begin < most:
                pass
            raw = self._data[begin : self.position]
            if raw[-1] < 0x80:
                raise self.damaged(f"a String of at most {most} characters", "a longer one")
            return bytes(byte & 0x7F for byte in raw).decode("ascii")
        self.position = begin
        length, _ = self.flagged()
        units = [self._unit() for _ in range(self.count(length - 1))]
        if all(unit < 0x80 for unit in units) and (1 < len(units) <= longest or (is_name and self.five)):
            raise self.damaged("the short form of a String", f"{len(units)} characters")
        return struct.pack(f"<{len(units)}H", *units).decode("utf-16-le", "surrogatepass")

    def _unit(self) -> int:
        first = self.byte()
        if first < 0x80:
            return first
        more, least = (1, 0x80) if first >> 5 == 0b110 else (2, 0x800)
        unit = first & (0x1F if more == 1 else 0x0F)
        rest = self.take(more)
        for byte in rest:
            unit = unit << 6 | byte & 0x3F
        if (more == 2 and first >> 4 != 0b1110) or any(byte >> 6 != 0b10 for byte in rest) or unit < least:
            raise self.damaged("a UTF-16 unit as UTF-8", f"{first:02x}{rest.hex()}")
        return unit

    def date(self) -> LocalDate:
        if self.five:
            year, month, day = self.varint(), self.byte(), self.byte()
            year -= (year & 1 << 31) << 1
        else:
            day, month, year = self.unpack("h"), self.unpack("h"), self.integer()
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        self.expect(year, range(-999_999_999, 1_000_000_000), "a year")
        self.expect(month, range(1, 13), "a month")
        self.expect(day, range(1, _DAYS[month - 1] + (month != 2 or leap)), "a day of the month")
        return LocalDate(year, month, day)

    def time(self) -> LocalTime:
        if not self.five:
            hour, minute, nano, second = self.byte(), self.byte(), self.integer(), self.byte()
        else:
            parts: list[int] = []
            while len(parts) < 3 and (not parts or parts[-1] >= 0):
                parts.append(self.signed_byte())
            nano = 0
            if parts[-1] >= 0:
                nano = self.varint()
                self.expect(nano, range(1, 1_000_000_000), "nanoseconds of a LocalTime that it needs")
            else:
                parts[-1] = ~parts[-1]
                if len(parts) > 1:
                    self.expect(parts[-1], range(1, 60), "the last part of a LocalTime that it needs")
            hour, minute, second = [*parts, 0, 0][:3]
        self.expect(hour, range(24), "an hour")
        self.expect(minute, range(60), "a minute")
        self.expect(second, range(60), "a second")
        self.expect(nano, range(1_000_000_000), "nanoseconds of a second")
        return LocalTime(hour, minute, second, nano)

    def instant(self) -> Instant:
        if self.five:
            seconds, nano = self.positive_long(), self.varint()
        else:
            nano, seconds = self.integer(), self.long()
        self.expect(nano, range(1_000_000_000), "nanoseconds of a second")
        return Instant(self.expect(seconds, _INSTANTS, "the seconds of an Instant"), nano)

    def timestamp(self) -> SqlTimestamp:
        millis, nano = self.positive_long(), self.varint()
        self.expect(nano, range(1_000_000_000), "nanoseconds of a second")
        if millis % 1000 != (0 if self.five else nano // 1_000_000):
            raise self.damaged("a Timestamp whose milliseconds are those of its nanoseconds", f"{millis} and {nano}")
        return SqlTimestamp(millis + nano // 1_000_000 if self.five else millis, nano)

    def big_integer(self) -> int:
        raw = self.take(self.count(self.varint() - 1))
        number = int.from_bytes(raw, "big", signed=True)
        if len(raw) != (number if number >= 0 else ~number).bit_length() // 8 + 1:
            raise self.damaged("a BigInteger in no more bytes than it needs", raw[:8].hex())
        return number

    def boolean(self) -> bool:
        return self.expect(self.byte(), range(2), "a Boolean 0 or 1") == 1

    def big_decimal(self) -> BigDecimal:
        return BigDecimal(self.big_integer(), self.integer())

    def uuid(self) -> str:
        high, low = (self.unpack("q") if self.five else self.long() for _ in range(2))
        return str(UUID(bytes=struct.pack(">qq", high, low)))


def _unzigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)
