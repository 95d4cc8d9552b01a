"""What the public API refuses: arguments of other kinds, and entries and names that Flink wouldn't read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import flinkstate
from flinkstate import Entry, ListType, MapType, NewState, OpenSavepoint, Scalar
from flinkstate.errors import RefusedError, UsageError
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import (
    AvroBranch,
    AvroMapType,
    AvroUnionType,
    EitherType,
    NullableType,
    OptionType,
    PojoField,
    PojoType,
    PrimitiveArrayType,
    RowType,
    TupleType,
)
from flinkstate.values.codecs import encode
from flinkstate.values.java_values import EitherValue, OptionValue, PojoValue, RowValue, UnionValue
from flinkstate.writing import new_entries
from flinkstate.writing.copy_savepoint import copy_with
from flinkstate.writing.twice_in_maps import refuse_twice
from stateferry.demo import DemoState, write_demo_savepoint

GOLDEN = Path(__file__).parents[2] / "tests/savepoints"
COUNT = NewState("count", "VALUE", Scalar.LONG)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> OpenSavepoint:
    folder = tmp_path_factory.mktemp("refused") / "demo"
    write_demo_savepoint(str(folder), DemoState(20, 3, 0.5, 86_400_000, 1_700_000_000_000, 2, 128, 7))
    return flinkstate.open(str(folder))


def write(folder: Path, *entries: Any, kind: str = "VALUE", value: Any = Scalar.LONG, ttl: bool = False) -> None:
    user_key = Scalar.STRING if kind == "MAP" else None
    state = NewState("state", kind, value, user_key, ttl, entries)
    flinkstate.write(str(folder), "x", Scalar.STRING, [state])


def test_a_version_that_is_not_written_is_refused_before_the_first_file(demo: OpenSavepoint, tmp_path: Path) -> None:
    source = Savepoint.open(demo.path)
    old = replace(source, metadata=replace(source.metadata, version=2))
    with pytest.raises(RefusedError, match=r"demo/_metadata: version 2 can be read, but not written"):
        copy_with(old, str(tmp_path / "copy"), {})
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("value", ["abc", b"abc", 5, None, {"a": 1}, iter("a")])
def test_a_list_state_takes_lists(value: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="state state: expected a list"):
        write(tmp_path / "new", {"key": "a", "value": value}, kind="LIST", value=Scalar.STRING)
    assert not (tmp_path / "new").exists()
    write(tmp_path / "new", {"key": "a", "value": ("b", "c")}, kind="LIST", value=Scalar.STRING)
    (entry,) = flinkstate.open(str(tmp_path / "new")).operator("x").state("state").entries()
    assert entry.value == ["b", "c"]


def test_a_null_in_a_map_under_time_to_live_needs_a_timestamp_unless_it_was_read(tmp_path: Path) -> None:
    bare = {"key": "a", "user_key": "b", "value": None}
    with pytest.raises(UsageError, match="has a time to live, so each value needs the timestamp"):
        write(tmp_path / "new", bare, kind="MAP", value=Scalar.STRING, ttl=True)
    assert not (tmp_path / "new").exists()
    write(tmp_path / "without", bare, kind="MAP", value=Scalar.STRING)
    write(tmp_path / "own", {**bare, "timestamp": 5}, kind="MAP", value=Scalar.STRING, ttl=True)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (None, "expected entries, .* found a NoneType"),
        (5, "expected entries, .* found an? int"),
        ({"key": "a", "value": 1}, "expected entries, .* found a dict"),
        ("ab", "expected entries, .* found a str"),
        ([("a", 1)], "expected an Entry or a mapping with its fields, found a tuple"),
        ([Entry(0, "a", None, value=1), None], "expected an Entry or a mapping with its fields, found a NoneType"),
    ],
)
def test_entries_are_entries_or_mappings(entries: Any, said: str, demo: OpenSavepoint, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"state count: {said}"):
        flinkstate.write(
            str(tmp_path / "new"), "x", Scalar.STRING, [NewState("count", "VALUE", Scalar.LONG, entries=entries)]
        )
    with pytest.raises(UsageError, match=f"state isMigratedState: {said}"):
        demo.copy(str(tmp_path / "new"), {("main", "isMigratedState"): entries})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x" * 65_536, "a state's name has 65535 bytes at most"),
        ("é" * 40_000, "has 65535 bytes at most"),
        ("default", "on RocksDB"),
    ],
)
def test_names_that_flink_does_not_take_are_refused(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        flinkstate.write(str(tmp_path / "new"), "x", Scalar.LONG, [NewState(name, "VALUE", Scalar.LONG)])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key": "String"}, "key: expected a type, such as Scalar.LONG, found 'String'"),
        ({"key": ListType("String")}, "key: expected a type, such as Scalar.LONG, found 'String'"),  # type: ignore[arg-type]
        ({"uid": 5}, "expected the operator's uid, found 5"),
        ({"states": COUNT}, "expected a list of NewState, found a NewState"),
        ({"states": None}, "expected a list of NewState, found a NoneType"),
        ({"states": ["count"]}, "expected a NewState, found 'count'"),
        ({"parallelism": 2.0}, "expected a parallelism of 1..32768, found 2.0"),
        ({"max_parallelism": "128"}, "expected a max parallelism of 1..32768, found '128'"),
        ({"states": [NewState("list", "LIST", "Long")]}, "state list: value: expected a type"),  # type: ignore[arg-type]
        ({"states": [NewState("m", "MAP", Scalar.LONG, "Long")]}, "state m: user_key: expected a type"),  # type: ignore[arg-type]
        ({"states": [NewState(5, "VALUE", Scalar.LONG)]}, "expected the name of a state, found 5"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_other_kinds_are_refused_by_name(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"uid": "x", "key": Scalar.STRING, "states": [COUNT], **given}
    with pytest.raises(UsageError, match=said):
        flinkstate.write(tmp_path / "new", **arguments)
    assert not (tmp_path / "new").exists()


def test_states_and_numbers_may_be_what_stands_for_them(tmp_path: Path) -> None:
    flinkstate.write(tmp_path / "new", "x", Scalar.LONG, iter([COUNT]), parallelism=np.int64(2))  # type: ignore[arg-type]
    assert flinkstate.open(tmp_path / "new").operator("x").parallelism == 2


@pytest.mark.parametrize("type_", [Scalar.AVRO_STRING, Scalar.AVRO_NULL, ListType(Scalar.AVRO_STRING)])
def test_parts_of_avro_are_no_states_of_their_own(type_: Any, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"state state: value: a new state of type .* can't be described"):
        write(tmp_path / "new", value=type_)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"key": None, "value": 1}, "no key of the type String: .* found a null.*: value='1'"),
        ({"key": "b", "value": 1, "namespace": np.array([1, 2])}, "state state has no namespaces: key='b'"),
    ],
)
def test_an_entry_that_is_wrong_is_named(entry: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        write(tmp_path / "new", {"key": "a", "value": 0}, entry, {"key": "c", "value": 2})


def test_a_raw_key_with_other_bytes_is_named(demo: OpenSavepoint, tmp_path: Path) -> None:
    table = demo.operator("main").state("isMigratedState").to_arrow(raw=True).read_all()
    keys = [*table["key"].to_pylist()[:-1], b"\x05ab"]
    wrong = table.set_column(table.schema.names.index("key"), "key", pa.array(keys, pa.binary()))
    with pytest.raises(UsageError, match=r"state isMigratedState: no key of the type String: .*x05ab"):
        demo.copy(tmp_path / "new", {("main", "isMigratedState"): wrong}, raw=True)


def test_a_place_may_be_a_path(demo: OpenSavepoint, tmp_path: Path) -> None:
    flinkstate.open(Path(demo.path)).copy(tmp_path / "copy")
    assert flinkstate.open(tmp_path / "copy").path == str(tmp_path / "copy")
    flinkstate.write(tmp_path / "new", "x", Scalar.LONG, [NewState("y", "VALUE", Scalar.LONG)])
    assert flinkstate.open(tmp_path / "new").operator("x").state("y").kind == "VALUE"


@pytest.mark.parametrize("of", ["main", "ab", ("main",), ("main", "newMainState", "x"), 5])
def test_what_is_replaced_is_named_by_operator_and_state(of: Any, demo: OpenSavepoint, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected the pair \(operator, state\)"):
        demo.copy(str(tmp_path / "copy"), {of: []})


@pytest.mark.parametrize("key_groups", [(5,), (), (0, 128), (-1, 5), (6, 5), (0, -1), ("0", "5"), 5])
def test_key_groups_are_the_first_and_the_last_of_those_that_there_are(key_groups: Any, demo: OpenSavepoint) -> None:
    with pytest.raises(UsageError, match="expected the first and the last key group, from 0 to 127"):
        demo.operator("main").state("newMainState").to_arrow(key_groups=key_groups)


@pytest.mark.parametrize("key_group", [128, -1, "5"])
def test_a_key_group_is_one_that_there_is(key_group: Any, demo: OpenSavepoint) -> None:
    with pytest.raises(UsageError, match="expected a key group from 0 to 127"):
        demo.operator("main").state("newMainState").entries(key_group)


def test_a_copy_does_not_lie_in_its_source(demo: OpenSavepoint, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(demo.path)
    for target in (f"{demo.path}/copy", f"{tmp_path}/link/copy", f"file:{demo.path}/a/b", demo.path):
        with pytest.raises(UsageError, match="which is never written into"):
            demo.copy(target)
    assert not (Path(demo.path) / "copy").exists()
    demo.copy(f"{demo.path}-beside")


def test_the_same_key_in_two_key_groups_is_refused(tmp_path: Path) -> None:
    pojos = flinkstate.open(str(GOLDEN / "legacy-pojo-list-ttl-2.3-hashmap"))
    name = ("main", "isMigratedState")
    read = list(pojos.operator("main").state("isMigratedState").entries())
    pojos.copy(str(tmp_path / "copy"), {name: read})
    elsewhere = replace(read[0], key_group=(read[0].key_group + 1) % 128)
    with pytest.raises(UsageError, match="two entries with the same key"):
        pojos.copy(str(tmp_path / "twice"), {name: [*read, elsewhere]})


ROWS = RowType((Scalar.LONG, Scalar.STRING), True)


def by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> OpenSavepoint:
    """Writes what a job leaves that fills its rows by field name: they hash otherwise than by position."""
    entries = [{"key": RowValue((number, "x")), "value": number} for number in range(5)]
    with monkeypatch.context() as patched:
        patched.setattr(
            new_entries, "assign_to_key_groups", lambda codes, most: assign_to_key_groups(codes + 977, most)
        )
        states = [NewState(name, "VALUE", Scalar.LONG, entries=entries) for name in "ab"]
        flinkstate.write(folder, "x", ROWS, states, parallelism=2)
    return flinkstate.open(folder)


def test_keys_that_are_rows_stay_in_their_key_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = by_name(tmp_path / "rows", monkeypatch)
    state = rows.operator("x").state("a")
    read = sorted(state.entries(), key=lambda entry: entry.value)
    for name, entries, raw in (("read", read, False), ("raw", state.to_arrow(raw=True), True)):
        rows.copy(tmp_path / name, {("x", "a"): entries}, raw=raw)
        copied = flinkstate.open(tmp_path / name).operator("x").state("a")
        assert sorted(copied.entries(), key=lambda entry: entry.value) == read
    new = {"key": RowValue((7, "x")), "value": 7}
    with pytest.raises(UsageError, match=r"Row<Long,String>.* by field name.* Give each entry the key_group"):
        rows.copy(tmp_path / "new", {("x", "a"): [*read, new]})
    assert not (tmp_path / "new").exists()


_OF_LONGS = MapType(Scalar.STRING, Scalar.LONG)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (_OF_LONGS, [("a", 1), ("b", 2), ("a", 3)]),
        (_OF_LONGS, MappingProxyType({"\U0001f600": 1, "\ud83d\ude00": 2})),
        # Python compares characters, Java the units of UTF-16.
        (_OF_LONGS, {"\U0001f600": 1, "\ud83d\ude00": 2}),
        (ListType(_OF_LONGS), [[], [("a", 1), ("a", 1)]]),
        (MapType(Scalar.LONG, _OF_LONGS), {5: [("a", 1), ("a", 1)], 6: None}),
    ],
)
@pytest.mark.parametrize("ttl", [False, True])
def test_a_map_has_a_key_once(type_: Any, value: Any, ttl: bool, tmp_path: Path) -> None:
    entry = {"key": "a", "value": value, **({"timestamp": 5} if ttl else {})}
    with pytest.raises(UsageError, match=r"state state: a map has the key '.*' 2 times"):
        write(tmp_path / "new", entry, value=type_, ttl=ttl)


def test_keys_are_found_twice_in_values_of_every_type_with_parts() -> None:
    twice = [("a", 1), ("a", 1)]
    cat = PojoType("com.acme.Cat", (PojoField("legs", _OF_LONGS),))
    for type_, value in (
        (TupleType((_OF_LONGS, Scalar.LONG), "org.apache.flink.api.java.tuple.Tuple2"), (twice, 1)),
        (RowType((Scalar.LONG, _OF_LONGS), False), RowValue((None, twice))),
        (cat, PojoValue("com.acme.Cat", {"legs": twice})),
        (NullableType(_OF_LONGS, 0), twice),
        (OptionType(_OF_LONGS), OptionValue(twice, True)),
        (EitherType(Scalar.LONG, _OF_LONGS), EitherValue(twice, False)),
        (AvroMapType(Scalar.LONG), twice),
        (AvroUnionType((AvroBranch("null", Scalar.AVRO_NULL), AvroBranch("m", AvroMapType(Scalar.LONG)))), twice),
        (
            AvroUnionType((AvroBranch("int", Scalar.LONG), AvroBranch("m", AvroMapType(Scalar.LONG)))),
            UnionValue(1, twice),
        ),
    ):
        encode(type_, value)
        with pytest.raises(UsageError, match="a map has the key 'a' 2 times"):
            refuse_twice(type_, value)
    # In Java two arrays with the same elements are two keys, and so are two POJOs without an `equals`.
    refuse_twice(MapType(PrimitiveArrayType(Scalar.BYTE), Scalar.LONG), [(b"a", 1), (b"a", 2)])
    refuse_twice(MapType(cat, Scalar.LONG), [(PojoValue("com.acme.Cat", {"legs": []}), 1)] * 2)
