"""Each difference of `_metadata` and of headers is told, in words that say what was expected and what was found."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.metadata.metadata import InlineBytes, KeyedHandle, Metadata, NativeHandle, Operator, Subtask
from flinkstate.metadata.savepoint_properties import NATIVE_SAVEPOINT
from flinkstate.serializers.built_snapshots import map_snapshot, simple_snapshot, ttl_snapshot
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import MapType, OpaqueType, PojoField, PojoType, Scalar
from flinkstate.writing.operator_rewrite import Layout
from stateferry.changes.lazy_cut import LazyCut, Order
from stateferry.changes.rules import Rules
from stateferry.proof import checks
from stateferry.proof.expected.check_result import Outcome
from stateferry.proof.metadata_check import (
    Mismatch,
    _described_fields,
    compare_headers,
    compare_metadata,
    expected_header,
    moving,
)
from stateferry.proof.operator_pairs import OperatorPair
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from tests.support.changes import back, changes_of
from tests.support.expected_columns import SAVEPOINTS

FILE = InlineBytes("file", b"")


def test_ten_differences_are_enough() -> None:
    found = [Mismatch(f"thing {number}", "one", "two", (number, 3)) for number in range(11)]
    check = checks._of_differences("name", found)
    assert (check.outcome, check.actual, len(check.samples)) == (
        Outcome.FAILED, "thing 0: expected one, found two", 10,
    )  # fmt: skip
    assert check.key_groups == tuple(range(11))


def keyed(index: int, start: int, end: int) -> Subtask:
    return Subtask(index, managed_keyed=KeyedHandle(KeyGroupRange(start, end), (0,) * (end - start + 1), FILE))


def native(index: int, start: int, end: int) -> Subtask:
    handle = NativeHandle(KeyGroupRange(start, end), 9, "", FILE, (), ())
    return Subtask(index, native_keyed=handle)


ONE = Operator(b"1" * 16, 2, 8, "one", "one", subtasks=(keyed(0, 0, 3), keyed(1, 4, 7)))
TWO = Operator(b"2" * 16, 3, 8, "two", "two", subtasks=(Subtask(0, finished=True), Subtask(1)))
SOURCE = Metadata(6, 9, (ONE, TWO), (b"master",), b"properties")


def told(staged: Metadata, source: Metadata = SOURCE, layout: Layout | None = None) -> list[tuple[object, ...]]:
    found = compare_metadata(source, staged, layout or Layout())
    return [(one.what, one.expected, one.found, one.key_groups) for one in found]


def one_as(*subtasks: Subtask, **changes: Any) -> Metadata:
    operator = replace(ONE, **changes)
    return replace(SOURCE, operators=(replace(operator, subtasks=subtasks) if subtasks else operator, TWO))


GROUPS = "operator one: key groups of subtask"


@pytest.mark.parametrize(
    ("staged", "differences"),
    [
        (SOURCE, []),
        (replace(SOURCE, version=5), [("version", "6", "5", ())]),
        (replace(SOURCE, checkpoint_id=8), [("checkpoint id", "9", "8", ())]),
        (replace(SOURCE, master_states=()), [("master states", "the source's 1", "other master states", ())]),
        (replace(SOURCE, properties=b""),
         [("properties", "the source's, as of a canonical savepoint", "other properties", ())]),
        (replace(SOURCE, operators=(ONE,)), [("operator two", "an operator of this id", "none", ())]),
        (replace(SOURCE, operators=(ONE, TWO, replace(TWO, id=b"3" * 16, uid="three"))),
         [("operator three", "no operator of this id", "one", ())]),
        (one_as(name="other"), [("operator one: name", "one", "other", ())]),
        (one_as(uid="other"), [("operator one: uid", "one", "other", ())]),
        (one_as(max_parallelism=9), [("operator one: max parallelism", "8", "9", ())]),
        (one_as(parallelism=3), [("operator one: parallelism", "2", "3", ())]),
        (one_as(fully_finished=True), [("operator one: fully finished", "False", "True", ())]),
        (one_as(coordinator=FILE), [("operator one: coordinator state", "the source's", "other bytes", ())]),
        (replace(SOURCE, operators=(ONE, replace(TWO, subtasks=tuple(Subtask(n, finished=True) for n in (1, 0))))),
         [("operator two: finished subtasks", "[0]", "[0, 1]", ())]),
        (one_as(keyed(0, 0, 3)), [(f"{GROUPS} 1", "[4, 7]", "none", (4, 7))]),
        (one_as(keyed(0, 0, 3), keyed(1, 4, 6)), [(f"{GROUPS} 1", "[4, 7]", "[4, 6]", (4, 7))]),
        (one_as(keyed(0, 0, 4), keyed(1, 4, 7)),
         [(f"{GROUPS} 0", "[0, 3]", "[0, 4]", (0, 3)),
          ("operator one: key groups of two subtasks", "no overlap", "[0, 4] and [4, 7]", (4,))]),
        (one_as(keyed(0, 0, 3), keyed(1, 4, 7), keyed(2, 5, 5)),
         [(f"{GROUPS} 2", "none", "[5, 5]", (5,)),
          ("operator one: key groups of two subtasks", "no overlap", "[4, 7] and [5, 5]", (5,))]),
        (one_as(keyed(0, 0, 3), native(1, 4, 7)),
         [("operator one: keyed state of subtask 1", "canonical", "native", (4, 7))]),
    ],
)  # fmt: skip
def test_a_difference_of_metadata(staged: Metadata, differences: list[tuple[object, ...]]) -> None:
    assert told(staged) == differences


def test_another_layout_has_other_ranges() -> None:
    layout = Layout({ONE.id: 3})
    right = one_as(keyed(0, 0, 2), keyed(1, 3, 5), keyed(2, 6, 7), parallelism=3)
    assert told(right, layout=layout) == []
    few = one_as(keyed(0, 0, 2), keyed(1, 3, 5), parallelism=3)
    assert told(few, layout=layout) == [(f"{GROUPS} 2", "[6, 7]", "none", (6, 7))]
    # In a changed layout no subtask is finished, and without keyed state none needs any.
    assert told(replace(few, operators=(right.operators[0], replace(TWO, subtasks=()))), layout=layout) == [
        ("operator two: finished subtasks", "[0]", "[]", ())
    ]
    both = Layout({ONE.id: 3, TWO.id: 4})
    other = replace(right, operators=(right.operators[0], replace(TWO, parallelism=4, subtasks=())))
    assert told(other, layout=both) == []
    assert moving(ONE, layout)
    assert not moving(ONE, Layout())
    assert moving(ONE, Layout(max_parallelism=9))
    assert not moving(TWO, both)


def test_at_another_max_parallelism_alone_the_same_subtasks_are_finished() -> None:
    """Flink would start one anew that isn't, and read its input again."""
    wide = tuple(replace(one, max_parallelism=9) for one in SOURCE.operators)
    layout = Layout(max_parallelism=9)
    lost = replace(SOURCE, operators=(wide[0], replace(wide[1], subtasks=())))
    what = "operator two: finished subtasks"
    assert [one.what for one in compare_metadata(SOURCE, lost, layout) if "finished" in one.what] == [what]
    kept = replace(SOURCE, operators=wide)
    assert not [one for one in compare_metadata(SOURCE, kept, layout) if "finished" in one.what]


