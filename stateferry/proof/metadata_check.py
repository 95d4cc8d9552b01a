"""Compares `_metadata` and the headers of keyed state files of a staged savepoint with those of its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from flinkstate.hashing.key_groups import KeyGroupRange, range_for_operator_index
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import KeyedHandle, Metadata, NativeHandle, Operator, RelativeFile
from flinkstate.metadata.savepoint_properties import canonical_properties, native_properties
from flinkstate.reading.reader import has_keyed_state
from flinkstate.serializers.built_snapshots import map_snapshot, simple_snapshot, snapshot_of, ttl_snapshot
from flinkstate.serializers.snapshot_classes import KRYO_SNAPSHOT, NULLABLE_SNAPSHOT, TTL_SNAPSHOT
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import OpaqueType, PojoMapType, PojoType, Scalar
from flinkstate.writing.operator_rewrite import Layout, changes_layout
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Rules, RulesBack
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A difference between what is expected and what was found; `what` names the thing that was compared."""

    what: str
    expected: str
    found: str
    key_groups: tuple[int, ...] = ()


def compare_metadata(
    source: Metadata, staged: Metadata, layout: Layout, rehashed: Container[bytes] = ()
) -> Iterator[Mismatch]:
    """Yields the differences between the staged `_metadata` and the one that the source becomes in the layout.

    The keys of the operators with the ids `rehashed` have other hashes, so that they go to any subtask.
    """
    for what, one, other in (
        ("version", source.version, staged.version),
        ("checkpoint id", source.checkpoint_id, staged.checkpoint_id),
    ):
        if one != other:
            yield Mismatch(what, f"{one}", f"{other}")
    if source.master_states != staged.master_states:
        yield Mismatch("master states", f"the source's {len(source.master_states)}", "other master states")
    properties = native_properties(source) if layout.native else canonical_properties(source)
    if properties != staged.properties:
        kind = "native" if layout.native else "canonical"
        yield Mismatch("properties", f"the source's, as of a {kind} savepoint", "other properties")
    old, new = ({operator.id: operator for operator in metadata.operators} for metadata in (source, staged))
    for id_ in old.keys() - new.keys():
        yield Mismatch(f"operator {old[id_].label}", "an operator of this id", "none")
    for id_ in new.keys() - old.keys():
        yield Mismatch(f"operator {new[id_].label}", "no operator of this id", "one")
    for id_, operator in old.items():
        if id_ in new:
            yield from _compare_operator(operator, layout.of(operator), new[id_], rehashed=id_ in rehashed)
            yield from _compare_formats(operator, new[id_], source.checkpoint_id, is_native=id_ in layout.native)


def _compare_operator(old: Operator, expected: Operator, found: Operator, *, rehashed: bool) -> Iterator[Mismatch]:
    for part in ("name", "uid", "parallelism", "max_parallelism", "fully_finished"):
        one, other = getattr(expected, part), getattr(found, part)
        if one != other:
            yield Mismatch(f"operator {old.label}: {part.replace('_', ' ')}", f"{one}", f"{other}")
    if expected.coordinator != found.coordinator:
        yield Mismatch(f"operator {old.label}: coordinator state", "the source's", "other bytes")
    same_layout = not (rehashed or changes_layout(old, expected))
    # At another max parallelism alone the same subtasks are finished.
    same_subtasks = not rehashed and expected.parallelism == old.parallelism
    if same_subtasks and _finished(old) != _finished(found):
        yield Mismatch(f"operator {old.label}: finished subtasks", f"{_finished(old)}", f"{_finished(found)}")
    yield from _compare_ranges(old, expected, found, same_layout)


def _compare_formats(old: Operator, found: Operator, checkpoint_id: int, *, is_native: bool) -> Iterator[Mismatch]:
    expected, other = ("native", "canonical") if is_native else ("canonical", "native")
    natives = [one for one in keyed_handles(old).values() if isinstance(one, NativeHandle)]
    known = {checkpoint_id, *(one.checkpoint_id for one in natives)}
    places = "in RocksDB", "on the heap"
    on_heap = any(one.timers is not None for one in natives)
    for index, handle in keyed_handles(found).items():
        what = f"operator {old.label}: keyed state of subtask {index}"
        if isinstance(handle, NativeHandle) != is_native:
            yield Mismatch(what, expected, other, _ends(handle.range))
        elif isinstance(handle, NativeHandle):
            if handle.checkpoint_id not in known:
                ids = f"of checkpoint {checkpoint_id}", f"of checkpoint {handle.checkpoint_id}"
                yield Mismatch(what, *ids, _ends(handle.range))
            # A job looks for them in one place alone.
            if (handle.timers is not None) != on_heap:
                yield Mismatch(f"{what}: timers", places[on_heap], places[not on_heap], _ends(handle.range))
            # A job that claims the savepoint would make checkpoints with such files at relative places, which can't be
            # restored. In the folder that a job may claim, they have absolute ones.
            if any(isinstance(file.stream, RelativeFile) for file in handle.shared):
                yield Mismatch(what, "no shared files at relative places", f"{len(handle.shared)}", _ends(handle.range))


