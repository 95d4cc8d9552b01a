"""Validation catches what a careful saboteur does, names it, and raises no false alarm."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.hashing.java_hash import hash_codes
from flinkstate.hashing.key_groups import KeyGroupRange, assign_to_key_group
from flinkstate.keyed.compression import Compression
from flinkstate.keyed.header import VALUE_SERIALIZER, KeyedHeader, StateMeta
from flinkstate.metadata.metadata import InlineBytes, KeyedHandle, Operator
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.built_snapshots import map_snapshot
from flinkstate.serializers.types import KryoMapType, KryoType, MapType, Scalar
from flinkstate.writing.operator_rewrite import Layout
from stateferry.basics.state_ref import StateRef
from stateferry.changes.blobs_to_rows import BlobsToRows
from stateferry.changes.operator_changes import Conversion
from stateferry.changes.rules import Contradiction, Nulls, NullsCannotBeKeptError, Rules
from stateferry.proof.checks import CheckResult, CheckTask, StagedStates, do_here, open_staged, plan_checks, validate
from stateferry.proof.expected import kernels as check_kernels
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.expected.content import Account
from stateferry.proof.judgement import table_check
from stateferry.proof.keyed_result import KeyedResult, Side
from stateferry.proof.tally import TableAccount
from tests.support.changes import conversion_of
from tests.support.rewriting import rewrite
from tests.support.saboteur import Groups, Row, Saboteur

GOLDEN = Path(__file__).parents[1] / "savepoints"
NEW, LEGACY, FLAG = "newMainState", "mainState", "isMigratedState"
PLAIN = ": sample read plainly"
DAY = 86_400_000


@dataclass(frozen=True)
class Case:
    """A savepoint, what was to become of it, and what became of it."""

    source: Savepoint
    conversion: Conversion
    folder: Path
    uid: str

    def checks(self, folder: Path) -> list[Check]:
        staged = open_staged(str(folder))
        return [staged] if isinstance(staged, Check) else validate(self.source, staged, self.conversion)

    def with_rules(self, rules: Rules) -> Case:
        id_ = self.source.operator(self.uid).id
        return replace(self, conversion=conversion_of(self.source, self.conversion.layout, {id_: (rules,)}))


def rules_of(source: Savepoint, uid: str, **settings: object) -> Rules:
    states = {state.name: state for state in source.keyed_states(source.operator(uid))}
    legacy = states[LEGACY]
    if isinstance(legacy.value, KryoType):
        # All golden maps by Kryo are of this type.
        map_ = MapType(Scalar.STRING, Scalar.LONG)
        legacy = replace(legacy, value=KryoMapType(legacy.value.class_name, legacy.value.reason, legacy.value, map_))
    rules = Rules(legacy, NEW, FLAG, None, 0)
    if legacy.ttl:
        settings = {"ttl": 30 * DAY, "nulls": Nulls.DROP, **settings}
    return replace(rules, **settings)  # type: ignore[arg-type]


def migrated(source: Path, target: Path, uid: str, layout: Layout, keep: bool = False, **settings: object) -> Case:
    savepoint = Savepoint.open(str(source))
    operator = savepoint.operator(uid)
    states = {state.name: state for state in savepoint.keyed_states(operator)}
    rules = rules_of(savepoint, uid, keep_legacy=keep, **settings)
    if layout.compression is Compression.SOURCE:
        layout = replace(layout, compression=Compression.NONE)
    rewrite(savepoint, str(target), layout, transforms={operator.id: BlobsToRows([rules], states)})
    return Case(savepoint, conversion_of(savepoint, layout, {operator.id: (rules,)}), target, uid)


def expiring(case: str) -> int:
    """A time at which half of the timestamps, 30 days later, have passed."""
    found = [json.loads(line) for line in (GOLDEN / case / "expected.jsonl").read_text().splitlines()]
    stamps = sorted(line["timestamp"] for line in found if isinstance(line.get("timestamp"), int))
    return int(stamps[len(stamps) // 2]) + 30 * DAY


def failed(checks: list[Check]) -> dict[str, Check]:
    """Without the check by plain code, which is red wherever that of the content is: these states are small."""
    found = {check.name: check for check in checks if check.outcome is Outcome.FAILED}
    plain = {name.removesuffix(PLAIN) for name in found if name.endswith(PLAIN)}
    assert plain >= {name.removesuffix(": content") for name in found if name.endswith(": content")}
    return {name: check for name, check in found.items() if not name.endswith(PLAIN)}


def assert_green(checks: list[Check]) -> None:
    assert checks
    assert failed(checks) == {}
    for rows in (check for check in checks if check.name.endswith(": rows")):
        assert_adds_up(rows)


def assert_adds_up(rows: Check) -> None:
    """What the rows come from is as many as they are."""
    expected, formula = rows.expected.split(" = ")
    signed = formula.replace("- ", "-").replace("+ ", "").split()
    assert sum(int(part) for part in signed if part.lstrip("-").isdigit()) == int(expected)


# No false alarms.

LEGACY_CASES = sorted(folder.name for folder in GOLDEN.glob("legacy*"))
LAYOUTS = {
    "same": Layout(),
    "p1": Layout({operator_id("main"): 1}),
    "p7": Layout({operator_id("main"): 7}),
    "max300": Layout(max_parallelism=300),
    "max64": Layout(max_parallelism=64),
}
SETTINGS: dict[str, dict[str, object]] = {
    "plain": {},
    "expired kept": {"keep_expired": True},
    "blob wins, legacy kept": {"on_contradiction": Contradiction.BLOB, "keep": True},
}


def migrations() -> Iterator[Any]:
    """Every case in every layout with all settings, which are taken in turn where not all tests run."""
    for at, (case, layout) in enumerate(product(LEGACY_CASES, LAYOUTS)):
        for number, settings in enumerate(SETTINGS):
            marks = () if number == at % len(SETTINGS) else pytest.mark.full
            yield pytest.param(case, layout, settings, marks=marks, id=f"{case}-{layout}-{settings}")


@pytest.mark.matrix(most=25)
@pytest.mark.part
@pytest.mark.parametrize(("case", "layout", "settings"), tuple(migrations()))
def test_what_the_migration_writes_is_green(case: str, layout: str, settings: str, tmp_path: Path) -> None:
    options = dict(SETTINGS[settings])
    if "-ttl" in case:
        options["now"] = expiring(case)
    try:
        made = migrated(GOLDEN / case, tmp_path / "new", "main", LAYOUTS[layout], **options)  # type: ignore[arg-type]
    except RefusedError:
        assert (case, layout[:3]) == ("legacy-pojo-list-ttl-2.3-hashmap", "max")
        return
    checks = made.checks(made.folder)
    assert_green(checks)
    unknown = {check.name for check in checks if check.outcome is Outcome.COULD_NOT_TELL}
    keys = "keys in the key groups of their hashes"
    assert all(name.endswith(keys) for name in unknown)
    assert bool(unknown) == (case == "legacy-pojo-list-ttl-2.3-hashmap")


def plain_cases() -> list[str]:
    left_out = ("native", "checkpoint", "heap")
    return sorted(one.name for one in GOLDEN.iterdir() if one.is_dir() and not one.name.startswith(left_out))


@pytest.mark.matrix(most=25)
@pytest.mark.part
@pytest.mark.parametrize("layout", [Layout(), Layout(max_parallelism=1000)], ids=["same", "max1000"])
@pytest.mark.parametrize("case", plain_cases())
def test_what_only_moves_is_green(case: str, layout: Layout, tmp_path: Path) -> None:
    source = Savepoint.open(str(GOLDEN / case))
    try:
        rewrite(source, str(tmp_path / "new"), layout)
    except RefusedError:
        assert layout.max_parallelism
        return
    assert_green(validate(source, Savepoint.open(str(tmp_path / "new")), conversion_of(source, layout)))


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("case", ["operator-state-1.20-hashmap", "operator-state-2.3-rocksdb"])
def test_operator_state_that_was_dealt_out_is_green(case: str, parallelism: int, tmp_path: Path) -> None:
    source = Savepoint.open(str(GOLDEN / case))
    layout = Layout({operator_id("keyed"): parallelism, operator_id("plain"): parallelism})
    rewrite(source, str(tmp_path / "new"), layout)
    assert_green(validate(source, Savepoint.open(str(tmp_path / "new")), conversion_of(source, layout)))


def test_the_sum_says_what_the_rows_come_from(tmp_path: Path) -> None:
    case = migrated(
        GOLDEN / "legacy-ttl-2.3-rocksdb", tmp_path / "new", "main", Layout(), now=expiring("legacy-ttl-2.3-rocksdb")
    )
    rows = next(check for check in case.checks(case.folder) if check.name == f"main/{NEW}: rows")
    expected, formula = rows.expected.split(" = ")
    assert expected == rows.actual
    assert_adds_up(rows)
    assert "blob entries expired" in formula
    assert "rows expired" in formula


# Sabotage.


def rows_of(groups: Groups, state: str) -> Iterator[tuple[int, int, Row]]:
    """Key group, place and row."""
    for key_group, rows in groups.items():
        for place, row in enumerate(rows):
            if row.state == state:
                yield key_group, place, row


def key_group_prefix(key_group: int, like: Row, max_parallelism: int) -> bytes:
    width = 1 if max_parallelism <= 128 else 2
    return key_group.to_bytes(width, "big") + like.key[width:]


@pytest.fixture(scope="module", params=["same", "max300"])
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("plain")
    return migrated(GOLDEN / "legacy-2.3-rocksdb", folder / "new", "main", LAYOUTS[request.param])


@pytest.fixture(scope="module", params=["same", "max300"])
def stamped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    case, folder = "legacy-ttl-2.3-rocksdb", tmp_path_factory.mktemp("stamped")
    return migrated(GOLDEN / case, folder / "new", "main", LAYOUTS[request.param], now=expiring(case))


@pytest.fixture(scope="module")
def with_others(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("others")
    return migrated(GOLDEN / "several-operators-2.3-hashmap", folder / "new", "main", Layout())


@pytest.fixture(scope="module", params=[3, 2], ids=["same", "p2"])
def with_timers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("timers")
    layout = Layout({operator_id("keyed"): request.param})
    return migrated(GOLDEN / "operator-state-2.3-rocksdb", folder / "new", "keyed", layout)


def sabotaged(case: Case, tmp_path: Path, change: Callable[[Groups], int | None]) -> tuple[dict[str, Check], int]:
    """What failed after rows were changed, and the key group that `change` says it is about."""
    saboteur = Saboteur(case.folder, tmp_path / "sabotaged")
    told: list[int] = []

    def remember(groups: Groups) -> None:
        told.append(change(groups) or 0)

    saboteur.change_rows(case.uid, remember)
    return failed(case.checks(saboteur.folder)), told[0]


def assert_caught(found: dict[str, Check], name: str, key_group: int, *words: str) -> None:
    check = found[name]
    assert key_group in check.key_groups
    assert check.samples
    assert any(all(word in sample for word in words) for sample in check.samples), check.samples


@pytest.mark.part
@pytest.mark.parametrize("which", [0, 17, -1])
def test_an_entry_missing(plain: Case, which: int, tmp_path: Path) -> None:
    def change(groups: Groups) -> int:
        key_group, place, _ = list(rows_of(groups, NEW))[which]
        del groups[key_group][place]
        return key_group

    found, key_group = sabotaged(plain, tmp_path, change)
    for check in ("rows", "content"):
        assert found[f"main/{NEW}: {check}"].key_groups == (key_group,)
        assert_caught(found, f"main/{NEW}: {check}", key_group, f"key group {key_group}: key ", "user key ", "missing")
    assert len(found) == 2


def test_an_entry_doubled(plain: Case, tmp_path: Path) -> None:
    def change(groups: Groups) -> int:
        key_group, place, row = next(rows_of(groups, NEW))
        groups[key_group].insert(place, row)
        return key_group

    found, key_group = sabotaged(plain, tmp_path, change)
    assert_caught(found, f"main/{NEW}: rows", key_group, "doubled")
    assert_caught(found, f"main/{NEW}: content", key_group, "doubled")


def test_values_swapped_between_keys(plain: Case, tmp_path: Path) -> None:
    def change(groups: Groups) -> int:
        one = next(rows_of(groups, NEW))
        other = next(found for found in rows_of(groups, NEW) if found[2].value != one[2].value and found[0] != one[0])
        for (key_group, place, row), twin in ((one, other[2]), (other, one[2])):
            groups[key_group][place] = replace(row, value=twin.value)
        return one[0]

    found, key_group = sabotaged(plain, tmp_path, change)
    assert set(found) == {f"main/{NEW}: content"}
    assert_caught(found, f"main/{NEW}: content", key_group, "expected", "found")
    assert len(found[f"main/{NEW}: content"].samples) == 2


def test_user_keys_swapped_within_a_key_group(plain: Case, tmp_path: Path) -> None:
    """The same keys, user keys and values in the same key group, put together otherwise."""

    def change(groups: Groups) -> int:
        for key_group, rows in groups.items():
            own = [(place, row) for place, row in enumerate(rows) if row.state == NEW]
            for place, row in own:
                for other_place, other in own:
                    if place < other_place and row.value != other.value:
                        groups[key_group][place] = replace(row, value=other.value)
                        groups[key_group][other_place] = replace(other, value=row.value)
                        return key_group
        raise AssertionError("no two values differ")

    found, key_group = sabotaged(plain, tmp_path, change)
    assert_caught(found, f"main/{NEW}: content", key_group, "expected", "found")


def test_an_entry_in_a_wrong_key_group(plain: Case, tmp_path: Path) -> None:
    most = plain.conversion.layout.max_parallelism or 128

    def change(groups: Groups) -> int:
        right, place, row = next(rows_of(groups, NEW))
        wrong = (right + 1) % most
        del groups[right][place]
        groups[wrong].append(replace(row, key=key_group_prefix(wrong, row, most)))
        return wrong

    found, wrong = sabotaged(plain, tmp_path, change)
    assert_caught(found, "main: keys in the key groups of their hashes", wrong, "in a wrong key group", "belongs to")
    assert_caught(found, f"main/{NEW}: rows", wrong, "in a wrong key group")


def test_a_value_changed_by_one(plain: Case, tmp_path: Path) -> None:
    def change(groups: Groups) -> int:
        key_group, place, row = next(found for found in rows_of(groups, NEW) if found[2].value[0] == 0)
        groups[key_group][place] = replace(row, value=row.value[:-1] + bytes([row.value[-1] ^ 1]))
        return key_group

    found, key_group = sabotaged(plain, tmp_path, change)
    assert set(found) == {f"main/{NEW}: content"}
    assert_caught(found, f"main/{NEW}: content", key_group, "value: expected", "found")


@pytest.mark.parametrize("to_null", [True, False])
def test_a_null_and_a_value(plain: Case, to_null: bool, tmp_path: Path) -> None:
    def change(groups: Groups) -> int:
        wanted = 0 if to_null else 1
        key_group, place, row = next(found for found in rows_of(groups, NEW) if found[2].value[0] == wanted)
        groups[key_group][place] = replace(row, value=b"\1" if to_null else bytes(9))
        return key_group

    found, key_group = sabotaged(plain, tmp_path, change)
    assert_caught(found, f"main/{NEW}: content", key_group, "null: expected")


@pytest.mark.part
@pytest.mark.parametrize("by", [1, -1])
def test_a_timestamp_changed_by_one(stamped: Case, by: int, tmp_path: Path) -> None:
    def change(groups: Groups) -> int:
        key_group, place, row = next(rows_of(groups, NEW))
        (stamp,) = struct.unpack(">q", row.value[1:9])
        groups[key_group][place] = replace(row, value=row.value[:1] + struct.pack(">q", stamp + by) + row.value[9:])
        return key_group

    found, key_group = sabotaged(stamped, tmp_path, change)
    assert_caught(found, f"main/{NEW}: content", key_group, "timestamp: expected")


def test_a_living_entry_dropped(stamped: Case, tmp_path: Path) -> None:
    def change(groups: Groups) -> int:
        key_group, place, _ = next(rows_of(groups, NEW))
        del groups[key_group][place]
        return key_group

    found, key_group = sabotaged(stamped, tmp_path, change)
    assert_caught(found, f"main/{NEW}: rows", key_group, "missing (alive")


@pytest.mark.part
@pytest.mark.parametrize("origin", [NEW, LEGACY])
def test_an_expired_entry_kept(stamped: Case, origin: str, tmp_path: Path) -> None:
    """Of the source's rows, or an entry of an expired blob."""
    most = stamped.conversion.layout.max_parallelism or 128
    (rules,) = stamped.conversion.operators[operator_id("main")].rules
    source = Saboteur(Path(stamped.source.folder.path), tmp_path / "source")
    there = source.rows("main")

    def expired(row: Row) -> bool:
        at = 1 if row.state == NEW else 0
        (stamp,) = struct.unpack(">q", row.value[at : at + 8])
        return int(stamp) + 30 * DAY <= rules.now

    def first_entry(row: Row) -> Row:
        """The row that the blob's first entry would be; its user key is a short text."""
        (count,) = struct.unpack(">i", row.value[8:12])
        size = row.value[12]
        user_key, flag = row.value[12 : 12 + size], row.value[12 + size]
        assert (count > 0, size < 0x80, flag) == (True, True, 0)
        return Row(NEW, row.key + user_key, b"\0" + row.value[:8] + row.value[13 + size : 21 + size])

    def entries() -> Iterator[Row]:
        for _, _, row in rows_of(there, origin):
            if expired(row):
                if origin == NEW:
                    yield row
                elif row.value[8:12] != bytes(4) and row.value[12 + row.value[12]] == 0:
                    yield first_entry(row)

    def change(groups: Groups) -> int:
        row = next(entries())
        key = np.frombuffer(row.key, np.uint8)
        end = 1 + key[1]
        codes = hash_codes(Scalar.STRING, key, np.array([1]), np.array([end]))
        key_group = assign_to_key_group(int(codes[0]), most)
        prefix = key_group.to_bytes(1 if most <= 128 else 2, "big")
        groups[key_group].append(replace(row, key=prefix + row.key[1:]))
        return key_group

    found, key_group = sabotaged(stamped, tmp_path, change)
    assert_caught(found, f"main/{NEW}: no expired row", key_group, "expired, and kept")
    assert_caught(found, f"main/{NEW}: rows", key_group, "expired, and kept")


