"""Holds the rows of an upgraded job's savepoint against those from before the upgrade, and puts back what that lost.

Both savepoints have the same max parallelism, so the rows of a key group are read together: all of the old one's, then
the sections of the upgraded one. A row whose bytes are the old ones still is whole. A row that Kryo 5 writes as Kryo 2
does has lost nothing. All others are decoded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.serializers.types import FlinkType, KryoType, Scalar
from flinkstate.values.kryo_misread import misread
from flinkstate.values.kryo_references import KryoObject
from flinkstate.writing.operator_file import OperatorHeader
from stateferry.changes.counts import LossCounts
from stateferry.changes.upgrade.before_upgrade import BeforeUpgrade, StateBefore
from stateferry.changes.upgrade.flat_maps import FlatLosses
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo, all_by_kryo_2, for_other_kryo, values_by_kryo_5
from stateferry.changes.upgrade.kryo_rows import head_of, kryo_part, map_of_value, read_value, timestamp_of
from stateferry.changes.upgrade.lost_entries import (
    Fate,
    Loss,
    agrees,
    is_unread,
    losses,
    losses_of_gone,
    put_back,
    put_back_gone,
)
from stateferry.changes.upgrade.rows_before import (
    RowsBefore,
    flat_gone,
    flat_now,
    has_expired,
    longer_lists,
    part_of_entry,
)
from stateferry.changes.upgrade.section_rows import (
    chosen_rows,
    equal_rows,
    equal_values,
    merged,
    places_in,
    value_of,
    with_values,
)

_Errors = (DamagedError, RefusedError)
_OTHER_SAVEPOINT = (
    "Kryo 5 has not written this value, and the savepoint from before the upgrade (--before) hasn't the same bytes for "
    "it. The job was restored from another savepoint: give that one"
)
_See = Callable[[KeyedState, Section, Section], None]


@dataclass(frozen=True, slots=True)
class RowLosses:
    """What was lost of one row. Its key is without the key group; `why_not` says why nobody can tell."""

    state: str
    key_group: int
    key: bytes
    losses: tuple[Loss, ...]
    timestamp: int | None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class WithLosses:
    """A `Rewrite` that does what another one does, by the rows from before an upgrade, and puts back what that lost."""

    rewrite: ForOtherKryo
    before: BeforeUpgrade

    @property
    def elements(self) -> Mapping[str, FlinkType]:
        return self.rewrite.elements

    @property
    def more_key_groups(self) -> frozenset[int]:
        return self.before.key_groups if self.before.restores_keys else frozenset()

    @property
    def rehashes(self) -> bool:
        return self.rewrite.rehashes

    def element(self, state: str, data: bytes) -> bytes:
        return self.rewrite.element(state, data)

    def header_of_elements(self, header: OperatorHeader) -> OperatorHeader:
        return self.rewrite.header_of_elements(header)

    def header(self, header: KeyedHeader) -> KeyedHeader:
        return self.rewrite.header(header)

    def state(self, state: KeyedState) -> KeyedState:
        return self.rewrite.state(state)

    def sections(
        self, key_group: int, found: Iterator[tuple[KeyedState, Section]]
    ) -> Iterator[tuple[KeyedState, Section]]:
        yield from GroupLosses(self.before, key_group, {}).sections(self.rewrite.by_kryo, found, self.rewrite.section)

    def of_key_groups(self, key_groups: KeyGroupRange) -> WithLosses:
        return WithLosses(self.rewrite, self.before.of_key_groups(key_groups))


class GroupLosses:
    """One pass over a key group of the upgraded savepoint. `counts` are by state; `listed` gets what each row lost."""

    def __init__(
        self,
        before: BeforeUpgrade,
        key_group: int,
        counts: dict[str, LossCounts],
        listed: Callable[[RowLosses], None] | None = None,
    ) -> None:
        self._before, self._key_group, self._counts, self._listed = before, key_group, counts, listed
        self._rows: dict[str, RowsBefore] = {}
        for name, raw in before.rows(key_group).items():
            self._rows[name] = RowsBefore(before.states[name], raw, for_other_kryo(raw, before.states[name].state))
            self._of(name).rows += len(raw)

    @property
    def rows(self) -> Iterator[tuple[str, Section]]:
        """The rows from before the upgrade, by state."""
        return ((name, rows.raw) for name, rows in self._rows.items())

    def _of(self, state: str) -> LossCounts:
        return self._counts.setdefault(state, LossCounts())

    def sections(
        self,
        by_kryo: Mapping[str, KeyedState],
        found: Iterable[tuple[KeyedState, Section]],
        rewritten: Callable[[KeyedState, Section], Section],
        see: _See = lambda *_: None,
    ) -> Iterator[tuple[KeyedState, Section]]:
        """Yields the sections as Kryo 5 writes them, with what is put back.

        `by_kryo` are the states to rewrite; those with no value by Kryo are `rewritten`. Others are shown to `see` as
        they are, and as Kryo 5 writes them.
        """
        last: KeyedState | None = None
        for state, section in found:
            if last is not None and state.name != last.name:
                yield from self._gone(last)
            last = state
            known = by_kryo.get(state.name)
            is_compared = known is not None and (state.name in self._before.states or self._before.is_newer(known))
            if known is not None and is_compared and len(section):
                yield state, self._restored(known, section, see)
            else:
                yield state, rewritten(state, section)
        if last is not None:
            yield from self._gone(last)
        for name in list(self._rows):
            yield from self._gone(by_kryo[name])

    def _restored(self, state: KeyedState, section: Section, see: _See) -> Section:
        """Returns the section as Kryo 5 writes it, with what was lost.

        Kryo 2 wrote the values that have the bytes from before the upgrade, Kryo 5 all others.
        """
        rows, places = self._rows.get(state.name), np.full(len(section), -1)
        untouched = np.zeros(len(section), np.bool_)
        if rows is not None:
            places = places_in(section, rows.raw)
            there = np.flatnonzero(places >= 0)
            rows.met[places[there]] = True
            untouched[there] = equal_values(section, there, rows.raw, places[there])
            counts = self._of(state.name)
            counts.found += len(there)
            counts.equal += int(untouched.sum())
        longer = {} if rows is None else longer_lists(state, section, rows, places, untouched)
        known = untouched.copy()
        known[list(longer)] = True
        with section.locating():
            for row in np.flatnonzero(~values_by_kryo_5(section, state) & ~known)[:1].tolist():
                _expect_known_classes(section, state, row)
                raise RefusedValueError(_OTHER_SAVEPOINT, int(section.starts[row]))
            if rows is None:
                see(state, section, section)
                return section
            made = merged(section, np.flatnonzero(untouched), rows.five, places[untouched])
            made = with_values(made, longer) if longer else made
            see(state, section, made)
            misread_rows = ~equal_rows(rows.raw, rows.five)
            self._of(state.name).misread += int((known & misread_rows[places]).sum())
            changed = np.flatnonzero((places >= 0) & ~known & misread_rows[places])
            replaced: dict[int, bytes] = {}
            for row in changed.tolist():
                value = self._row(rows, int(places[row]), value_of(made, row), int(section.starts[row]))
                if value is not None:
                    replaced[row] = value
        return with_values(made, replaced) if replaced else made

    def _row(self, rows: RowsBefore, place: int, now: bytes, offset: int) -> bytes | None:
        """Returns the new value of a row that is there, None if it stays."""
        before, counts = rows.before, self._of(rows.before.state.name)
        flat = flat_now(rows, place, now)

        def compare(old: KryoObject | None, read: KryoObject | None) -> Iterable[Loss]:
            present = read_value(before.state, now, True)
            counts.agreeing += agrees(old, read, present)
            counts.unread += is_unread(old, read, present)
            return losses(old, read, present)

        if flat is None:
            found = self._classified(rows, place, compare, offset if self._before.restores else None, now)
        else:
            counts.agreeing += flat.agrees
            counts.unread += flat.is_unread
            found = self._noted(rows, place, self._of_flat(before, flat))
        wanted = [one for one in found or () if one.fate is Fate.LOST]
        counts.misread += any(one.is_there for one in wanted)
        if not (wanted and self._before.restores):
            return None
        corrected = sum(one.is_there for one in wanted)
        counts.corrected += corrected
        counts.put_back += len(wanted) - corrected
        if flat is not None:
            return now[: head_of(before.state)] + flat.put_back()
        five = value_of(rows.five, place)
        # Of null nothing is there, so all of the old map is lost.
        if not wanted[0].is_entry or read_value(before.state, now, True) is None:
            return five
        old, there = map_of_value(before.state, five), map_of_value(before.state, now)
        return now[: head_of(before.state)] + self._or_refused(lambda: put_back(old, there, wanted), offset)

    def _of_flat(self, before: StateBefore, flat: FlatLosses) -> tuple[Loss, ...]:
        """The same losses; their keys and values are read only if they are listed."""
        kryo, lists = before.state.value, self._listed is not None
        assert isinstance(kryo, KryoType)
        return tuple(
            Loss(
                one.fate,
                part_of_entry(kryo, one.old) if lists else None,
                True,
                part_of_entry(kryo, one.key) if lists else None,
                one.is_there,
            )
            for one in flat.losses
        )

    def _gone(self, state: KeyedState) -> Iterator[tuple[KeyedState, Section]]:
        """Counts, and yields if they are put back, the rows of a state that are gone."""
        rows = self._rows.pop(state.name, None)
        if rows is None:
            return
        misread_rows = ~equal_rows(rows.raw, rows.five)
        put_back: list[int] = []
        replaced: dict[int, bytes] = {}
        with rows.raw.locating():
            for place in np.flatnonzero(~rows.met & misread_rows).tolist():
                value = self._gone_row(rows, place)
                if value is not None:
                    put_back.append(place)
                    replaced[place] = value
        if put_back:
            self._of(state.name).rows_put_back += len(put_back)
            yield state, chosen_rows(with_values(rows.five, replaced), np.array(put_back))

    def _gone_row(self, rows: RowsBefore, place: int) -> bytes | None:
        before, offset = rows.before, int(rows.raw.starts[place])
        # What a window held has been emitted when it is gone.
        restores = self._before.restores_keys and before.state.namespace is Scalar.VOID_NAMESPACE
        flat = flat_gone(rows, place)
        if flat is None:
            found = self._classified(rows, place, losses_of_gone, offset if restores else None)
        else:
            found = self._noted(rows, place, self._of_flat(before, flat))
        wanted = [one for one in found or () if one.fate is Fate.GONE]
        if not (wanted and restores):
            return None
        five = value_of(rows.five, place)
        self._of(before.state.name).put_back += len(wanted)
        if flat is not None:
            return five[: head_of(before.state)] + flat.put_back()
        old = map_of_value(before.state, five)
        if not wanted[0].is_entry or old is None:
            return five
        return five[: head_of(before.state)] + self._or_refused(lambda: put_back_gone(old, wanted), offset)

    def _classified(
        self,
        rows: RowsBefore,
        place: int,
        compare: Callable[[KryoObject | None, KryoObject | None], Iterable[Loss]],
        offset: int | None,
        now: bytes | None = None,
    ) -> tuple[Loss, ...] | None:
        """Returns what was lost of a row, and counts it; None if nobody can tell.

        That is refused if the row has an `offset`, because it would be put back. A row that is `now` as Kryo 5 writes
        the old one has lost nothing, whatever Flink 2 has read.
        """
        before = rows.before
        value = value_of(rows.raw, place)
        try:
            if before.why_not is not None:
                raise RefusedError(before.why_not)
            kryo = before.state.value
            assert isinstance(kryo, KryoType)
            part = kryo_part(before.state, value)
            read = None if part is None else misread(kryo, part)
            found = tuple(compare(read_value(before.state, value, False), read))
        except _Errors as error:
            # An access may have renewed its timestamp.
            if now is not None and kryo_part(before.state, now) == kryo_part(before.state, value_of(rows.five, place)):
                self._of(before.state.name).agreeing += 1
                return ()
            why = f"what Flink 2 has read of it can't be told: {error}"
            if offset is not None:
                raise RefusedValueError(f"{why}. Leave --restore-lost out to save what is whole", offset) from None
            self._of(before.state.name).untold += 1
            self._list(rows, place, (), why)
            return None
        return self._noted(rows, place, found)

    def _noted(self, rows: RowsBefore, place: int, found: tuple[Loss, ...]) -> tuple[Loss, ...]:
        """Counts and lists what was found of a row; what has expired isn't lost."""
        before, counts = rows.before, self._of(rows.before.state.name)
        if before.ttl is not None:
            timestamp = timestamp_of(before.state, value_of(rows.raw, place))
            if timestamp is not None and has_expired(timestamp, before):
                found = tuple(one.of(Fate.EXPIRED) if one.fate in (Fate.LOST, Fate.GONE) else one for one in found)
        for one in found:
            name = one.fate.name.lower()
            setattr(counts, name, getattr(counts, name) + 1)
        if found:
            self._list(rows, place, found, None)
        return found

    def _list(self, rows: RowsBefore, place: int, found: tuple[Loss, ...], why_not: str | None) -> None:
        if self._listed is not None:
            raw, state = rows.raw, rows.before.state
            key = raw.data[raw.key_starts[place] + raw.file.prefix : raw.key_ends[place]].tobytes()
            timestamp = timestamp_of(state, value_of(raw, place))
            self._listed(RowLosses(state.name, self._key_group, key, found, timestamp, why_not))

    @staticmethod
    def _or_refused(make: Callable[[], bytes], offset: int) -> bytes:
        try:
            return make()
        except RefusedError as error:
            raise RefusedValueError(f"what was lost of it can't be put back: {error}", offset) from None


def _expect_known_classes(section: Section, state: KeyedState, row: int) -> None:
    """Raises an error that names the class of an object in a row that can't be read, if it is for that."""
    one = slice(row, row + 1)
    alone = replace(section, starts=section.starts[one], key_ends=section.key_ends[one], ends=section.ends[one])
    with suppress(DamagedError):
        for_other_kryo(alone, all_by_kryo_2(state))
