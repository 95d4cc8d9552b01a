"""Stored keys, with namespaces and user keys, in which the other Kryo writes what one has written.

Keys and user keys by the serializers of flink-scala become what the new job has. Where key and namespace both vary in
length, each has its length behind it, which is written anew too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.key_group_check import TIMER_TIMESTAMP
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.kryo.to_other_kryo import Recoded, recoder
from flinkstate.scala.programs import compile_scala, scala_parts
from flinkstate.scala.rewriting import write_values
from flinkstate.serializers.built_snapshots import kryo_without_avro
from flinkstate.serializers.programs import compile_type
from flinkstate.serializers.type_parts import opaque_parts, with_opaque
from flinkstate.serializers.types import (
    FlinkType,
    KryoCollectionType,
    KryoMapType,
    KryoType,
    OpaqueType,
    ScalaType,
    TimerType,
    TupleType,
)
from flinkstate.serializers.walker import skip_possible, split_keys
from stateferry.changes import kernels
from stateferry.changes.sections import put_lengths

_LENGTH = 4
# Of key, namespace and user key.
_WITH_LENGTHS = 2


def key_type(state: KeyedState) -> FlinkType | None:
    """The type of what of a stored key is rewritten: the user key alone, or all; None for nothing."""
    if not (_changes(state.key) or is_by_kryo(state.namespace)):
        user_key = state.user_key
        return user_key if user_key is not None and _changes(user_key) else None
    if state.kind is StateKind.TIMERS:
        return TimerType(state.key, state.namespace)
    return TupleType(tuple(_parts(state)), "a key")


def _parts(state: KeyedState) -> Iterator[FlinkType]:
    yield from (state.key, state.namespace)
    yield from () if state.user_key is None else (state.user_key,)


def _changes(type_: FlinkType) -> bool:
    return is_by_kryo(type_) or bool(scala_parts(type_))


def has_other_hashes(state: KeyedState) -> bool:
    """Whether the state's keys become others, which Java hashes otherwise: those by the serializers of flink-scala."""
    return bool(scala_parts(state.key))


def has_scala_parts(state: KeyedState) -> bool:
    """Whether values, keys or user keys of the state were by the serializers of flink-scala."""
    return any(map(scala_parts, (state.key, state.user_key, state.value)))


def is_by_kryo(type_: FlinkType) -> bool:
    """Whether Kryo wrote parts of such values, whatever they become."""
    return any(map(_kryo_of, opaque_parts(type_)))


def _kryo_of(part: OpaqueType) -> KryoType | None:
    if isinstance(part, KryoCollectionType | KryoMapType):
        return part.kryo
    return part if isinstance(part, KryoType) else None


def as_written(type_: FlinkType) -> FlinkType:
    """Returns the type of values that were written for the other Flink."""

    def written(part: OpaqueType) -> FlinkType:
        if isinstance(part, KryoMapType):
            return as_written(part.map)
        if isinstance(part, KryoCollectionType) and part.kryo.for_five:
            return as_written(part.made)
        if isinstance(part, ScalaType):
            return part.made
        kryo = _kryo_of(part)
        return part if kryo is None else replace(kryo_without_avro(kryo), five=kryo.for_five)

    return with_opaque(type_, written)


def expect_rewritable_keys(state: KeyedState, type_: FlinkType) -> None:
    """Raises `RefusedError` if what is of the type in each key can't be written anew."""
    _ = state.has_suffixes  # refuses keys whose ends aren't known
    if scala_parts(type_) or type_ is state.user_key:
        _expect_ends(state)
    if not scala_parts(type_):
        recoder(compile_type(type_))
        return
    if is_by_kryo(state.key) or is_by_kryo(state.namespace):
        raise RefusedError("its keys or namespaces are by Kryo, and its user keys by flink-scala")
    for part in _parts(state):
        _rewriter(part)