def test_a_made_up_entry(plain: Case, tmp_path: Path) -> None:
    width = 1 if (plain.conversion.layout.max_parallelism or 128) <= 128 else 2

    def change(groups: Groups) -> int:
        key_group, place, row = next(found for found in rows_of(groups, NEW) if found[2].key.isascii())
        # A text's length is one more than it is long; the namespace takes one byte.
        key = row.key[: width + row.key[width] + 1]
        groups[key_group].insert(place, replace(row, key=key + b"\x06made!"))
        return key_group

    found, key_group = sabotaged(plain, tmp_path, change)
    assert_caught(found, f"main/{NEW}: rows", key_group, 'user key "made!"', "not in the source")


def test_another_states_entry_moved(with_timers: Case, tmp_path: Path) -> None:
    state = "_timer_state/event_user-timers"

    def change(groups: Groups) -> int:
        right, place, row = next(rows_of(groups, state))
        wrong = (right + 64) % 128
        del groups[right][place]
        groups[wrong].append(replace(row, key=key_group_prefix(wrong, row, 128)))
        return wrong

    found, wrong = sabotaged(with_timers, tmp_path, change)
    assert_caught(found, f"keyed/{state}: carried over", wrong, "timer ", "in a wrong key group")
    assert_caught(found, "keyed: keys in the key groups of their hashes", wrong, "in a wrong key group")


