"""Counts, key by key, what shows whether the states that a plan names are the ones that the job uses as it says.

A wrong name shows in the keys. Keys that the job has moved have rows in the new state, perhaps a flag, and no blob. If
such keys have their rows in another map state, the plan probably names the wrong one. So each state that could be meant
in the place of a named one, its rival, is counted as well. Nothing is counted if there are neither a flag nor rivals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.subclasses import is_map
from flinkstate.reading.group_sections import GroupSections
from flinkstate.serializers.type_parts import map_of
from flinkstate.serializers.types import FlinkType, KryoMapType, KryoType, MapType, PojoType, Scalar
from flinkstate.values.codecs import decode
from flinkstate.values.value_json import json_text
from stateferry.changes.counts import InventoryCounts, StateSigns
from stateferry.changes.key_hashes import NO_HASHES, members
from stateferry.changes.rules import Contradiction, Rules
from stateferry.changes.sections import MapRows, keys_of, live_blob_keys, parse_rows, set_flag_keys

# So many keys are named of each kind.
MOST_NAMED = 3
WITHOUT_ROWS, WITHOUT_FLAG = "without rows", "without a flag"


@dataclass(frozen=True, slots=True)
class Rivals:
    """The names of states that the plan could mean in the place of its flag, new state or legacy state."""

    flags: frozenset[str] = frozenset()
    maps: frozenset[str] = frozenset()
    legacies: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.flags or self.maps or self.legacies)


def rivals_of(rules: Rules, states: Mapping[str, KeyedState]) -> Rivals:
    """Returns the rivals of the states that the rules name; `states` are all states of the operator by name.

    Each is of the same types as the named one. If the plan says that there is no flag, no state can be one.
    """
    named = {rules.legacy.name, rules.new_name, rules.flag_name}
    others = [state for state in states.values() if state.name not in named]
    return Rivals(
        frozenset() if rules.no_flag else possible_flags(rules.in_source, states) - named,
        frozenset(state.name for state in others if could_become(rules.in_source, state)),
        frozenset(state.name for state in others if is_like(rules.in_source, state)),
    )


def watched(rules: Rules, states: Mapping[str, KeyedState]) -> set[str]:
    """Returns the names of all states but the legacy state on which the signs of a rule depend."""
    rivals = rivals_of(rules, states)
    return {
        rules.new_name,
        *([rules.flag_name] if rules.flag_name else ()),
        *rivals.flags,
        *rivals.maps,
        *rivals.legacies,
    }


def could_become(legacy: KeyedState, state: KeyedState) -> bool:
    """Whether the state is a map state of the types that the legacy state becomes."""
    if state.kind is not StateKind.MAP or state.user_key is None or state.value is None:
        return False
    map_ = MapType(state.user_key, state.value)
    becomes = replace(legacy, value=legacy.map_type)
    return replace(state, name=legacy.name, kind=legacy.kind, user_key=None, value=map_) == becomes


def is_like(legacy: KeyedState, state: KeyedState) -> bool:
    """Whether the state is of the types of the legacy state. What maps by Kryo hold isn't known of another state."""
    job = legacy.value.kryo.classes if isinstance(legacy.value, KryoMapType) else None
    value = legacy.value if _is_kryo_map(legacy.value, job) and _is_kryo_map(state.value, job) else state.value
    return replace(state, name=legacy.name, value=value) == legacy


def may_hold(state: KeyedState, job: JobClasses | None, map_: MapType | None = None) -> bool:
    """Whether values of the state are or have in a field a map of this type, or of any; one by Kryo may be of any."""
    return state.kind is StateKind.VALUE and _may_hold(state.value, job, map_)


def _may_hold(value: FlinkType | None, job: JobClasses | None, map_: MapType | None) -> bool:
    if isinstance(value, PojoType):
        return any(_may_hold(part.type, job, map_) for part in value.fields)
    found = map_of(value)
    if found is None:
        return _is_kryo_map(value, job)
    return map_ is None or found == map_


