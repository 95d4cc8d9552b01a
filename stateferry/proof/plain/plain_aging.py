"""Reads a sample of a state that isn't migrated and loses what has expired, by plain code.

Timestamps, the rule of expiry and the elements of a list are read one at a time, as `plain_reader` does it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b

from flinkstate.errors import DamagedError
from flinkstate.keyed.state import StateKind
from flinkstate.values.codecs import decoder
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import PlannedTtl
from stateferry.proof.expected.sampling import Row
from stateferry.proof.plain.plain_reader import group_of_key
from stateferry.proof.plain.plain_state import KeyAccount, Line, PlainStateReader, long_at

_LATEST = 2**63 - 1
_DELIMITER = b","


class PlainAgingReader:
    """Works out what the new savepoint must hold of some rows of a state (`expected`), and reads what it holds."""

    def __init__(self, planned: PlannedTtl, conversion: OperatorChanges) -> None:
        self._planned, self._conversion = planned, conversion

    @cached_property
    def _reader(self) -> PlainStateReader:
        """Reads keys; raises an error if their type can't be read."""
        return PlainStateReader(self._planned.state)

    def expected(self, rows: list[Row]) -> KeyAccount:
        """What the rows of the source must become."""
        return KeyAccount.of_rows(rows, self._lines)

    def found(self, rows: list[Row]) -> KeyAccount:
        """What the rows of the staged savepoint hold."""
        return KeyAccount.of_rows(rows, lambda row: [self._line(row, row.key_group, row.value)])

    def _lines(self, row: Row) -> Iterator[Line]:
        value = self._living(row.value)
        if value is not None:
            key = self._reader.key(row)
            yield self._line(
                row, group_of_key(self._planned.state.key, key.value, row.key_group, self._conversion), value
            )

    def _line(self, row: Row, group: int, value: bytes) -> Line:
        key, digest = self._reader.key(row), blake2b(value, digest_size=8).hexdigest()
        user_key = row.key[len(key.raw) :].hex()
        return (row.state, group, key.text, user_key, 0, f"{len(value)} bytes, {digest}", None, zlib.crc32(row.key))

    def _living(self, value: bytes) -> bytes | None:
        """What must remain of a stored value, or None."""
        match self._planned.state.kind:
            case StateKind.LIST:
                living = [element for element in self._elements(value) if self._lives(long_at(element, 0))]
                return _DELIMITER.join(living) if living else None
            case StateKind.MAP:
                return value if self._lives(long_at(value, 1)) else None
            case _:
                return value if self._lives(long_at(value, 0)) else None

    def _elements(self, value: bytes) -> Iterator[bytes]:
        assert self._planned.state.value is not None
        read, position = decoder(self._planned.state.value), 0
        while position < len(value):
            if position:
                if value[position : position + 1] != _DELIMITER:
                    raise DamagedError("the delimiter 2c between elements", value[position : position + 1].hex())
                position += 1
            _, end = read(value, position + 8, len(value))
            yield value[position:end]
            position = end

    def _lives(self, stamp: int) -> bool:
        """Flink's rule: alive if timestamp plus time to live (at most 2^63 - 1) is later than now."""
        return min(stamp + self._planned.config.time_to_live, _LATEST) > self._planned.now
