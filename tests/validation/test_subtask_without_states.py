"""Catch-ups of a subtask that lacks a state, because its job makes a state when it first uses it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flinkstate.rocksdb.prefixes import Prefixes
from stateferry.changes.changed_keys import in_result
from stateferry.inventory import inventory_change
from stateferry.inventory.inventory_change import ChangedKeysTask
from stateferry.proof.changed_rows import together

RULES = SimpleNamespace(legacy=SimpleNamespace(name="old"), new_name="new", names={"old", "new", "flag"}, lazy_cut=None)
CONVERSION: Any = SimpleNamespace(
    rules=[RULES],
    by_kryo={},
    changes_key_groups=False,
    states={name: SimpleNamespace(name=name) for name in ("old", "new", "flag")},
)


def test_states_that_are_not_there_make_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    assert together(CONVERSION, {"timers"}) == [frozenset({"timers"})]
    assert together(CONVERSION, {"timers", "new"}) == [frozenset({"new"}), frozenset({"timers"})]

    monkeypatch.setattr(inventory_change, "watched", lambda *_: {"new", "flag"})
    task: Any = SimpleNamespace(all=SimpleNamespace(changes=CONVERSION))

    def groups(*names: str) -> list[frozenset[int]]:
        file: Any = SimpleNamespace(header=SimpleNamespace(states=[SimpleNamespace(name=name) for name in names]))
        return ChangedKeysTask._groups(task, file)

    assert groups("timers") == [frozenset({0})]
    assert groups("timers", "flag", "old") == [frozenset({1, 2}), frozenset({0})]


def test_changed_keys_of_a_new_state_alone_stay() -> None:
    one, other = Prefixes.of([b"\1a"]), Prefixes.of([b"Ab"])
    found = in_result({"old": one, "new": one.and_of(other)}, CONVERSION)
    assert list(found["old"].each()) == [b"\1a"]
    assert list(found["new"].each()) == [b"\1a", b"Ab"]
    assert in_result({"old": one, "new": one}, CONVERSION)["new"] is one
    assert in_result({"old": one}, CONVERSION)["new"] is one
    assert list(in_result({"new": other}, CONVERSION)["new"].each()) == [b"Ab"]