def _is_kryo_map(value: FlinkType | None, job: JobClasses | None) -> bool:
    """Whether it is a map by Kryo, as far as its class is called one, or says nothing, or the job's classes say it."""
    if isinstance(value, KryoType):
        name = value.class_name
        return "Map" in name or name == "java.lang.Object" or (job is not None and is_map(name, job))
    return isinstance(value, KryoMapType)


def possible_flags(legacy: KeyedState, states: Mapping[str, KeyedState]) -> frozenset[str]:
    """Returns the names of the Boolean states that have the namespace type of the legacy state."""
    return frozenset(
        state.name
        for state in states.values()
        if state.kind is StateKind.VALUE and state.value is Scalar.BOOLEAN and state.namespace == legacy.namespace
    )


@dataclass(slots=True)
class SignsOfGroup:
    """What one key group shows for one rule; it keeps 16 bytes for each living key of each state.

    `flag` is the flag state if the savepoint has it. `sharing` are other rules with this flag, by their new states.
    """

    rules: Rules
    rivals: Rivals
    flag: KeyedState | None
    sharing: Mapping[str, Rules] = field(default_factory=dict)
    _keys: dict[str, list[pa.Array]] = field(default_factory=dict)
    _with_any_row: list[pa.Array] = field(default_factory=list)
    _with_shared_row: list[pa.Array] = field(default_factory=list)
    _unset: int = 0

    @classmethod
    def all_of(cls, several: Sequence[Rules], states: Mapping[str, KeyedState]) -> list[SignsOfGroup]:
        """One for each rule for which there is something to count; `states` are all of the operator by name.

        A rule that leaves blobs out counts those of keys that the job hasn't moved.
        """
        made = (
            cls(
                rules,
                rivals_of(rules, states),
                states.get(rules.flag_name or ""),
                {one.new_name: one for one in several if one is not rules and one.flag_name == rules.flag_name},
            )
            for rules in several
        )
        return [one for one in made if one.flag is not None or one.rivals or one.rules.leaves_out_blobs]

    def meet(self, state: KeyedState, section: Section, rows: MapRows | None = None) -> None:
        """Notes a section of a state; `rows` is the section if it was parsed by the same rules."""
        rules, name = self.rules, state.name
        if name == rules.new_name or name in self.rivals.maps:
            rows = parse_rows(section, rules) if rows is None else rows
            keys = rows.live_keys()
            self._add(name, keys)
            if name == rules.new_name:
                self._with_any_row.append(keys if rows.live.all() else _with_any(rows))
        elif name == rules.legacy.name or name in self.rivals.legacies:
            self._add(name, live_blob_keys(section, rules))
        elif name == rules.flag_name or name in self.rivals.flags:
            keys = set_flag_keys(section, state, rules)
            self._unset += len(section) - len(keys) if name == rules.flag_name else 0
            self._add(name, keys)
        if name in self.sharing and self.flag is not None:
            self._with_shared_row.append(_with_any(parse_rows(section, self.sharing[name])))

    def _add(self, name: str, keys: pa.Array) -> None:
        self._keys.setdefault(name, []).append(keys)

    def _of(self, name: str | None) -> pa.Array:
        return _joined(self._keys.get(name or "", ()))

    def settle(self, met: InventoryCounts) -> tuple[dict[str, StateSigns], dict[str, pa.Array]]:
        """Adds the counts of flagged keys; returns the signs by state, and the keys that are to be named."""
        rules, rivals = self.rules, self.rivals
        flagged, blobs, rows = self._of(rules.flag_name), self._of(rules.legacy.name), self._of(rules.new_name)
        with_any_row = _joined(self._with_any_row)
        signs: dict[str, StateSigns] = {}
        # The keys that were moved count for a legacy state, too, whose blobs are not in this key group.
        for name in {*self._keys, rules.legacy.name, *rivals.legacies}:
            keys = self._of(name)
            if name == rules.new_name or name in rivals.maps:
                signs[name] = _of_map(keys, flagged, blobs, with_any_row)
            elif name == rules.legacy.name or name in rivals.legacies:
                signs[name] = _of_legacy(keys, _joined([rows, flagged]))
            else:
                signs[name] = _of_flag(keys, rows, blobs, flagged)
        if self.flag is None:
            return signs, {}
        without = _left(flagged, with_any_row)
        if rules.on_contradiction is Contradiction.BLOB:
            # Their blobs become rows.
            without = _left(without, blobs)
        unflagged = _left(_left(rows, flagged), blobs)
        met.flagged += len(flagged)
        met.flagged_with_rows += int(members(flagged, with_any_row).sum())
        met.flagged_without_rows += len(without)
        met.flagged_for_another += int(members(without, _joined(self._with_shared_row)).sum())
        met.rows_without_flag += len(unflagged)
        met.flags_not_set += self._unset
        return signs, {WITHOUT_ROWS: without, WITHOUT_FLAG: unflagged}

    def named(self, group: GroupSections, wanted: Mapping[str, pa.Array]) -> dict[str, list[str]]:
        """Returns the texts of some of the wanted keys, by what they are wanted for; reads the key group again."""
        found: dict[str, list[str]] = {what: [] for what in wanted}
        for state, section in group:
            what = WITHOUT_ROWS if state.name == self.rules.flag_name else WITHOUT_FLAG
            if state.name not in (self.rules.flag_name, self.rules.new_name) or not len(wanted.get(what, ())):
                continue
            starts, ends = section.key_starts + section.file.prefix, section.key_ends
            if what == WITHOUT_ROWS:
                keys = keys_of(section, np.ones(len(section), np.bool_))
            else:
                rows = parse_rows(section, self.rules)
                keys, ends = rows.keys(), rows.key_ends
            for place in np.flatnonzero(members(keys, wanted[what])):
                text = self._text(section.data[starts[place] : ends[place]].tobytes())
                if text not in found[what]:
                    found[what].append(text)
                if len(found[what]) == MOST_NAMED:
                    break
        return {what: texts for what, texts in found.items() if texts}

    def _text(self, key: bytes) -> str:
        type_ = self.rules.legacy.key
        return json_text(type_)(decode(type_, key)[0])


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Returns the keys of all parts, each once."""
    return pa.concat_arrays([NO_HASHES, *parts]).unique()


def _with_any(rows: MapRows) -> pa.Array:
    """Returns the keys with a row; an expired one, too, says that the job has moved the key to this state."""
    return replace(rows, live=np.ones_like(rows.live)).live_keys()


def _left(keys: pa.Array, without: pa.Array) -> pa.Array:
    return keys.filter(pa.array(~members(keys, without)))


def _of_map(keys: pa.Array, flagged: pa.Array, blobs: pa.Array, with_any_row: pa.Array) -> StateSigns:
    """A map state in the place of the new one; without a flag, a key that has a blob was not moved."""
    is_flagged = members(keys, flagged)
    not_moved = int((members(keys, blobs) & ~is_flagged).sum())
    lacking = int((is_flagged & ~members(keys, with_any_row)).sum())
    return StateSigns(len(keys), len(keys) - not_moved, not_moved, int(is_flagged.sum()), lacking)


def _of_legacy(keys: pa.Array, touched: pa.Array) -> StateSigns:
    """A state in the place of the legacy one; of the keys `touched` (flagged, or with rows) none should have a blob."""
    not_moved = int(members(touched, keys).sum())
    return StateSigns(len(keys), len(touched) - not_moved, not_moved)


def _of_flag(keys: pa.Array, rows: pa.Array, blobs: pa.Array, flagged: pa.Array) -> StateSigns:
    """A Boolean state in the place of the flag, by the keys for which it is true."""
    with_rows, with_blob, is_flagged = members(keys, rows), members(keys, blobs), members(keys, flagged)
    to_move = with_blob & ~is_flagged
    not_moved, merged = int((to_move & ~with_rows).sum()), int((to_move & with_rows).sum())
    return StateSigns(len(keys), int(with_rows.sum()), not_moved, int(is_flagged.sum()), merged)