def test_a_timer_shifted(with_timers: Case, tmp_path: Path) -> None:
    state = "_timer_state/event_user-timers"

    def change(groups: Groups) -> int:
        key_group, place, row = next(rows_of(groups, state))
        (stamp,) = struct.unpack(">Q", row.key[1:9])
        groups[key_group][place] = replace(row, key=row.key[:1] + struct.pack(">Q", stamp + 1) + row.key[9:])
        return key_group

    found, key_group = sabotaged(with_timers, tmp_path, change)
    assert set(found) == {f"keyed/{state}: carried over"}
    assert_caught(found, f"keyed/{state}: carried over", key_group, "timer ", "missing")
    assert_caught(found, f"keyed/{state}: carried over", key_group, "timer ", "not in the source")


@pytest.mark.parametrize("state", ["rules", "offsets", "members"])
def test_an_element_of_operator_state_changed(with_timers: Case, state: str, tmp_path: Path) -> None:
    saboteur = Saboteur(with_timers.folder, tmp_path / "sabotaged")
    for subtask in saboteur.operator("keyed").subtasks:
        handle = subtask.managed_operator
        found = [one for one in handle.states if one.name == state and one.offsets] if handle else []
        if handle and found:
            if isinstance(handle.stream, InlineBytes):
                data = bytearray(handle.stream.data)
                data[found[0].offsets[-1] + 3] ^= 1
                stream = replace(handle.stream, data=bytes(data))
                changed = replace(subtask, managed_operator=replace(handle, stream=stream))

                def put(operator: Operator, old: object = subtask, new: object = changed) -> Operator:
                    subtasks = (new if one == old else one for one in operator.subtasks)
                    return replace(operator, subtasks=tuple(subtasks))  # type: ignore[arg-type]

                saboteur.change_operator("keyed", put)
            else:
                saboteur.flip(handle.stream.path, found[0].offsets[-1] + 3)  # type: ignore[union-attr]
            break
    checks = failed(with_timers.checks(saboteur.folder))
    assert set(checks) == {f"keyed/{state}: carried over"}
    assert "other bytes in element" in checks[f"keyed/{state}: carried over"].samples[0]


