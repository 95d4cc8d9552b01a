"""Writes the plain savepoint with other values in its maps: sometimes null, or nested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from flinkstate.keyed.header import VALUE_SERIALIZER, KeyedHeader
from flinkstate.reading.group_sections import GroupSections
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.built_snapshots import composite_snapshot, map_snapshot, simple_snapshot
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import RowType, Scalar
from flinkstate.writing.max_parallelism_change import Destination, GroupedEntries
from flinkstate.writing.operator_rewrite import Layout
from stateferry.demo import DemoState
from tests.support.rewriting import rewrite

Structured = npt.NDArray[np.void]
Flags = npt.NDArray[np.bool_]

_NULL_EVERY = 10
_ROW_CLASS = "org.apache.flink.api.java.typeutils.runtime.RowSerializer$RowSerializerSnapshot"
# The bit in a Row's mask for the second field; before it are two bits of the row's kind and the bit of the first field.
_SECOND_FIELD_NULL = 0b0001_0000


class Values(Enum):
    """The values that replace the plain savepoint's `number`.

    Either it stays, or is null if it ends in 0. Or it becomes a Row of the number, the user key (null if the number
    ends in 0) and an eighth of the number.
    """

    NULLABLE = "Long, one in ten null"
    NESTED = "Row<Long,String,Double>"


def with_other_values(source: Path, state: DemoState, values: Values, target: Path) -> None:
    """Writes the source with other values to `target`."""
    savepoint = Savepoint.open(str(source))
    (operator,) = savepoint.keyed_operators()
    rewrite(savepoint, str(target), Layout(), transforms={operator.id: _OtherValues(state, values)})


@dataclass(frozen=True, slots=True)
class _OtherValues:
    """Changes the values of the legacy state, and leaves out all other states, as in a job without a migration."""

    state: DemoState
    values: Values

    def header(self, merged: KeyedHeader) -> KeyedHeader:
        legacy = merged.states[0]
        described = map_snapshot(simple_snapshot(Scalar.STRING), _snapshot(self.values))
        serializers = tuple(
            (what, described if what == VALUE_SERIALIZER else snapshot) for what, snapshot in legacy.serializers
        )
        return replace(merged, states=(replace(legacy, serializers=serializers),))

    def entries(self, group: GroupSections, destination: Destination) -> Iterator[GroupedEntries]:
        for _, section in group:
            data, last_start = self._rows(section.raw.view(self.state.main_row).copy())
            bounds = np.array([0, len(data)])
            yield GroupedEntries(0, data, np.array([section.key_group]), bounds, np.array([last_start]))

    def _rows(self, plain: Structured) -> tuple[npt.NDArray[np.uint8], int]:
        """The bytes of the rows, and where the last row begins.

        Rows are laid out at their largest size; the bytes that a row doesn't have are then removed.
        """
        maps = plain["value"]["map"]
        entries, there = _nullable(maps) if self.values is Values.NULLABLE else _nested(maps)
        plain["value_length"] = plain["value"]["count"].itemsize + there.sum(axis=(1, 2))
        count, head = len(plain), plain.itemsize - maps[0].nbytes
        heads = plain.view(np.uint8).reshape(count, -1)[:, :head]
        table = np.concatenate((heads, entries.view(np.uint8).reshape(count, -1)), axis=1)
        kept = np.concatenate((np.ones(heads.shape, np.bool_), there.reshape(count, -1)), axis=1)
        data = table[kept]
        return data, len(data) - int(kept[-1].sum())


def _snapshot(values: Values) -> SerializerSnapshot:
    number, text, double = (simple_snapshot(type_) for type_ in (Scalar.LONG, Scalar.STRING, Scalar.DOUBLE))
    if values is Values.NULLABLE:
        return number
    fields = (number, text, double)
    return composite_snapshot(_ROW_CLASS, 3, RowType(tuple(field.type for field in fields), True), fields)


def _nullable(plain: Structured) -> tuple[Structured, Flags]:
    entries = plain.copy()
    entries["is_null"] = entries["value"] % _NULL_EVERY == 0
    return entries, _all_but(entries, entries["is_null"] == 1, "value", "value")


def _nested(plain: Structured) -> tuple[Structured, Flags]:
    key = plain.dtype["user_key"]
    before = [(name, plain.dtype[name]) for name in ("user_key_length", "user_key", "is_null")]
    row = [("mask", "u1"), ("number", ">i8"), ("text_length", "u1"), ("text", key), ("double", ">f8")]
    entries = np.empty(plain.shape, np.dtype([*before, *row]))
    for name, _ in before:
        entries[name] = plain[name]
    is_null = plain["value"] % _NULL_EVERY == 0
    entries["mask"] = np.where(is_null, _SECOND_FIELD_NULL, 0)
    entries["number"], entries["double"] = plain["value"], plain["value"] / 8
    entries["text_length"], entries["text"] = plain["user_key_length"], plain["user_key"]
    return entries, _all_but(entries, is_null, "text_length", "text")


def _all_but(entries: Structured, absent: Flags, first: str, last: str) -> Flags:
    """Which bytes of each entry exist: all, except for the fields `first` to `last` of the absent ones."""
    fields = entries.dtype.fields
    assert fields is not None
    kept = np.ones((*entries.shape, entries.dtype.itemsize), np.bool_)
    kept[..., fields[first][1] : fields[last][1] + fields[last][0].itemsize] = ~absent[..., None]
    return kept
