"""The rows that a state had before an upgrade, as they were and as Kryo 5 writes them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from flinkstate.basics.array_types import Flags, Positions
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import KryoType
from flinkstate.ttl import expired_array
from flinkstate.values.kryo_references import KryoObject
from flinkstate.values.kryo_values import read_kryo_part
from stateferry.changes.upgrade.before_upgrade import StateBefore
from stateferry.changes.upgrade.flat_maps import FlatLosses, flat_losses
from stateferry.changes.upgrade.for_other_kryo import values_by_kryo_5
from stateferry.changes.upgrade.kryo_rows import kryo_part
from stateferry.changes.upgrade.section_rows import value_of

_DELIMITER = b","


@dataclass(slots=True)
class RowsBefore:
    """The rows of one state of one key group before the upgrade: as they were, and as Kryo 5 writes them."""

    before: StateBefore
    raw: Section
    five: Section
    met: Flags = field(init=False)

    def __post_init__(self) -> None:
        self.met = np.zeros(len(self.raw), np.bool_)


def longer_lists(
    state: KeyedState, section: Section, rows: RowsBefore, places: Positions, untouched: Flags
) -> dict[int, bytes]:
    """Returns lists to which the upgraded job has added elements without reading them, as Kryo 5 writes them."""
    found: dict[int, bytes] = {}
    if state.kind is not StateKind.LIST:
        return found
    for row in np.flatnonzero((places >= 0) & ~untouched).tolist():
        place, now = int(places[row]), value_of(section, row)
        old = value_of(rows.raw, place)
        if now.startswith(old + _DELIMITER):
            start = section.value_starts[row : row + 1] + len(old) + 1
            added = replace(section, starts=start - 4, key_ends=start - 4, ends=section.ends[row : row + 1])
            if values_by_kryo_5(added, state).all():
                found[row] = value_of(rows.five, place) + now[len(old) :]
    return found


def has_expired(timestamp: int, before: StateBefore) -> bool:
    assert before.ttl is not None
    return bool(expired_array(np.array([timestamp]), before.ttl, before.now)[0])


def flat_now(rows: RowsBefore, place: int, now: bytes) -> FlatLosses | None:
    """What was lost of a row that is there, if it is a flat map."""
    part = kryo_part(rows.before.state, now)
    return None if part is None else _flat(rows, place, part)


def flat_gone(rows: RowsBefore, place: int) -> FlatLosses | None:
    """What was lost of a row that is gone, if it was a flat map."""
    return _flat(rows, place, None)


def _flat(rows: RowsBefore, place: int, now: bytes | None) -> FlatLosses | None:
    state = rows.before.state
    old, five = (kryo_part(state, value_of(one, place)) for one in (rows.raw, rows.five))
    if rows.before.why_not is not None or old is None or five is None:
        return None
    assert isinstance(state.value, KryoType)
    return flat_losses(state.value, old, five, now)


def part_of_entry(kryo: KryoType, data: bytes) -> KryoObject | None:
    """The key or value of an entry that Kryo 5 wrote."""
    return read_kryo_part(kryo, data, 0, len(data), five=True)[0]