def test_an_unrelated_operators_bytes_changed(with_others: Case, tmp_path: Path) -> None:
    saboteur = Saboteur(with_others.folder, tmp_path / "sabotaged")
    told = []

    def change(groups: Groups) -> None:
        key_group, place, row = next(rows_of(groups, "s"))
        groups[key_group][place] = replace(row, value=row.value[:-1] + bytes([row.value[-1] ^ 1]))
        told.append(key_group)

    saboteur.change_rows("wide", change)
    found = failed(with_others.checks(saboteur.folder))
    assert set(found) == {"wide/s: carried over"}
    assert_caught(found, "wide/s: carried over", told[0], "value: expected", "found")


def test_one_operators_max_parallelism_left_behind(tmp_path: Path) -> None:
    case = migrated(GOLDEN / "several-operators-2.3-hashmap", tmp_path / "new", "main", Layout(max_parallelism=256))
    for uid in ("stateless", "numbers"):
        saboteur = Saboteur(case.folder, tmp_path / uid)
        saboteur.change_operator(uid, lambda operator: replace(operator, max_parallelism=128))
        found = failed(case.checks(saboteur.folder))
        assert f"operator {uid}: max parallelism: expected 256, found 128" in found["_metadata"].samples


def test_a_keyed_operators_max_parallelism_left_behind(tmp_path: Path) -> None:
    case = migrated(GOLDEN / "legacy-2.3-rocksdb", tmp_path / "new", "main", Layout(max_parallelism=120))
    saboteur = Saboteur(case.folder, tmp_path / "sabotaged")
    saboteur.change_operator("main", lambda operator: replace(operator, max_parallelism=128))
    assert failed(case.checks(saboteur.folder))