def _finished(operator: Operator) -> list[int]:
    return sorted(subtask.index for subtask in operator.subtasks if subtask.finished)


def keyed_handles(operator: Operator) -> dict[int, KeyedHandle | NativeHandle]:
    """The handles of managed keyed state, by subtask."""
    found = ((subtask.index, subtask.keyed) for subtask in operator.subtasks)
    return {index: handle for index, handle in found if handle is not None}


def _compare_ranges(old: Operator, expected: Operator, found: Operator, same_layout: bool) -> Iterator[Mismatch]:
    """Checks that subtask i's handle covers exactly its range; in an unchanged layout, a subtask may have none."""
    handles, before = keyed_handles(found), keyed_handles(old)
    wanted = set(before) if same_layout or not before else set(range(expected.parallelism))
    for index in sorted(wanted | handles.keys()):
        range_ = range_for_operator_index(expected.max_parallelism, expected.parallelism, index) if (
            index < expected.parallelism
        ) else KeyGroupRange.EMPTY  # fmt: skip
        what = f"operator {old.label}: key groups of subtask {index}"
        if index not in handles:
            yield Mismatch(what, f"{range_}", "none", _ends(range_))
        elif index not in wanted:
            yield Mismatch(what, "none", f"{handles[index].range}", _ends(handles[index].range))
        elif handles[index].range != range_:
            yield Mismatch(what, f"{range_}", f"{handles[index].range}", _ends(range_))
    covered = sorted((handle.range for handle in handles.values()), key=lambda range_: range_.start)
    for one, other in pairwise(covered):
        if other.start <= one.end:
            what = f"operator {old.label}: key groups of two subtasks"
            yield Mismatch(what, "no overlap", f"{one} and {other}", (other.start,))


def _ends(range_: KeyGroupRange) -> tuple[int, ...]:
    return tuple(dict.fromkeys((range_.start, range_.end))) if not range_.is_empty else ()


def expected_header(merged: KeyedHeader, conversion: OperatorChanges) -> KeyedHeader:
    """The header that the new files should have, from the merged header of the source's files."""
    merged = ForOtherKryo(conversion.by_kryo).header(merged)
    metas = {meta.name: meta for meta in merged.states}
    for rules in conversion.rules:
        made = (
            _map_of_blobs(metas[rules.new_name], rules)
            if isinstance(rules, RulesBack)
            else _map_state_of(metas[rules.legacy.name], rules)
        )
        there = metas.get(rules.made_name)
        metas[rules.made_name] = (there.merged_with(made) or made) if there else made
        if rules.lazy_cut is not None and rules.lazy_cut.flag.name not in metas:
            metas[rules.lazy_cut.flag.name] = _flag_state_of(metas[rules.legacy.name], rules.lazy_cut.flag)
    states = tuple(meta for meta in metas.values() if meta.name not in conversion.left_behind)
    return replace(merged, states=states)


def _map_state_of(legacy: StateMeta, rules: Rules) -> StateMeta:
    """The description that makes Flink accept a map state: the legacy map's serializers, the timestamp in the value."""
    serializers = dict(legacy.serializers)
    value = serializers[VALUE_SERIALIZER]
    stamped = rules.legacy.ttl and value.class_name == TTL_SNAPSHOT
    map_ = value.nested[1] if stamped else value
    if isinstance(rules.legacy.value, PojoMapType) and isinstance(rules.legacy.value.pojo, PojoType):
        map_ = dict(zip(_described_fields(map_), map_.nested, strict=False))[rules.legacy.value.field]
    if map_.class_name == NULLABLE_SNAPSHOT:
        map_ = map_snapshot(*map_.nested[0].nested)
        while map_.nested[0].class_name == NULLABLE_SNAPSHOT:
            map_ = map_snapshot(map_.nested[0].nested[0], map_.nested[1])
    if map_.class_name == KRYO_SNAPSHOT:
        map_ = snapshot_of(rules.map_type)
    value = map_snapshot(map_.nested[0], ttl_snapshot(map_.nested[1])) if stamped else map_
    return StateMeta(
        rules.new_name,
        BackendKind.KEY_VALUE,
        ((KEYED_STATE_TYPE, "MAP"),),
        ((VALUE_SERIALIZER, value), (NAMESPACE_SERIALIZER, serializers[NAMESPACE_SERIALIZER])),
    )


