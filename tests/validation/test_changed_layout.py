"""Changed keys and whole key groups in the layout of the result."""

from __future__ import annotations

import struct
from dataclasses import replace
from math import gcd
from typing import Any

import pytest

from flinkstate.errors import RefusedError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.serializers.built_snapshots import kryo_snapshot
from flinkstate.serializers.types import Scalar
from flinkstate.values.hash_codes import key_group_of
from stateferry.changes.changed_keys import in_result
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Rules
from stateferry.changes.upgrade.for_other_kryo import all_by_kryo_2
from stateferry.proof.changed_layout import Databases, WholeGroups
from tests.support.changes import changes_of
from tests.support.legacy_states import LEGACY, NEW

BY_KRYO = kryo_snapshot("java.util.UUID").type
KEYS = [f"key-{number}" for number in range(50)]


def conversion(old: int, new: int) -> OperatorChanges:
    legacy, timers = (
        KeyedState(name, kind, Scalar.STRING, Scalar.VOID_NAMESPACE, None, None, False, False)
        for name, kind in ((LEGACY, StateKind.VALUE), ("timers", StateKind.TIMERS))
    )
    return changes_of((Rules(legacy, NEW, None, None, 0),), {LEGACY: legacy, "timers": timers}, old, new)


def rows(max_parallelism: int, before: bytes = b"", behind: bytes = b"") -> set[bytes]:
    width = 1 if max_parallelism <= 128 else 2
    return {
        (key_group_of(Scalar.STRING, key, max_parallelism) or 0).to_bytes(width, "big")
        + before + bytes([len(key) + 1]) + key.encode() + behind
        for key in KEYS
    }  # fmt: skip


def listed(keys: Prefixes) -> set[bytes]:
    bounds = zip(keys.bounds[:-1].tolist(), keys.bounds[1:].tolist(), strict=True)
    return {keys.keys[start:end].tobytes() for start, end in bounds}


@pytest.mark.parametrize(("old", "new"), [(128, 128), (128, 48), (128, 300), (300, 128)])
def test_changed_keys_get_the_key_groups_of_the_result(old: int, new: int) -> None:
    parts = {LEGACY: (b"", b""), "timers": (b"\x80" + bytes(7), b"\0")}
    keys = {state: Prefixes.of(rows(old, *of)) for state, of in parts.items()}
    found = in_result(keys, conversion(old, new))
    assert {state: listed(of) for state, of in found.items()} == {
        LEGACY: rows(new), "timers": rows(new, *parts["timers"]), NEW: rows(new),
    }  # fmt: skip
    assert [len(of) for of in in_result({LEGACY: Prefixes.of(())}, conversion(old, new)).values()] == [0, 0]


def by_kryo(state: KeyedState) -> OperatorChanges:
    return replace(changes_of((), {state.name: state}), by_kryo={state.name: all_by_kryo_2(state)})


@pytest.mark.parametrize("timestamp", [0, 1_700_000_000_000, -1, 2**63 - 1])
def test_timers_with_namespaces_by_kryo_are_told_by_their_timestamps(timestamp: int) -> None:
    """Of a timer, the timestamp comes first: read as a key, some are none."""
    state = KeyedState("timers", StateKind.TIMERS, Scalar.STRING, BY_KRYO, None, None, False, False)
    of_timer = b"\5" + struct.pack(">Q", timestamp + 2**63) + b"\2a"
    found = in_result({"timers": Prefixes.of([of_timer + b"\x54\1\2\4"])}, by_kryo(state))
    assert listed(found["timers"]) == {of_timer + b"\x54\1" + struct.pack("<qq", 1, 2)}


def test_a_key_that_came_and_went_and_cannot_be_written_is_named() -> None:
    state = KeyedState(
        "by key", StateKind.MAP, Scalar.STRING, Scalar.VOID_NAMESPACE, BY_KRYO, Scalar.LONG, False, False
    )
    keys = Prefixes.of([b"\5\2a\0\1\0com.acme.Opaqu" + bytes([ord("e") | 0x80]) + b"\1"])
    with pytest.raises(RefusedError, match=r"by key.*com\.acme\.Opaque.*leave --since out"):
        in_result({"by key": keys}, by_kryo(state))


@pytest.mark.parametrize(("old", "new"), [(128, 128), (128, 48), (128, 300), (300, 128), (16, 1024), (7, 9)])
def test_key_groups_that_are_read_whole_have_the_same_keys(old: int, new: int) -> None:
    divisor = gcd(old, new)
    whole = WholeGroups.of({divisor - 1}, divisor, conversion(old, new))
    assert (len(whole.source), len(whole.result)) == (old // divisor, new // divisor)
    for key in KEYS:
        before, after = (key_group_of(Scalar.STRING, key, size) for size in (old, new))
        assert (before in whole.source) == (after in whole.result)


class Handle:
    """Stands for a subtask's database with these key groups."""

    def __init__(self, first: int, last: int) -> None:
        self.range, self.size = KeyGroupRange(first, last), 10


def test_only_databases_and_key_groups_with_the_keys_are_read() -> None:
    handles: Any = {0: Handle(0, 99), 1: Handle(100, 199), 2: Handle(200, 299)}
    folder: Any = None
    databases = Databases(folder, handles)
    assert databases.of(KeyGroupRange(99, 100)).handles.keys() == {0, 1}
    assert databases.of(KeyGroupRange(100, 199)).handles.keys() == {1}
    chunk = databases.chunk(300, [Prefixes.of([b"\0\5a", b"\0\5b", b"\1\x2ba"]), Prefixes.of([b"\0\7a"])])
    # Those between two of them are read as well.
    assert [(part.subtask, part.key_groups) for part in chunk.parts] == [(0, (5, 6, 7)), (2, (299,))]
    assert (chunk.max_parallelism, chunk.size) == (300, 20)
    assert databases.chunk(300, []).parts == ()