def test_keyed_state_that_is_gone_as_a_whole(plain: Case, tmp_path: Path) -> None:
    def without(operator: Operator) -> Operator:
        return replace(operator, subtasks=tuple(replace(one, managed_keyed=None) for one in operator.subtasks))

    saboteur = Saboteur(plain.folder, tmp_path / "sabotaged")
    saboteur.change_operator("main", without)
    found = failed(plain.checks(saboteur.folder))
    assert found.keys() >= {"main/newMainState: rows", "main/newMainState: content"}


def test_two_files_exchanged(plain: Case, tmp_path: Path) -> None:
    saboteur = Saboteur(plain.folder, tmp_path / "sabotaged")

    def exchange(handles: dict[int, KeyedHandle]) -> None:
        one, other = handles[0], handles[1]
        if len(one.offsets) == len(other.offsets):
            handles[0] = replace(one, offsets=other.offsets, stream=other.stream)
            handles[1] = replace(other, offsets=one.offsets, stream=one.stream)
        else:
            handles[0], handles[1] = replace(one, stream=other.stream), replace(other, stream=one.stream)

    saboteur.change_handles("main", exchange)
    found = failed(plain.checks(saboteur.folder))
    assert found["main: readable"].key_groups
    assert "key group" in found["main: readable"].samples[0]


def test_contents_of_two_files_exchanged_on_disk(plain: Case, tmp_path: Path) -> None:
    saboteur = Saboteur(plain.folder, tmp_path / "sabotaged")
    one, other = [path for path in sorted(saboteur.folder.iterdir()) if "-keyed-" in path.name][:2]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    assert failed(plain.checks(saboteur.folder))["main: readable"].samples


def test_a_handles_range_off_by_one(plain: Case, tmp_path: Path) -> None:
    saboteur = Saboteur(plain.folder, tmp_path / "sabotaged")
    last = saboteur.operator("main").subtasks[0].managed_keyed
    assert last is not None

    def shorten(handles: dict[int, KeyedHandle]) -> None:
        handle = handles[0]
        shorter = KeyGroupRange(handle.range.start, handle.range.end - 1)
        handles[0] = replace(handle, range=shorter, offsets=handle.offsets[:-1])

    saboteur.change_handles("main", shorten)
    found = failed(plain.checks(saboteur.folder))
    assert last.range.end in found["_metadata"].key_groups
    assert "key groups of subtask 0" in found["_metadata"].samples[0]
    # What it held is lost as well, if it held anything.
    assert bool({"main: readable", f"main/{NEW}: rows"} & set(found)) == (last.offsets[-1] != 0)


def test_a_subtask_without_its_state(plain: Case, tmp_path: Path) -> None:
    saboteur = Saboteur(plain.folder, tmp_path / "sabotaged")
    saboteur.change_handles("main", lambda handles: handles.__delitem__(1))
    found = failed(plain.checks(saboteur.folder))
    assert "found none" in found["_metadata"].samples[0]
    assert f"main/{NEW}: rows" in found


