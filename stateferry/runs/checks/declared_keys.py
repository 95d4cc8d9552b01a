"""Lists by Kryo in keys of operators, user keys and keys of broadcast states, as the new job declares them.

So are user keys, and keys of broadcast states, by the serializers of flink-scala.

A `Set` or `Map` in a key is refused: its entries come in another order when Flink has read them, and Flink finds
nothing under a key with other bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.type_parts import has_scala, with_parts
from flinkstate.serializers.types import FlinkType, MapType, ScalaType, SetType, simple_name
from stateferry.runs.checks.declared_collections import declared_type, interfaces_in, undecided

# Where `--declared` has the name of a state, or behind it. No one calls a state or a field so.
KEY = "(key)"
_WITHOUT_ORDER = ("java.util.Map", "java.util.Set")


def key_of(state: str) -> str:
    """Returns what the user key of a `MapState`, or the key of a broadcast state, is called in `--declared`."""
    return f"{state}.{KEY}"


def keys_of(state: KeyedState) -> Iterator[tuple[str, FlinkType]]:
    """Yields the types of the keys with what they are called in `--declared`."""
    yield KEY, state.key
    if state.user_key is not None:
        yield key_of(state.name), state.user_key


def as_declared(
    state: KeyedState, declared: Mapping[str, str], job: JobClasses | None, operator: Operator, problems: list[str]
) -> KeyedState:
    """Returns the state with the collections that Flink 2 writes itself; adds a problem for each that is undecided."""
    where = f"state {state.name} of operator {operator.label}"
    problems += (undecided(where, one) for one in interfaces_in(state.namespace))
    key, *others = (
        # Another hash would move an operator's keys by flink-scala to other key groups: they are refused as a whole.
        type_ if path == KEY and has_scala(type_) else declared_key(type_, path, declared, job, operator, problems)
        for path, type_ in keys_of(state)
    )
    value = None
    if state.value is not None:
        value = declared_type(state.value, state.name, declared, job, operator, problems)
    return replace(state, key=key, user_key=next(iter(others), None), value=value)


def declared_key(
    type_: FlinkType,
    path: str,
    declared: Mapping[str, str],
    job: JobClasses | None,
    operator: Operator,
    problems: list[str],
) -> FlinkType:
    """Returns the type of a key in which lists by Kryo are what the new job has; adds a problem for what can't be."""
    without_order = [one for one in interfaces_in(type_) if one.class_name in _WITHOUT_ORDER]
    problems += (
        f"state {path} of operator {operator.label}: there is a {simple_name(one.class_name)} by Kryo in the keys. Its "
        "entries come in another order when Flink has read them, so a job would find nothing under such a key: let the "
        "job, under its present Flink, move the state to keys that have an order"
        for one in without_order
    )
    if without_order:
        return type_
    found = declared_type(type_, path, declared, job, operator, problems)
    made = found.made if isinstance(found, ScalaType) else found
    if any(isinstance(one, SetType | MapType) for one in with_parts(made)):
        problems.append(
            f"state {path} of operator {operator.label}: --declared has a Set or Map of Scala's in the keys, whose "
            "entries have no order by which a job finds such a key again: they are not rewritten"
        )
    return found