def _described_fields(pojo: SerializerSnapshot) -> list[str]:
    """The fields of a POJO whose serializers are described, in the order of their descriptions."""
    fields = pojo.type.fields if isinstance(pojo.type, PojoType) else ()
    return [
        field.name for field in fields if not isinstance(field.type, OpaqueType) or field.type.class_name != field.name
    ]


def _flag_state_of(legacy: StateMeta, flag: KeyedState) -> StateMeta:
    """The description that makes Flink accept a `ValueState<Boolean>` with the legacy state's namespaces."""
    boolean = simple_snapshot(Scalar.BOOLEAN)
    value = ttl_snapshot(boolean) if flag.ttl else boolean
    namespace = dict(legacy.serializers)[NAMESPACE_SERIALIZER]
    serializers = ((VALUE_SERIALIZER, value), (NAMESPACE_SERIALIZER, namespace))
    return StateMeta(flag.name, BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, "VALUE"),), serializers)


def _map_of_blobs(new: StateMeta, rules: RulesBack) -> StateMeta:
    """The description that makes Flink accept a value state of maps: the rows' serializers, the timestamp around."""
    serializers = dict(new.serializers)
    value = serializers[VALUE_SERIALIZER]
    if rules.legacy.ttl:
        user_key, stamped = value.nested
        value = ttl_snapshot(map_snapshot(user_key, stamped.nested[1]))
    if rules.old_form is not None:
        value = rules.old_form.serializer
    return StateMeta(
        rules.legacy.name,
        BackendKind.KEY_VALUE,
        ((KEYED_STATE_TYPE, "VALUE"),),
        ((VALUE_SERIALIZER, value), (NAMESPACE_SERIALIZER, serializers[NAMESPACE_SERIALIZER])),
    )


def compare_headers(
    label: str, expected: KeyedHeader, own: Mapping[int, KeyedHeader], found: Mapping[int, KeyedHeader]
) -> Iterator[Mismatch]:
    """Yields the differences between the staged files' headers (`found`, by subtask) and the expected header.

    `own` are the source's headers of the same subtasks, written for the other Kryo if any is, if nothing has moved.
    They are accepted too, because the header of one file may know fewer subclasses of a POJO than the merged header.
    """
    wanted = {meta.name: meta for meta in expected.states}
    for index, header in sorted(found.items()):
        where = f"operator {label}, subtask {index}"
        mine = own.get(index)
        keys = {expected.key_serializer.raw} | ({mine.key_serializer.raw} if mine else set())
        if header.key_serializer.raw not in keys:
            yield Mismatch(f"{where}: key serializer", expected.key_serializer.class_name, "another description")
        metas = {meta.name: meta for meta in header.states}
        for name, count in sorted(Counter(meta.name for meta in header.states).items()):
            if count > 1:
                yield Mismatch(f"{where}: state {name}", "one description", f"{count}")
        its_own = {meta.name: meta for meta in mine.states} if mine else {}
        for name in sorted(metas.keys() - wanted.keys()):
            yield Mismatch(f"{where}: state {name}", "no such state", "its description")
        for name in sorted(wanted.keys() - metas.keys()):
            if mine is None or name in its_own:
                yield Mismatch(f"{where}: state {name}", "its description", "none")
        for name in sorted(wanted.keys() & metas.keys()):
            accepted = [wanted[name], *([its_own[name]] if name in its_own else [])]
            if not any(_alike(meta, metas[name]) for meta in accepted):
                yield Mismatch(f"{where}: state {name}", _in_words(wanted[name]), _in_words(metas[name]))


def _alike(one: StateMeta, other: StateMeta) -> bool:
    def parts(meta: StateMeta) -> tuple[object, ...]:
        return meta.kind, dict(meta.options), {key: snapshot.raw for key, snapshot in meta.serializers}

    return parts(one) == parts(other)


def _in_words(meta: StateMeta) -> str:
    value = meta.serializer(VALUE_SERIALIZER)
    kind = meta.option(KEYED_STATE_TYPE) or meta.kind.name
    return f"{kind} {_nested_names(value) if value else 'without a serializer'}"


def _nested_names(snapshot: object) -> str:
    name = getattr(snapshot, "class_name", "?").rpartition(".")[2].removesuffix("Snapshot")
    nested = getattr(snapshot, "nested", ())
    return f"{name}({', '.join(map(_nested_names, nested))})" if nested else name


def moving(old: Operator, layout: Layout, *, rehashed: bool = False) -> bool:
    """Whether the operator's keyed state goes to other subtasks or key groups."""
    return has_keyed_state(old) and (rehashed or changes_layout(old, layout.of(old)))