def test_the_headers_ttl_dropped(stamped: Case, tmp_path: Path) -> None:
    saboteur = Saboteur(stamped.folder, tmp_path / "sabotaged")

    def without_ttl(meta: StateMeta) -> StateMeta:
        if meta.name != NEW:
            return meta
        serializers = []
        for name, snapshot in meta.serializers:
            if name == VALUE_SERIALIZER:
                user_key, value = snapshot.nested
                snapshot = map_snapshot(user_key, value.nested[1])
            serializers.append((name, snapshot))
        return replace(meta, serializers=tuple(serializers))

    saboteur.change_headers(
        "main", lambda header: replace(header, states=tuple(without_ttl(meta) for meta in header.states))
    )
    found = failed(stamped.checks(saboteur.folder))
    assert set(found) == {"main: headers"}
    assert f"state {NEW}: expected MAP MapSerializer" in found["main: headers"].samples[0]
    assert "Ttl" in found["main: headers"].samples[0]


def test_the_legacy_states_description_left_in(plain: Case, tmp_path: Path) -> None:
    saboteur = Saboteur(plain.folder, tmp_path / "sabotaged")
    merged = plain.source.keyed_header(plain.source.operator("main"))
    assert merged is not None
    legacy = next(meta for meta in merged.states if meta.name == LEGACY)

    def with_legacy(header: KeyedHeader) -> KeyedHeader:
        return replace(header, states=(*header.states, legacy))

    saboteur.change_headers("main", with_legacy)
    found = failed(plain.checks(saboteur.folder))
    assert set(found) == {"main: headers"}
    assert f"state {LEGACY}: expected no such state" in found["main: headers"].samples[0]


def test_the_legacy_states_rows_left_in(tmp_path: Path) -> None:
    """A savepoint that kept its legacy states, where they should be gone."""
    case = migrated(GOLDEN / "legacy-2.3-rocksdb", tmp_path / "new", "main", Layout(), keep=True)
    found = failed(case.with_rules(rules_of(case.source, "main")).checks(case.folder))
    assert found[f"main/{LEGACY}: gone"].key_groups
    assert found[f"main/{LEGACY}: gone"].samples


@pytest.mark.parametrize("part", ["checkpoint id", "properties", "coordinator state", "uid", "operator"])
def test_other_parts_of_metadata_changed(with_others: Case, part: str, tmp_path: Path) -> None:
    saboteur = Saboteur(with_others.folder, tmp_path / "sabotaged")
    metadata = saboteur.metadata
    if part == "checkpoint id":
        saboteur.write_metadata(replace(metadata, checkpoint_id=metadata.checkpoint_id + 1))
    elif part == "properties":
        saboteur.write_metadata(replace(metadata, properties=metadata.properties[:-1] + b"\0"))
    elif part == "operator":
        others = tuple(one for one in metadata.operators if one.id != operator_id("stateless"))
        saboteur.write_metadata(replace(metadata, operators=others))
    elif part == "uid":
        saboteur.change_operator("stateless", lambda operator: replace(operator, name="another"))
        part = "name"
    else:
        saboteur.change_operator("numbers", lambda operator: replace(operator, coordinator=InlineBytes("x", b"y")))
    found = failed(with_others.checks(saboteur.folder))
    assert set(found) == {"_metadata"}
    assert part in found["_metadata"].samples[0]


@pytest.mark.parametrize("damage", ["file gone", "cut short", "no _metadata"])
def test_damage_in_the_staged_savepoint_is_a_failed_check(plain: Case, damage: str, tmp_path: Path) -> None:
    saboteur = Saboteur(plain.folder, tmp_path / "sabotaged")
    file = next(path for path in saboteur.folder.iterdir() if "-keyed-" in path.name)
    if damage == "file gone":
        file.unlink()
    elif damage == "cut short":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        (saboteur.folder / "_metadata").unlink()
    assert failed(plain.checks(saboteur.folder))


def test_damage_in_the_source_is_an_error(plain: Case, tmp_path: Path) -> None:
    saboteur = Saboteur(Path(plain.source.folder.path), tmp_path / "source")
    largest = max(saboteur.folder.iterdir(), key=lambda path: path.stat().st_size if path.suffix == "" else 0)
    largest.write_bytes(largest.read_bytes()[:-7])
    with pytest.raises(DamagedError):
        replace(plain, source=Savepoint.open(str(saboteur.folder))).checks(plain.folder)


def test_mass_damage_names_ten(plain: Case, tmp_path: Path) -> None:
    def change(groups: Groups) -> None:
        for key_group, rows in groups.items():
            groups[key_group] = [row for row in rows if row.state != NEW]

    found, _ = sabotaged(plain, tmp_path, change)
    assert len(found[f"main/{NEW}: content"].samples) == 10
    assert len(found[f"main/{NEW}: content"].key_groups) > 10


# Who wins where the job has begun to migrate by itself.


