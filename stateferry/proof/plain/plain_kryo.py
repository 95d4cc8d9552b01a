"""Reads a sample of a state whose values are written for another Flink, by plain code: each by the Kryo that wrote it.

Each value is decoded object by object (`flinkstate.values.kryo_reader`), which shares nothing with the compiled walk.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.type_parts import kept_by_kryo
from flinkstate.serializers.types import FlinkType, TimerType
from flinkstate.ttl import StateTtlConfig
from flinkstate.values.codecs import decode_whole, decoder
from flinkstate.values.java_values import PojoValue, TtlValue
from flinkstate.values.kryo_references import KryoObject
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import PlannedTtl
from stateferry.proof.expected.sampling import Row
from stateferry.proof.plain.plain_losses import PlainLosses, before_the_upgrade, in_no_order, stored_object
from stateferry.proof.plain.plain_maps import by_one_kryo
from stateferry.proof.plain.plain_reader import group_of_key
from stateferry.proof.plain.plain_state import KeyAccount, Line, PlainKey, PlainStateReader

_DELIMITER = b","
_LATEST = 2**63 - 1


class PlainKryoReader:
    """Says what the rows of a state hold in the source (`expected`), and in the staged savepoint (`found`)."""

    def __init__(
        self,
        state: KeyedState,
        planned: PlannedTtl | None,
        conversion: OperatorChanges,
        left_out: str | None = None,
    ) -> None:
        """`planned` says what has expired and is left out; `left_out` is the field that becomes null."""
        self._state, self._planned, self._conversion = state, planned, conversion
        self._left_out = left_out
        before = conversion.before
        self._before = None if before is None else before.states.get(state.name)
        self._losses: PlainLosses | None = None

    @cached_property
    def _keys(self) -> dict[bool, PlainStateReader]:
        """Reads keys by Kryo 5, and by Kryo 2."""
        state = self._state
        return {five: PlainStateReader(replace(state, key=by_one_kryo(state.key, five))) for five in (False, True)}

    def expected(self, rows: list[Row]) -> KeyAccount:
        """What the rows of the source must become."""
        upgrade = self._conversion.before
        if upgrade is None or self._before is None:
            return KeyAccount.of_rows(rows, self._of_source)
        tag = before_the_upgrade(self._state.name)
        old = [row for row in rows if row.state == tag]
        values = {row.key: row.value for row in old}
        self._losses = PlainLosses(self._before, values, upgrade.restores, upgrade.restores_keys)
        there = [row for row in rows if row.state != tag]
        keys = {row.key for row in there}
        gone = [row._replace(state=self._state.name) for row in old if row.key not in keys]
        return KeyAccount.of_rows(
            [*there, *gone], lambda row: self._of_gone(row) if row in gone else self._of_source(row)
        )

    def _of_gone(self, row: Row) -> Iterable[Line]:
        """The line of a row that is put back, if it is."""
        assert self._losses is not None
        if (value := self._losses.of_gone(row.key)) is not None:
            yield self._line(row, self._keys[False].key(row), False, (value,), is_source=True)

    def found(self, rows: list[Row]) -> KeyAccount:
        """What the rows of the staged savepoint hold."""
        return KeyAccount.of_rows(rows, lambda row: self._lines(row, five=self._for_five, is_source=False))

    def _of_source(self, row: Row) -> Iterable[Line]:
        """Reads a row of the source by the Kryo that wrote it."""
        if self._losses is not None:
            return self._lines(row, five=not self._losses.is_untouched(row.key, row.value), is_source=True)
        upgrade = self._conversion.before
        if upgrade is not None and upgrade.is_newer(self._state):
            return self._lines(row, five=True, is_source=True)
        if not self._mixed:
            return self._lines(row, five=not self._for_five, is_source=True)
        found: list[list[Line]] = []
        failed: list[DamagedError | RefusedError] = []
        for five in (False, True):
            try:
                found.append(list(self._lines(row, five=five, is_source=True)))
            except (DamagedError, RefusedError) as error:
                failed.append(error)
        if not found:
            raise failed[0]
        if found[0] != found[-1]:
            raise RefusedError("Kryo 2 and Kryo 5 could both have written this row, and mean different values")
        return found[0]

    @cached_property
    def _mixed(self) -> bool:
        parts = (self._state.key, self._state.namespace, self._state.user_key, self._state.value)
        return any(one.five is None for part in parts if part is not None for one in kept_by_kryo(part))

    @property
    def _for_five(self) -> bool:
        return self._state.for_kryo_5

    def _lines(self, row: Row, *, five: bool, is_source: bool) -> Iterator[Line]:
        if self._state.kind is StateKind.TIMERS:
            found = decode_whole(by_one_kryo(TimerType(self._state.key, self._state.namespace), five), row.key)
            timer, group = _text(found), self._group(row, found.key, is_source=is_source)
            yield (row.state, group, timer, "", 0, "a timer", None, zlib.crc32(timer.encode()))
            return
        key = self._keys[five].key(row)
        stored = row.key[len(key.raw) :]
        if stored and self._state.user_key is None:
            raise DamagedError("the end of a key with its namespace", f"{len(stored)} more bytes")
        value: Any = ()
        if is_source and self._losses is not None:
            value = self._of_upgraded(self._losses, row, five)
        elif self._state.value is not None:
            value = self._value(row.value, five=five, is_source=is_source)
        if value is None:
            return
        if is_source and self._left_out is not None:
            value = tuple(_without(one, self._left_out) for one in value)
        yield self._line(row, key, five, value, is_source=is_source)

    def _line(self, row: Row, key: PlainKey, five: bool, value: Any, *, is_source: bool) -> Line:
        stored = row.key[len(key.raw) :]
        user_key = self._state.user_key
        said = "" if user_key is None else _text(decode_whole(by_one_kryo(user_key, five), stored))
        group = self._group(row, key.value, is_source=is_source)
        text = _text(value if self._before is None else in_no_order(value))
        return (row.state, group, key.text, said, 0, text, None, zlib.crc32(repr(key.value).encode()))

    def _group(self, row: Row, key: Any, *, is_source: bool) -> int:
        """The key group that the row must be in."""
        if is_source and (self._conversion.changes_key_groups or not kept_by_kryo(self._state.key)):
            return group_of_key(by_one_kryo(self._state.key, True), key, row.key_group, self._conversion)
        return row.key_group

    def _of_upgraded(self, losses: PlainLosses, row: Row, five: bool) -> Any:
        """What a row of an upgraded job is with what was lost of it."""
        if self._state.kind is not StateKind.LIST:
            value = self._value(row.value, five=five, is_source=True)
            return None if value is None else (losses.restored(row.key, row.value, value[0]),)
        before, added = losses.parts_of_list(row.key, row.value)
        old = [] if before is None else self._value(before, five=False, is_source=True) or []
        return [*old, *(self._value(added, five=True, is_source=True) or [])] or None

    def _value(self, data: bytes, *, five: bool, is_source: bool) -> Any:
        """What a stored value is; None if nothing of it is alive."""
        stored = self._state.stored_value
        assert stored is not None
        type_ = by_one_kryo(stored, five)
        if self._state.kind is StateKind.LIST:
            found = [value for value in _elements(type_, data) if not is_source or self._lives(value)]
            return found or None
        value = stored_object(self._state.kind, type_, data)
        return (value,) if not is_source or value is None or self._lives(value) else None

    def _lives(self, value: Any) -> bool:
        if self._planned is None or not self._planned.drops:
            return True
        config: StateTtlConfig = self._planned.config
        return bool(min(value.timestamp + config.time_to_live, _LATEST) > self._planned.now)


def _without(value: Any, field: str) -> Any:
    """Returns an object with null in the field."""
    match value:
        case TtlValue():
            return replace(value, value=_without(value.value, field))
        case KryoObject(_, dict() as fields):
            return replace(value, value=fields | {field: None})
        case PojoValue():
            return replace(value, fields=value.fields | {field: None})
    return value


def _elements(type_: FlinkType, data: bytes) -> Iterator[Any]:
    read, position = decoder(type_), 0
    while position < len(data):
        if position:
            if data[position : position + 1] != _DELIMITER:
                raise DamagedError("the delimiter 2c between elements", data[position : position + 1].hex())
            position += 1
        value, position = read(data, position, len(data))
        yield value


def _text(value: Any) -> str:
    """All objects in a value with their classes, as a short text."""
    shown = repr(value).encode("utf-8", "backslashreplace")
    return f"objects with the digest {blake2b(shown, digest_size=8).hexdigest()}"
