"""The transform that makes map states of an operator's legacy maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stateferry.errors import PlanError
from stateferry.migration.rules import Rules, convert, kept_rows, key_sets_of
from stateferry.savepoint.grouped import Destination, GroupedEntries, GroupSections
from stateferry.savepoint.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from stateferry.savepoint.state import KeyedState, StateKind
from stateferry.serializers.snapshot_classes import TTL_SNAPSHOT
from stateferry.serializers.snapshots import SerializerSnapshot, map_snapshot, ttl_snapshot


@dataclass(slots=True)
class MigrateMaps:
    """Migrates all legacy states of one operator that a plan names.

    `states` are all states of the operator by name. `counts` says for each legacy state what was done.
    """

    rules: Sequence[Rules]
    states: dict[str, KeyedState]
    keep_legacy: bool = False
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)

    def header(self, merged: KeyedHeader) -> KeyedHeader:
        """Returns the header with the new states, and without the legacy states and flags unless they are kept."""
        metas = {meta.name: meta for meta in merged.states}
        for rules in self.rules:
            new = new_state_meta(metas[rules.legacy.name], rules.new_name)
            described = metas.setdefault(rules.new_name, new).merged_with(new)
            if described is None:
                raise PlanError(
                    f"state {rules.new_name} is in the savepoint, but not as {rules.legacy.type_name} "
                    f"{'with' if rules.legacy.ttl else 'without'} TTL, which {rules.legacy.name} would become"
                )
            metas[rules.new_name] = described
        left_out = set() if self.keep_legacy else self._legacy_names()
        states = tuple(meta for meta in metas.values() if meta.name not in left_out)
        self._ids = {meta.name: index for index, meta in enumerate(states)}
        return KeyedHeader(merged.compressed, merged.key_serializer, states)

    def _legacy_names(self) -> set[str]:
        flags = {rules.flag_name for rules in self.rules if rules.flag_name}
        return flags | {rules.legacy.name for rules in self.rules}

    def entries(self, group: GroupSections, destination: Destination) -> Iterator[GroupedEntries]:
        """Yields the new entries of a key group: other states as they are, then the rows of each new state."""
        here = {state.name for state in group.states}
        touched = {rules.new_name for rules in self.rules} | (set() if self.keep_legacy else self._legacy_names())
        if here - touched:
            for state, section in group:
                if state.name not in touched:
                    yield destination.send(section, state, self._ids[state.name])
        for rules in self.rules:
            yield from self._new_rows(rules, group, destination)

    def _new_rows(self, rules: Rules, group: GroupSections, destination: Destination) -> Iterator[GroupedEntries]:
        counts = self.counts.setdefault(rules.legacy.name, Counter())
        new_id = self._ids[rules.new_name]
        sets = key_sets_of(group, rules, self.states)
        for state, section in group:
            if state.name == rules.new_name:
                kept = kept_rows(section, rules, sets, counts)
                if len(kept) == len(section):
                    yield destination.send(section, state, new_id)
                elif len(kept):
                    yield destination.send_some(section, state, new_id, kept)
            elif state.name == rules.legacy.name:
                targets = destination.key_groups(section, state)
                yield convert(section, rules, sets, new_id, targets, destination.prefix, counts)


def new_state_meta(legacy: StateMeta, name: str) -> StateMeta:
    """Returns the description of the map state that a `ValueState<Map>` becomes, from the parts of its own."""
    value, namespace = legacy.serializer(VALUE_SERIALIZER), legacy.serializer(NAMESPACE_SERIALIZER)
    if value is None or namespace is None:
        raise PlanError(f"state {legacy.name} has no serializers of value and namespace")
    return StateMeta(
        name,
        BackendKind.KEY_VALUE,
        ((KEYED_STATE_TYPE, StateKind.MAP.value),),
        ((VALUE_SERIALIZER, _map_of_stamped(value)), (NAMESPACE_SERIALIZER, namespace)),
    )


def _map_of_stamped(value: SerializerSnapshot) -> SerializerSnapshot:
    """Turns `Ttl<Map<K, V>>` into `Map<K, Ttl<V>>`; a map without time to live stays as it is."""
    if value.class_name != TTL_SNAPSHOT:
        return value
    _, map_ = value.nested
    user_key, user_value = map_.nested
    return map_snapshot(user_key, ttl_snapshot(user_value))
