"""Keys of operators, user keys and keys of broadcast states, as the new job declares them: lists by Kryo, and Scala's.

An operator's keys by the serializers of flink-scala get other hashes, and so other key groups. It must be known how the
new job hashes them.

A `Set` or `Map` in a key is refused: its entries come in another order when Flink has read them, and Flink finds
nothing under a key with other bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flinkstate.hashing.java_hash import unstable_reason
from flinkstate.keyed.key_group_check import hash_is_certain
from flinkstate.keyed.state import KeyedState
from flinkstate.serializers.type_parts import has_scala, with_parts
from flinkstate.serializers.types import (
    FlinkType,
    MapType,
    OptionType,
    Scalar,
    ScalaType,
    SetType,
    simple_name,
    type_name,
)
from stateferry.runs.checks.declarations import KEY, Declarations
from stateferry.runs.checks.declared_collections import declared_type, interfaces_in, undecided

_WITHOUT_ORDER = ("java.util.Map", "java.util.Set")


def key_of(state: str) -> str:
    """Returns what the user key of a `MapState`, or the key of a broadcast state, is called in `--declared`."""
    return f"{state}.{KEY}"


def keys_of(state: KeyedState) -> Iterator[tuple[str, FlinkType]]:
    """Yields the types of the keys with what they are called in `--declared`."""
    yield KEY, state.key
    if state.user_key is not None:
        yield key_of(state.name), state.user_key


def as_declared(state: KeyedState, declared: Declarations) -> KeyedState:
    """Returns the state with the collections that Flink 2 writes itself; adds a problem for each that is undecided."""
    declared.problems.extend(undecided(declared.where(state.name), one) for one in interfaces_in(state.namespace))
    key, *others = (declared_key(type_, path, declared) for path, type_ in keys_of(state))
    declared.problems.extend(_not_hashed(key, declared))
    value = state.value
    if isinstance(value, MapType) and has_scala(value):
        of_key = declared_key(value.key, key_of(state.name), declared)
        value = MapType(of_key, declared_type(value.value, state.name, declared))
    elif value is not None:
        value = declared_type(value, state.name, declared)
    return replace(state, key=key, user_key=next(iter(others), None), value=value)


def _not_hashed(key: FlinkType, declared: Declarations) -> Iterator[str]:
    """Yields why it isn't known how the new job hashes an operator's keys that were Scala's."""
    if not isinstance(key, ScalaType):
        return
    why = unstable_reason(key.made)
    if isinstance(key.source, OptionType) or key.source is Scalar.UNIT:
        why = "null can't be a key, and None or Unit would be"
    elif why is None and not hash_is_certain(key.made):
        why = "the hash of a Row depends on how the job has filled it"
    if why is not None:
        yield (
            f"{declared.where(KEY)}: a key that is a {type_name(key.made)} can't be hashed as the new job does: {why}. "
            "Declare the key as a tuple, and have the new job do so, or have the job, under Flink 1.20, move the state"
        )


def declared_key(type_: FlinkType, path: str, declared: Declarations) -> FlinkType:
    """Returns the type of a key in which lists by Kryo are what the new job has; adds a problem for what can't be."""
    without_order = [one for one in interfaces_in(type_) if one.class_name in _WITHOUT_ORDER]
    declared.problems.extend(
        f"{declared.where(path)}: there is a {simple_name(one.class_name)} by Kryo in the keys. Its "
        "entries come in another order when Flink has read them, so a job would find nothing under such a key: let the "
        "job, under its present Flink, move the state to keys that have an order"
        for one in without_order
    )
    if without_order:
        return type_
    found = declared_type(type_, path, declared)
    made = found.made if isinstance(found, ScalaType) else found
    if any(isinstance(one, SetType | MapType) for one in with_parts(made)):
        declared.problems.append(
            f"{declared.where(path)}: --declared has a Set or Map of Scala's in the keys, whose "
            "entries have no order by which a job finds such a key again: they are not rewritten"
        )
    return found