def _expect_ends(state: KeyedState) -> None:
    """Raises `RefusedError` if key or namespace have parts other than by Kryo whose end isn't known."""
    for part in (*opaque_parts(_as_stored(state.key)), *opaque_parts(state.namespace)):
        if _kryo_of(part) is None:
            raise RefusedError(f"its keys or namespaces have {part.class_name}, {part.reason}, whose end isn't known")


def rewritten_keys(section: Section, state: KeyedState, type_: FlinkType) -> Recoded:
    """Rewrites what is of the type in each key, and returns the keys, each behind its length and key group."""
    starts = section.key_starts + section.file.prefix
    made = keys_for_other_kryo(state, type_, section.data, starts, section.key_ends, _LENGTH + section.file.prefix)
    begins = np.append(0, made.ends[:-1])
    put_lengths(made.data, begins, made.ends - begins - _LENGTH)
    return made


def keys_for_other_kryo(
    state: KeyedState, type_: FlinkType, data: Bytes, starts: Positions, ends: Positions, head: int
) -> Recoded:
    """Rewrites what is of the type in the keys `data[start:end]`; so many bytes before each stay."""
    if scala_parts(type_):
        before = TIMER_TIMESTAMP if state.kind is StateKind.TIMERS else 0
        starts, head = starts + before, head + before
        return _by_parts(state, data, starts, head, _bounds_beside_scala(state, data, starts, ends))
    heads = np.full(len(starts), head)
    if type_ is state.user_key:
        user_keys = split_keys(state.key, state.namespace, state.has_suffixes, data, starts, ends).rests
        heads, starts = heads + user_keys - starts, user_keys
    elif state.has_suffixes:
        return _by_parts(state, data, starts, head, _bounds(state, data, starts, ends))
    return recoder(compile_type(type_)).recode(data, starts, ends, heads)


Bounds = list[tuple[Positions, Positions]]


def _bounds_beside_scala(state: KeyedState, data: Bytes, starts: Positions, limits: Positions) -> Bounds:
    """Returns where each part begins and ends, if nothing before the last one is by Kryo."""
    split = split_keys(_as_stored(state.key), state.namespace, state.has_suffixes, data, starts, limits)
    return [
        (starts, split.key_ends),
        (split.namespace_starts, split.namespace_ends),
        *([] if state.user_key is None else [(split.rests, limits)]),
    ]


def _as_stored(key: FlinkType) -> FlinkType:
    return with_opaque(key, lambda part: part.source if isinstance(part, ScalaType) else part)


def _rewriter(type_: FlinkType) -> Callable[[Bytes, Positions, Positions], Recoded] | None:
    """Returns what writes a part of a key anew; None if it stays."""
    if scala_parts(type_):
        program = compile_scala(type_)
        return lambda data, starts, ends: Recoded(
            *write_values(program, data, starts, ends, np.zeros_like(starts), np.zeros(len(starts), np.bool_))
        )
    if not is_by_kryo(type_):
        return None
    by_kryo = recoder(compile_type(type_))
    return lambda data, starts, ends: by_kryo.recode(data, starts, ends, np.zeros_like(starts))


def _by_parts(state: KeyedState, data: Bytes, starts: Positions, head: int, bounds: Bounds) -> Recoded:
    """Rewrites each part by itself, and puts them together again, with the lengths that they have then."""
    pieces, shift = [data], len(data)
    # Of each key: its head, then each part with the length behind it, if there are any.
    begins, ends = [starts - head], [starts]
    for number, (type_, (first, end)) in enumerate(zip(_parts(state), bounds, strict=True)):
        if (rewrite := _rewriter(type_)) is not None:
            made = rewrite(data, first, end)
            pieces.append(made.data)
            first, end = np.append(0, made.ends[:-1]) + shift, made.ends + shift
            shift += len(made.data)
        begins.append(first)
        ends.append(end)
        if state.has_suffixes and number < _WITH_LENGTHS:
            suffixes = length_suffixes(end - first)
            pieces.append(suffixes.data)
            begins.append(np.append(0, suffixes.ends[:-1]) + shift)
            ends.append(suffixes.ends + shift)
            shift += len(suffixes.data)
    all_begins, all_ends = np.stack(begins, axis=1).reshape(-1), np.stack(ends, axis=1).reshape(-1)
    out, offsets = np.empty(int((all_ends - all_begins).sum()), np.uint8), np.empty(len(all_begins), np.int64)
    kernels.copy_ranges(np.concatenate(pieces), all_begins, all_ends, offsets, out)
    firsts = np.ascontiguousarray(offsets[:: len(begins)])
    return Recoded(out, np.append(firsts[1:], len(out)))


