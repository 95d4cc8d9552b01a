"""Rows of sections: those with the same keys in another section, equal values, other rows in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from flinkstate.basics.array_types import Flags, Positions
from flinkstate.errors import DamagedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.serializers.types import Scalar
from flinkstate.serializers.walker import skip_each
from stateferry.changes.key_hashes import hashed_keys
from stateferry.changes.sections import copied


def value_of(section: Section, row: int) -> bytes:
    return section.data[section.value_starts[row] : section.ends[row]].tobytes()


def expect_no_namespaces(state: KeyedState, section: Section) -> None:
    """Raises for the first row that has another byte than Flink writes for a state without namespaces."""
    if state.namespace is not Scalar.VOID_NAMESPACE:
        return
    with section.locating():
        ends = skip_each(state.key, section.data, section.key_starts + section.file.prefix, section.key_ends)
        is_last = ends + 1 == section.key_ends if state.user_key is None else ends < section.key_ends
        for row in np.flatnonzero(~is_last | (section.data[ends] != 0))[:1].tolist():
            at = int(ends[row])
            found = section.data[at : section.key_ends[row]].tobytes()
            raise DamagedError("a VoidNamespace: 00", found.hex() or "the end", offset=at)


def places_in(section: Section, of: Section) -> Positions:
    """The row of `of` with the same key, for each row; -1 for none."""
    keys, others = (hashed_keys(one.data, one.key_starts + one.file.prefix, one.key_ends) for one in (section, of))
    found: Positions = pc.fill_null(pc.index_in(keys, value_set=others), -1).to_numpy(zero_copy_only=False)
    return found.astype(np.int64)


def equal_rows(one: Section, other: Section) -> Flags:
    """Whether each row has the same value in both."""
    rows = np.arange(len(one))
    return equal_values(one, rows, other, rows)


def equal_values(one: Section, rows: Positions, other: Section, others: Positions) -> Flags:
    if not len(rows):
        return np.zeros(0, np.bool_)
    hashes = [
        np.frombuffer(hashed_keys(of.data, of.value_starts[chosen], of.ends[chosen]).buffers()[1], np.uint64)
        for of, chosen in ((one, rows), (other, others))
    ]
    same: Flags = (hashes[0] == hashes[1]).reshape(-1, 2).all(axis=1)
    return same


def own_copy(section: Section) -> Section:
    """A copy that stays valid."""
    begin = int(section.starts[0])
    return replace(
        section, data=section.raw.copy(), starts=section.starts - begin, key_ends=section.key_ends - begin,
        ends=section.ends - begin,
    )  # fmt: skip


def together(sections: list[Section]) -> Section:
    """One section of several of the same state."""
    if len(sections) == 1:
        return sections[0]
    shifts = np.cumsum([0, *(len(one.data) for one in sections[:-1])])
    starts, key_ends, ends = (
        np.concatenate([getattr(one, name) + shift for one, shift in zip(sections, shifts, strict=True)])
        for name in ("starts", "key_ends", "ends")
    )
    data = np.concatenate([one.data for one in sections])
    return replace(sections[0], data=data, starts=starts, key_ends=key_ends, ends=ends, last=True)


def with_values(section: Section, replaced: Mapping[int, bytes]) -> Section:
    """Returns the section with other values in some rows."""
    rows = np.array(sorted(replaced), np.int64)
    more: list[bytes] = []
    for row in rows.tolist():
        head = section.data[section.starts[row] : section.key_ends[row]].tobytes()
        more += [head, len(replaced[row]).to_bytes(4, "big"), replaced[row]]
    sizes = np.array([len(one) for one in more], np.int64).reshape(-1, 3).sum(axis=1)
    data = np.concatenate((section.data, np.frombuffer(b"".join(more), np.uint8)))
    starts, ends = section.starts.copy(), section.ends.copy()
    ends[rows] = len(section.data) + np.cumsum(sizes)
    starts[rows] = ends[rows] - sizes
    return copied(section, data, starts, ends, section.key_ends - section.starts)


def merged(section: Section, rows: Positions, of: Section, others: Positions) -> Section:
    """Returns the section with other rows in the place of some."""
    if not len(rows):
        return section
    starts, ends, keys = section.starts.copy(), section.ends.copy(), section.key_ends - section.starts
    shift = len(section.data)
    starts[rows], ends[rows] = of.starts[others] + shift, of.ends[others] + shift
    keys[rows] = (of.key_ends - of.starts)[others]
    return copied(section, np.concatenate((section.data, of.data)), starts, ends, keys)


def chosen_rows(section: Section, rows: Positions) -> Section:
    """Returns a section of these rows alone, the last of its state."""
    starts, ends = section.starts[rows], section.ends[rows]
    made = copied(section, section.data, starts, ends, (section.key_ends - section.starts)[rows])
    return replace(made, last=True)