def test_keys_with_other_hashes_may_go_to_each_subtask() -> None:
    bare = replace(ONE, subtasks=(keyed(0, 0, 3),))
    source = replace(SOURCE, operators=(bare, TWO))
    assert [one.what for one in compare_metadata(source, source, Layout(), {ONE.id})] == [f"{GROUPS} 1"]
    assert not list(compare_metadata(source, SOURCE, Layout(), {ONE.id}))
    assert list(compare_metadata(source, source, Layout(), {TWO.id})) == []
    assert moving(ONE, Layout(), rehashed=True)
    assert not moving(TWO, Layout(), rehashed=True)


def test_a_subtask_that_had_no_keyed_state_may_have_none() -> None:
    half = replace(SOURCE, operators=(replace(ONE, subtasks=(keyed(0, 0, 3),)), TWO))
    assert told(half, half) == []
    assert told(SOURCE, half) == [(f"{GROUPS} 1", "none", "[4, 7]", (4, 7))]


def test_a_native_result_is_native() -> None:
    layout = Layout(native=frozenset((ONE.id,)))
    right = replace(one_as(native(0, 0, 3), native(1, 4, 7)), properties=NATIVE_SAVEPOINT)
    assert told(right, layout=layout) == []
    wrong = one_as(native(0, 0, 3), keyed(1, 4, 7))
    assert told(wrong, layout=layout) == [
        ("properties", "the source's, as of a native savepoint", "other properties", ()),
        ("operator one: keyed state of subtask 1", "native", "canonical", (4, 7)),
    ]