def _bounds(state: KeyedState, data: Bytes, starts: Positions, limits: Positions) -> Bounds:
    """Returns where each part begins and ends, by the Kryo by which the lengths behind them are right."""
    kryos = [kryo.five for type_ in _parts(state) for kryo in map(_kryo_of, opaque_parts(type_)) if kryo is not None]
    by_each = [_bounds_by(state, data, starts, limits, five) for five in (False, True) if {five, None} & {*kryos}]
    for row in np.flatnonzero(~np.any([fits for _, fits in by_each], axis=0))[:1].tolist():
        raise DamagedError("a key by Kryo with its length behind it", "another", offset=int(starts[row]))
    bounds, fits = by_each[0]
    for others, fit in by_each[1:]:
        differ = np.any([one[1] != other[1] for one, other in zip(bounds, others, strict=True)], axis=0)
        for row in np.flatnonzero(fits & fit & differ)[:1].tolist():
            raise RefusedValueError("Kryo 2 and Kryo 5 could both have written this key", int(starts[row]))
        bounds = [
            (np.where(fits, one[0], other[0]), np.where(fits, one[1], other[1]))
            for one, other in zip(bounds, others, strict=True)
        ]
    return bounds


def _bounds_by(
    state: KeyedState, data: Bytes, starts: Positions, limits: Positions, five: bool
) -> tuple[Bounds, Flags]:
    """Returns the bounds if this Kryo wrote the keys, and whether it can have."""
    bounds, begins, fits = Bounds(), starts, np.ones(len(starts), np.bool_)
    for type_ in (state.key, state.namespace):
        ends = _ends(type_, data, begins, limits, five)
        fits &= ends >= 0
        ends = np.where(fits, ends, begins)
        suffixes = length_suffixes(ends - begins)
        sizes = np.diff(suffixes.ends, prepend=0)
        fits &= sizes <= limits - ends
        behind = np.where(fits, ends + sizes, ends)
        fits &= are_equal(suffixes, data, ends, behind)
        bounds.append((begins, ends))
        begins = behind
    if state.user_key is not None:
        bounds.append((begins, limits))
    else:
        fits &= begins == limits
    return bounds, fits


def _ends(type_: FlinkType, data: Bytes, starts: Positions, limits: Positions, five: bool) -> Positions:
    if is_by_kryo(type_):
        return recoder(compile_type(type_)).ends_by(data, starts, limits, five=five)
    return skip_possible(type_, data, starts, limits)


def length_suffixes(lengths: Positions) -> Recoded:
    """Returns each length as Flink writes it: the lowest byte first, in as few bytes as it needs."""
    sizes = np.maximum(1, (np.frexp(lengths.astype(np.float64))[1] + 7) // 8).astype(np.int64)
    ends = np.cumsum(sizes)
    within = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
    return Recoded((np.repeat(lengths, sizes) >> 8 * within & 0xFF).astype(np.uint8), ends)


def are_equal(suffixes: Recoded, data: Bytes, starts: Positions, ends: Positions) -> Flags:
    """Whether each suffix is what stands there."""
    sizes = np.diff(suffixes.ends, prepend=0)
    within = np.arange(len(suffixes.data)) - np.repeat(suffixes.ends - sizes, sizes)
    there = np.minimum(np.repeat(starts, sizes) + within, len(data) - 1)
    wrong = np.add.reduceat(data[there] != suffixes.data, suffixes.ends - sizes) if len(starts) else sizes
    equal: Flags = (wrong == 0) & (ends - starts == sizes)
    return equal