@pytest.fixture(scope="module")
def contested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source in which some keys that have a blob also have a row for its first user key, and others also a flag."""
    folder = tmp_path_factory.mktemp("contested")
    source = Savepoint.open(str(GOLDEN / "legacy-2.3-rocksdb"))
    rewrite(source, str(folder / "copy"), Layout(compression=Compression.NONE))
    saboteur = Saboteur(folder / "copy", folder / "source")

    def contest(groups: Groups) -> None:
        blobs = [(key_group, row) for key_group, _, row in rows_of(groups, LEGACY) if row.value[:4] != bytes(4)]
        for number, (key_group, row) in enumerate(blobs[:60]):
            size = row.value[4]
            if size >= 0x80 or any(unit >= 0x80 for unit in row.value[5 : 4 + size]):
                continue
            if number % 3 < 2:
                user_key = row.value[4 : 4 + size]
                groups[key_group].append(Row(NEW, row.key + user_key, b"\0" + struct.pack(">q", number)))
            if number % 3 > 0:
                groups[key_group].append(Row(FLAG, row.key, b"\1"))

    saboteur.change_rows("main", contest)
    return saboteur.folder


@pytest.mark.part
@pytest.mark.parametrize("layout", ["same", "max300"])
@pytest.mark.parametrize("rule", [Contradiction.BLOB, Contradiction.ROWS])
def test_contradictions_by_rule(contested: Path, rule: Contradiction, layout: str, tmp_path: Path) -> None:
    case = migrated(contested, tmp_path / "new", "main", LAYOUTS[layout], on_contradiction=rule)
    checks = case.checks(case.folder)
    assert_green(checks)
    rows = next(check for check in checks if check.name == f"main/{NEW}: rows")
    assert "superseded" in rows.expected
    assert ("rows replaced" if rule is Contradiction.BLOB else "of flagged keys") in rows.expected

    other = Contradiction.ROWS if rule is Contradiction.BLOB else Contradiction.BLOB
    wrong = case.with_rules(rules_of(case.source, "main", on_contradiction=other))
    found = failed(wrong.checks(case.folder))
    assert found[f"main/{NEW}: content"].samples


def test_contradictions_that_nobody_settled(contested: Path, tmp_path: Path) -> None:
    case = migrated(contested, tmp_path / "new", "main", Layout(), on_contradiction=Contradiction.ROWS)
    unsettled = case.with_rules(rules_of(case.source, "main"))
    found = failed(unsettled.checks(case.folder))
    assert set(found) == {f"main/{NEW}: no unsettled contradiction"}
    assert int(found[f"main/{NEW}: no unsettled contradiction"].actual) > 10


def test_a_superseded_entry_back_again(contested: Path, tmp_path: Path) -> None:
    case = migrated(contested, tmp_path / "new", "main", Layout(), on_contradiction=Contradiction.ROWS)
    there = Saboteur(contested, tmp_path / "source").rows("main")
    flags = {row.key for _, _, row in rows_of(there, FLAG)}
    rows = {row.key: row for _, _, row in rows_of(there, NEW)}

    def change(groups: Groups) -> int:
        for key_group, _, blob in rows_of(there, LEGACY):
            size = blob.value[4] if len(blob.value) > 4 else 0
            key = blob.key + blob.value[4 : 4 + size]
            if size and blob.key not in flags and key in rows and blob.value[4 + size] == 0:
                place = next(i for i, row in enumerate(groups[key_group]) if row.key == key)
                value = b"\0" + blob.value[5 + size : 13 + size]
                groups[key_group][place] = replace(groups[key_group][place], value=value)
                return key_group
        raise AssertionError("no superseded entry")

    found, key_group = sabotaged(case, tmp_path, change)
    assert_caught(found, f"main/{NEW}: content", key_group, "value: expected")


def test_nulls_that_cannot_be_kept_must_have_been_dropped_by_rule(tmp_path: Path) -> None:
    case = migrated(GOLDEN / "legacy-ttl-2.3-rocksdb", tmp_path / "new", "main", Layout(), now=0)
    strict = rules_of(case.source, "main", now=0, nulls=Nulls.STOP)
    found = failed(case.with_rules(strict).checks(case.folder))
    assert set(found) == {f"main/{NEW}: no null that can't be kept"}
    with pytest.raises(NullsCannotBeKeptError):
        migrated(
            GOLDEN / "legacy-ttl-2.3-rocksdb", tmp_path / "other", "main", Layout(), now=0,
            nulls=Nulls.STOP,
        )  # fmt: skip


@pytest.mark.parametrize(("done", "judged"), [(Nulls.KEEP, Nulls.DROP), (Nulls.DROP, Nulls.KEEP)])
def test_nulls_without_time_to_live_are_there_or_gone_as_the_plan_says(
    done: Nulls, judged: Nulls, tmp_path: Path
) -> None:
    case = migrated(GOLDEN / "legacy-2.3-rocksdb", tmp_path / "new", "main", Layout(), nulls=done)
    assert failed(case.checks(case.folder)) == {}
    other = rules_of(case.source, "main", nulls=judged)
    wrong = case.with_rules(other)
    assert set(failed(wrong.checks(case.folder))) == {f"main/{NEW}: rows", f"main/{NEW}: content"}


# Tasks.


@pytest.mark.parametrize("layout", ["same", "max300"])
def test_small_tasks_say_the_same(layout: str, tmp_path: Path) -> None:
    case = migrated(GOLDEN / "legacy-2.3-rocksdb", tmp_path / "new", "main", LAYOUTS[layout])
    staged = Savepoint.open(str(case.folder))
    assert len(plan_checks(case.source, staged, case.conversion, target_bytes=2000)) > 10
    ran = []

    def pickled(tasks: Sequence[CheckTask]) -> Iterator[CheckResult]:
        for result in do_here(tasks):
            ran.append(result)
            yield pickle.loads(pickle.dumps(result))

    small = validate(case.source, staged, case.conversion, do=pickled, target_bytes=2000)
    assert small == case.checks(case.folder)
    assert ran


def test_damage_says_the_same_when_it_comes_from_another_process() -> None:
    for error in (DamagedError("a map", "its end", file="f", offset=7, key_group=3), RefusedError("unknown type")):
        came = pickle.loads(pickle.dumps(error))
        assert (type(came), f"{came}", vars(came)) == (type(error), f"{error}", vars(error))


def test_the_tables_are_a_third_account(tmp_path: Path) -> None:
    case = migrated(GOLDEN / "legacy-2.3-rocksdb", tmp_path / "new", "main", Layout())
    staged = Savepoint.open(str(case.folder))
    account = Account.of(128)
    for result in do_here(plan_checks(case.source, staged, case.conversion)):
        if isinstance(result, KeyedResult) and result.side is Side.STAGED:
            account.take(result.accounts[NEW])
    hex_id, accounts = operator_id("main").hex(), StagedStates()
    assert_green(validate(case.source, staged, case.conversion, accounts=accounts))
    found = accounts[StateRef(hex_id, NEW)]
    table = TableAccount(hex_id, NEW, account)
    assert table_check("main", table, found).outcome is Outcome.PASSED
    account.counts[3] += 1
    check = table_check("main", table, found)
    assert (check.name, check.outcome, check.key_groups) == (f"main/{NEW}: as the tables say", Outcome.FAILED, (3,))


# The kernels' plain twins.

_MASK = 2**64 - 1
_K1, _K2, _K3 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9FB21C651E98DF25


def mixed(word: int) -> int:
    word = (word ^ word >> 30) * _K1 & _MASK
    word = (word ^ word >> 27) * _K2 & _MASK
    return word ^ word >> 31


def hashed(data: bytes, seed: int) -> int:
    state = (seed + len(data) * _K3) & _MASK
    whole = len(data) // 8 * 8
    for start in range(0, whole, 8):
        state = (state ^ int.from_bytes(data[start : start + 8], "little")) * _K1 & _MASK
        state ^= state >> 31
    if data[whole:]:
        tail = int.from_bytes(data[whole:], "little") << (64 - 8 * len(data[whole:]))
        state = (state ^ tail) * _K3 & _MASK
        state ^= state >> 27
    return mixed(state)


@given(st.lists(st.binary(max_size=30)), st.integers(0, _MASK), st.integers(0, 20))
def test_hashes_are_those_of_the_plain_twin(runs: list[bytes], seed: int, behind: int) -> None:
    data = np.frombuffer(b"".join(runs) + bytes(behind), np.uint8).copy()
    ends = np.cumsum([0, *map(len, runs)])
    out = np.empty(len(runs), np.uint64)
    check_kernels.hash_ranges(data, ends[:-1].copy(), ends[1:].copy(), np.full(len(runs), seed, np.uint64), out)
    assert out.tolist() == [hashed(run, seed) for run in runs]


@given(
    st.lists(st.tuples(st.binary(max_size=12), st.integers(0, 2), st.integers(0, _MASK), st.integers(0, 99))),
    st.booleans(),
    st.binary(max_size=9),
)
def test_hashes_of_values_are_those_of_the_plain_twin(
    entries: list[tuple[bytes, int, int, int]], is_stamped: bool, null: bytes
) -> None:
    data = np.frombuffer(b"".join(value for value, *_ in entries) + b"\0", np.uint8).copy()
    ends = np.cumsum([0, *(len(value) for value, *_ in entries)])
    nulls, pairs, groups = (
        np.array([entry[part] for entry in entries], type_)
        for part, type_ in ((1, np.uint8), (2, np.uint64), (3, np.int64))
    )
    stamps = pairs if is_stamped else np.empty(0, np.uint64)
    out = np.empty(len(entries), np.uint64)
    check_kernels.hash_values(
        data, ends[:-1].copy(), ends[1:].copy(), nulls, np.array(bytearray(null), np.uint8), stamps,
        groups, pairs, out,
    )  # fmt: skip
    expected = []
    for value, kind, pair, group in entries:
        seed = mixed(pair ^ group * _K3 & _MASK)
        if is_stamped:
            seed = mixed(seed ^ pair * _K1 & _MASK)
        of = {0: lambda v, s: hashed(v, s), 1: lambda v, s: hashed(v, s ^ 0xD1B54A32D192ED03)}
        expected.append(hashed(null, seed) if kind == 2 else of[kind](value, seed))
    assert out.tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, _MASK), st.booleans())), st.randoms())
def test_accounts_add_up_in_any_order_and_take_off(entries: list[tuple[int, int, bool]], random: object) -> None:
    def arrays(of: list[tuple[int, int, bool]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        groups, hashes, chosen = zip(*of, strict=True) if of else ((), (), ())
        return np.array(groups, np.int64), np.array(hashes, np.uint64), np.array(chosen, np.bool_)

    one, other = Account.of(5), Account.of(5)
    one.add(*arrays(entries))
    shuffled = list(entries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    other.add(*arrays(shuffled))
    assert not len(one.differences(other))
    for group in range(5):
        mine = [number for found, number, chosen in entries if chosen and found == group]
        assert (int(one.counts[group]), int(one.sums[group])) == (len(mine), sum(mine) & _MASK)
    other.take_off(*arrays(entries))
    assert not other.counts.any()
    assert not other.sums.any()