TEXT, LONG = simple_snapshot(Scalar.STRING), simple_snapshot(Scalar.LONG)
NAMESPACE = (NAMESPACE_SERIALIZER, simple_snapshot(Scalar.VOID_NAMESPACE))


def meta(name: str, value: SerializerSnapshot | None = LONG, kind: str = "VALUE") -> StateMeta:
    values = () if value is None else ((VALUE_SERIALIZER, value),)
    return StateMeta(name, BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, kind),), (*values, NAMESPACE))


def header(*metas: StateMeta, key: SerializerSnapshot = TEXT) -> KeyedHeader:
    return KeyedHeader(False, key, metas)


A, B, OTHER_A = meta("a"), meta("b"), meta("a", map_snapshot(TEXT, LONG), "MAP")
WHERE = "operator x, subtask 4"
MAP_IN_WORDS = "MAP MapSerializer(StringSerializer, LongSerializer)"


@pytest.mark.parametrize(
    ("own", "found", "differences"),
    [
        (None, header(A, B), []),
        (None, header(B, A), []),
        (None, header(A, B, key=LONG), [(f"{WHERE}: key serializer", "StringSerializer", "another description")]),
        (header(A, B, key=LONG), header(A, B, key=LONG), []),
        (header(A, B, key=LONG), header(A, B, key=TEXT), []),
        (header(A, B), header(A, B, key=LONG),
         [(f"{WHERE}: key serializer", "StringSerializer", "another description")]),
        (None, header(A, B, B), [(f"{WHERE}: state b", "one description", "2")]),
        (None, header(A, B, B, B), [(f"{WHERE}: state b", "one description", "3")]),
        (None, header(A, B, meta("c")), [(f"{WHERE}: state c", "no such state", "its description")]),
        (None, header(A), [(f"{WHERE}: state b", "its description", "none")]),
        (header(A), header(A), []),
        (header(B), header(A), [(f"{WHERE}: state b", "its description", "none")]),
        (None, header(OTHER_A, B), [(f"{WHERE}: state a", "VALUE LongSerializer", MAP_IN_WORDS)]),
        (header(B), header(OTHER_A, B), [(f"{WHERE}: state a", "VALUE LongSerializer", MAP_IN_WORDS)]),
        (header(OTHER_A), header(OTHER_A, B), []),
        (header(OTHER_A), header(A, B), []),
        (None, header(meta("a", None), B),
         [(f"{WHERE}: state a", "VALUE LongSerializer", "VALUE without a serializer")]),
        (None, header(replace(A, options=()), B),
         [(f"{WHERE}: state a", "VALUE LongSerializer", "KEY_VALUE LongSerializer")]),
        (None, header(replace(A, serializers=A.serializers[::-1]), B), []),
    ],
)  # fmt: skip
def test_a_difference_of_headers(
    own: KeyedHeader | None, found: KeyedHeader, differences: list[tuple[str, str, str]]
) -> None:
    made = list(compare_headers("x", header(A, B), {4: own} if own else {}, {4: found}))
    assert [(one.what, _short(one.expected), _short(one.found)) for one in made] == differences


def _short(words: str) -> str:
    """Without the names of outer classes, and the key serializer's package."""
    return re.sub(r"[\w.]+\.|\w+\$|Snapshot\b", "", words)


