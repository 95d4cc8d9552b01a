"""Writes a savepoint of one operator from entries alone, without an older savepoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import SupportsIndex

from flinkstate.errors import RefusedError, UsageError
from flinkstate.hashing.key_groups import UPPER_BOUND_MAX_PARALLELISM, check_layout, ranges
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
    refuse_twins,
)
from flinkstate.keyed.state import keyed_states
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.metadata.savepoint_properties import CANONICAL_SAVEPOINT
from flinkstate.reading.reader import operator_id
from flinkstate.serializers.binary import encode_modified_utf8
from flinkstate.serializers.built_snapshots import (
    list_snapshot,
    map_snapshot,
    simple_snapshot,
    snapshot_of,
    ttl_snapshot,
)
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import FlinkType, Scalar
from flinkstate.writing.new_entries import Given, as_entries, new_rows
from flinkstate.writing.writer import SavepointWriter

# The last version of `_metadata` that Flink 1.20 reads; newer ones read it too.
_METADATA_VERSION = 4
_OF_ROCKSDB = "default"
_MOST_BYTES_OF_NAME = 0xFFFF


@dataclass(frozen=True, slots=True)
class NewState:
    """A keyed state that is written from entries.

    `kind` is VALUE, LIST or MAP. `value` is the type of a value, of a list's element or of a map's value; a map has a
    `user_key`. With `ttl` the state is under time to live, and each entry has a timestamp.
    """

    name: str
    kind: str
    value: FlinkType
    user_key: FlinkType | None = None
    ttl: bool = False
    entries: Given = field(default=(), repr=False)

    def meta(self) -> StateMeta:
        """Returns its description in a header."""
        if not isinstance(self.name, str):
            raise UsageError(f"expected the name of a state, found {self.name!r}")
        if self.kind not in ("VALUE", "LIST", "MAP"):
            raise UsageError(f"state {self.name}: expected the kind VALUE, LIST or MAP, found {self.kind!r}")
        if (self.kind == "MAP") != (self.user_key is not None):
            raise UsageError(f"state {self.name}: expected a user_key for a MAP, and for no other kind")
        if self.name == _OF_ROCKSDB:
            raise UsageError(
                f"Flink refuses a state {self.name!r} on RocksDB, which has a column family of that name itself: give "
                "the state another name"
            )
        if (size := len(encode_modified_utf8(self.name))) > _MOST_BYTES_OF_NAME:
            raise UsageError(
                f"a state's name has {_MOST_BYTES_OF_NAME} bytes at most, {self.name[:20]!r}... has {size}"
            )
        value = _described(self.value, f"state {self.name}: value")
        if self.ttl:
            value = ttl_snapshot(value)
        if self.user_key is not None:
            value = map_snapshot(_described(self.user_key, f"state {self.name}: user_key"), value)
        elif self.kind == "LIST":
            value = list_snapshot(value)
        return meta_of(self.name, self.kind, value)


def _described(type_: FlinkType, argument: str) -> SerializerSnapshot:
    try:
        return snapshot_of(type_)
    except (UsageError, RefusedError) as error:
        raise type(error)(f"{argument}: {error}") from error


def meta_of(name: str, kind: str, value: SerializerSnapshot) -> StateMeta:
    """Returns the description of a state without namespaces."""
    serializers = ((VALUE_SERIALIZER, value), (NAMESPACE_SERIALIZER, simple_snapshot(Scalar.VOID_NAMESPACE)))
    return StateMeta(name, BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, kind),), serializers)


def write_new(
    target: str, uid: str, key: FlinkType, states: Sequence[NewState], parallelism: int, max_parallelism: int
) -> None:
    """Writes a canonical savepoint of one operator into a new folder."""
    if not isinstance(uid, str):
        raise UsageError(f"expected the operator's uid, found {uid!r}")
    states = _listed(states)
    parallelism = _whole(parallelism, "parallelism")
    max_parallelism = _whole(max_parallelism, "max parallelism")
    check_layout(max_parallelism, parallelism)
    header = KeyedHeader(False, _described(key, "key"), tuple(state.meta() for state in states))
    refuse_twins(header.states, target)
    described = keyed_states(header, target)
    rows = [new_rows(one, state.entries, max_parallelism) for one, state in zip(described, states, strict=True)]
    writer, id_ = SavepointWriter(target), operator_id(uid)
    subtasks = []
    for subtask, key_groups in enumerate(ranges(max_parallelism, parallelism)):
        with writer.keyed_file(id_.hex(), subtask, header, key_groups) as file:
            for key_group in key_groups:
                for number, of_state in enumerate(rows):
                    if key_group in of_state:
                        file.entries(key_group, number, *as_entries(of_state[key_group]))
            subtasks.append(Subtask(subtask, managed_keyed=file.close()))
    operator = Operator(id_, parallelism, max_parallelism, subtasks=tuple(subtasks))
    writer.commit(Metadata(_METADATA_VERSION, 1, (operator,), properties=CANONICAL_SAVEPOINT))


def _listed(states: Iterable[NewState]) -> list[NewState]:
    if not isinstance(states, Iterable):
        raise UsageError(f"expected a list of NewState, found a {type(states).__name__}")
    listed = list(states)
    for state in listed:
        if not isinstance(state, NewState):
            raise UsageError(f"expected a NewState, found {state!r}")
    return listed


def _whole(given: SupportsIndex, name: str) -> int:
    try:
        return index(given)
    except TypeError:
        raise UsageError(f"expected a {name} of 1..{UPPER_BOUND_MAX_PARALLELISM}, found {given!r}") from None