OLD_STATE = KeyedState(
    "old",
    StateKind.VALUE,
    Scalar.STRING,
    Scalar.VOID_NAMESPACE,
    None,
    MapType(Scalar.STRING, Scalar.LONG),
    False,
    False,
)
FLAG = KeyedState("flag", StateKind.VALUE, Scalar.STRING, Scalar.VOID_NAMESPACE, None, Scalar.BOOLEAN, False, False)
RULES = Rules(OLD_STATE, "new", "flag", None, 0)
MAP, STAMPED = map_snapshot(TEXT, LONG), map_snapshot(TEXT, ttl_snapshot(LONG))
BOOLEAN = simple_snapshot(Scalar.BOOLEAN)


def made_of(*metas: StateMeta, rules: Rules = RULES, keep_legacy: bool = False) -> tuple[StateMeta, ...]:
    conversion = changes_of((replace(rules, keep_legacy=keep_legacy),), {}, 8, 8)
    return expected_header(header(*metas), conversion).states


def test_what_becomes_of_a_header() -> None:
    old, new, flag = meta("old", MAP), meta("new", MAP, "MAP"), meta("flag", BOOLEAN)
    assert made_of(A, old, flag) == (A, new)
    assert made_of(new, A, old) == (new, A)
    assert made_of(A, old, flag, keep_legacy=True) == (A, old, flag, new)
    ttl = replace(RULES, legacy=replace(OLD_STATE, ttl=True))
    old_stamped, new_stamped = meta("old", ttl_snapshot(MAP)), meta("new", STAMPED, "MAP")
    assert made_of(A, old_stamped, rules=ttl) == (A, new_stamped)
    # A description that doesn't have the timestamps outside is left as it is.
    assert made_of(A, old, rules=ttl) == (A, new)
    # Where the old and the new state are described in two ways, what is made of the old one counts.
    assert made_of(meta("new", map_snapshot(TEXT, TEXT), "MAP"), old) == (new,)
    assert made_of(A, new, flag, rules=back(RULES)) == (A, old)
    assert made_of(A, new_stamped, rules=back(ttl)) == (A, old_stamped)
    lazy = replace(RULES, lazy_cut=LazyCut(Order.HASH, 1, FLAG))
    assert made_of(A, old, rules=lazy) == (A, old, new, flag)
    assert made_of(A, flag, old, rules=lazy) == (A, flag, old, new)
    stamped_flag = replace(lazy, lazy_cut=LazyCut(Order.HASH, 1, replace(FLAG, ttl=True)))
    assert made_of(old, rules=stamped_flag) == (old, new, meta("flag", ttl_snapshot(BOOLEAN)))


def test_of_a_pojo_some_fields_are_described() -> None:
    """A field's type that couldn't be named has the field's name."""
    types = (("a", Scalar.LONG), ("b", OpaqueType("b", "why")), ("c", OpaqueType("com.acme.Any", "why")))
    pojo = PojoType("com.acme.Pojo", tuple(PojoField(name, type_) for name, type_ in types))
    assert _described_fields(SerializerSnapshot("", 1, pojo, (), b"")) == ["a", "c"]
    assert _described_fields(SerializerSnapshot("", 1, Scalar.LONG, (), b"")) == []


def test_a_header_that_is_still_the_sources_is_none_of_the_other_kryo(tmp_path: Path) -> None:
    places = {"source": str(SAVEPOINTS / "hint-map-1.20-rocksdb"), "target": str(tmp_path / "target"), "run_id": "one"}
    options = {"operators": [], "job": "main", "to": "flink-2", "declared": {"main/mainState": "Map<String, Long>"}}
    plan = planned({**places, **options, "home": str(tmp_path / "home")})
    resolved = resolve(plan, open_source(plan))
    (operator,) = resolved.source.keyed_operators()
    pair = OperatorPair(resolved.source, resolved.source, operator, operator)
    check = checks._headers(pair, resolved.conversion)
    assert check.outcome is Outcome.FAILED
    assert check.actual.endswith("found VALUE KryoSerializer")
