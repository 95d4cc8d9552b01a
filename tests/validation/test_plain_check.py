"""The check by plain code sees faults that conversion and compiled validation share, and raises no false alarm."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import example, given

from flinkstate.errors import DamagedError
from flinkstate.hashing.java_hash import unstable_reason
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.keyed.compression import Compression
from flinkstate.keyed.stored_maps import WholeMaps, _kryo_maps
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.types import (
    SCALA_EITHER,
    EitherType,
    EnumType,
    FlinkType,
    KryoMapType,
    ListType,
    MapType,
    OpaqueType,
    OptionType,
    Scalar,
    TupleType,
)
from flinkstate.serializers.walker import MapEntries, walk_entries
from flinkstate.ttl import expired_array
from flinkstate.values.codecs import decoder
from flinkstate.values.hash_codes import key_group_of
from flinkstate.values.java_values import EitherValue
from flinkstate.writing.operator_rewrite import Layout
from stateferry.changes import key_hashes, sections
from stateferry.changes.blobs_to_rows import BlobsToRows
from stateferry.changes.rules import Contradiction, Rules, null_under_ttl
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.proof.checks import CheckResult, CheckTask, do_here, validate
from stateferry.proof.expected import content, expected_entries, sampling
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.plain import plain_maps, plain_reader
from stateferry.proof.plain.plain_reader import holds_null
from tests.support.changes import conversion_of
from tests.support.naive import flink_types
from tests.support.rewriting import rewrite
from tests.support.saboteur import Saboteur
from tests.validation.test_checks import GOLDEN, LAYOUTS, NEW, PLAIN, Case, expiring, migrated


def outcomes(checks: list[Check], outcome: Outcome) -> dict[str, Check]:
    return {check.name: check for check in checks if check.outcome is outcome}


def plain_of(checks: list[Check]) -> Check:
    return next(check for check in checks if check.name.endswith(PLAIN))


# Faults that both legs share.


def without_last_entries(type_: MapType, data: Any, starts: Any, limits: Any) -> MapEntries:
    found = walk_entries(type_, data, starts, limits)
    lasts = np.cumsum(found.counts)[found.counts > 1] - 1
    keep = np.setdiff1d(np.arange(len(found.starts)), lasts)
    counts = found.counts - (found.counts > 1)
    return MapEntries(counts, found.starts[keep], found.key_ends[keep], found.ends[keep], found.stops)


def an_hour_early(stamps: Any, ttl: int, now: int) -> Any:
    return expired_array(stamps, ttl - 3_600_000, now)


def zero_for_null(value: object) -> bytes:
    return bytes(8)


def shifted(codes: Any, max_parallelism: int) -> Any:
    found = assign_to_key_groups(codes, max_parallelism)
    return (found + 1) % max_parallelism if max_parallelism == 300 else found


def of_two_bytes(hashes: Callable[..., Any]) -> Callable[..., Any]:
    """Takes keys for the same that begin alike."""

    def hashed(data: Any, starts: Any, ends: Any, *seeds: Any) -> Any:
        return hashes(data, starts, ends if seeds else np.minimum(starts + 2, ends), *seeds)

    return hashed


def another_long(type_: KryoMapType, data: Any, starts: Any, ends: Any) -> WholeMaps:
    """Adds one to each value."""
    maps = _kryo_maps(type_, data, starts, ends)
    lasts = maps.entries.ends[maps.entries.ends - maps.entries.key_ends > 8] - 1
    maps.data[lasts] += 1
    return maps


SECTIONS, CONTENT = "stateferry.changes.sections", "stateferry.proof.expected.content"
EXPECTED = "stateferry.proof.expected.expected_entries"
FAULTS: dict[str, tuple[str, str, dict[str, object], dict[str, Any]]] = {
    "the walk over maps": (
        "legacy-2.3-rocksdb",
        "same",
        {},
        {"flinkstate.keyed.stored_maps.walk_entries": without_last_entries},
    ),
    "the reading of maps by both Kryos": (
        "upgraded-hint-hash-map-2.3-rocksdb",
        "same",
        {},
        {"flinkstate.keyed.stored_maps._kryo_maps": another_long},
    ),
    "the reading of maps by Kryo 5": (
        "hint-hash-map-ttl-2.3-hashmap",
        "same",
        {},
        {"flinkstate.keyed.stored_maps._kryo_maps": another_long},
    ),
    "expiry": (
        "legacy-ttl-2.3-rocksdb",
        "same",
        {},
        dict.fromkeys(
            (f"{module}.expired_array" for module in (SECTIONS, EXPECTED)),
            an_hour_early,
        ),
    ),
    "nulls under time to live": (
        "legacy-ttl-2.3-rocksdb",
        "same",
        {"keep_expired": True},
        dict.fromkeys(
            (
                f"{module}.null_under_ttl"
                for module in ("stateferry.changes.rules", "stateferry.changes.blobs_to_rows", EXPECTED)
            ),
            zero_for_null,
        ),
    ),
    "key groups": (
        "legacy-2.3-rocksdb",
        "max300",
        {},
        dict.fromkeys(
            (f"{module}.assign_to_key_groups" for module in ("flinkstate.writing.max_parallelism_change", CONTENT)),
            shifted,
        ),
    ),
}


@pytest.mark.part
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_conversion_and_validation_share_is_seen(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, layout, settings, places = FAULTS[fault]
    if "-ttl" in case:
        settings = {**settings, "now": expiring(case)}
    for place, function in places.items():
        monkeypatch.setattr(place, function)
    made = migrated(GOLDEN / case, tmp_path / "new", "main", LAYOUTS[layout], **settings)  # type: ignore[arg-type]
    checks = made.checks(made.folder)
    assert outcomes(checks, Outcome.FAILED).keys() == {f"main/{NEW}{PLAIN}"}
    plain = plain_of(checks)
    assert plain.key_groups
    assert all(sample.startswith("key group ") and "expected" in sample for sample in plain.samples)


def test_keys_that_are_taken_for_the_same_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag of one key decides about the blob of another one."""
    hash_keys = key_hashes.key_lanes
    write_demo_savepoint(str(tmp_path / "source"), DemoState(100, 5, 0.3, None, 0, 2, 16, 1))
    for place in (key_hashes, sections):
        monkeypatch.setattr(place, "key_lanes", of_two_bytes(hash_keys))
    for module in (content, expected_entries):
        monkeypatch.setattr(module, "hash_ranges", of_two_bytes(content.hash_ranges))
    settings = {"on_contradiction": Contradiction.ROWS}
    made = migrated(tmp_path / "source", tmp_path / "new", "main", Layout(), **settings)  # type: ignore[arg-type]
    assert outcomes(made.checks(made.folder), Outcome.FAILED).keys() == {f"main/{NEW}{PLAIN}"}


@pytest.mark.parametrize(
    "case",
    [
        *("hint-map-1.20-rocksdb", "hint-map-ttl-2.3-hashmap", "hint-hash-map-1.20-rocksdb"),
        *("hint-hash-map-ttl-2.3-hashmap", "upgraded-hint-hash-map-2.3-rocksdb"),
    ],
)
def test_maps_are_read_plainly_however_they_are_stored(case: str, tmp_path: Path) -> None:
    now: dict[str, Any] = {"now": expiring(case)} if "-ttl" in case else {}
    made = migrated(GOLDEN / case, tmp_path / "new", "main", LAYOUTS["same"], **now)
    checks = made.checks(made.folder)
    assert not outcomes(checks, Outcome.FAILED)
    assert plain_of(checks).outcome is Outcome.PASSED
    assert not plain_of(checks).actual.startswith("0 ")


# Other keys, namespaces, sizes.


@pytest.mark.parametrize("layout", [Layout(), Layout(max_parallelism=200)], ids=["same", "max200"])
@pytest.mark.parametrize("case", ["kinds-in-windows-1.20-rocksdb", "kinds-in-strings-2.3-rocksdb"])
def test_keys_with_a_namespace(case: str, layout: Layout, tmp_path: Path) -> None:
    source = Savepoint.open(str(GOLDEN / case))
    operator = source.operator("kinds")
    states = {state.name: state for state in source.keyed_states(operator)}
    of_windows = Rules(states["value-state"], "new", None, None, 0)
    layout = replace(layout, compression=Compression.NONE)
    rewrite(source, str(tmp_path / "new"), layout, transforms={operator.id: BlobsToRows([of_windows], states)})
    made = Case(source, conversion_of(source, layout, {operator.id: (of_windows,)}), tmp_path / "new", "kinds")
    checks = made.checks(made.folder)
    assert not outcomes(checks, Outcome.FAILED)
    assert plain_of(checks).outcome is Outcome.PASSED
    assert plain_of(checks).expected.startswith("all keys (seed ")
    saboteur = Saboteur(made.folder, tmp_path / "sabotaged")

    def change(groups: Any) -> None:
        place, group, row = next(
            (place, group, row)
            for group in groups.values()
            for place, row in enumerate(group)
            if row.state == "new" and row.value[0] == 0
        )
        group[place] = replace(row, value=row.value[:-1] + bytes([row.value[-1] ^ 1]))

    saboteur.change_rows("kinds", change)
    found = plain_of(made.checks(saboteur.folder))
    assert found.outcome is Outcome.FAILED
    assert "namespace" in found.samples[0]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("large")
    state = DemoState(3000, 20, 0.3, 30 * 86_400_000, 1_790_000_000_000, 4, 128, 1)
    write_demo_savepoint(str(folder / "source"), state)
    return migrated(folder / "source", folder / "new", "main", Layout({operator_id("main"): 3}), now=1_790_000_000_000)


@pytest.mark.slow
@pytest.mark.parametrize("target_bytes", [64 << 20, 200_000])
def test_a_large_state_is_sampled(large: Case, target_bytes: int) -> None:
    staged = Savepoint.open(str(large.folder))

    def pickled(tasks: Sequence[CheckTask]) -> Iterator[CheckResult]:
        return (pickle.loads(pickle.dumps(result)) for result in do_here(tasks))

    checks = validate(large.source, staged, large.conversion, do=pickled, target_bytes=target_bytes)
    assert not outcomes(checks, Outcome.FAILED)
    plain = plain_of(checks)
    assert plain.outcome is Outcome.PASSED
    assert plain.expected.startswith("a sample (seed ")
    assert plain.expected.endswith(plain.actual)
    entries, _, _, keys, _ = plain.actual.split()
    assert 1000 < int(entries) < 12_000
    assert 50 < int(keys) < 600
    assert plain == plain_of(validate(large.source, staged, large.conversion, target_bytes=target_bytes))


@pytest.mark.slow
def test_a_fault_in_every_key_is_in_the_sample(large: Case, tmp_path: Path) -> None:
    saboteur = Saboteur(large.folder, tmp_path / "sabotaged")

    def change(groups: Any) -> None:
        for group in groups.values():
            for place, row in enumerate(group):
                (stamp,) = struct.unpack_from(">q", row.value, 1)
                group[place] = replace(row, value=row.value[:1] + struct.pack(">q", stamp + 1) + row.value[9:])

    saboteur.change_rows("main", change)
    plain = plain_of(large.checks(saboteur.folder))
    assert plain.outcome is Outcome.FAILED
    assert len(plain.samples) == 10


@pytest.mark.slow
def test_a_key_that_is_too_large_is_left_out_by_number(large: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_MOST_OF_A_KEY", 10)
    plain = plain_of(validate(large.source, Savepoint.open(str(large.folder)), large.conversion))
    assert plain.outcome is not Outcome.FAILED
    assert "keys left out, because they are too large" in plain.expected


def test_what_plain_code_cannot_decode_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = migrated(GOLDEN / "legacy-2.3-rocksdb", tmp_path / "new", "main", Layout())
    opaque = OpaqueType("com.acme.Value", "Kryo")
    monkeypatch.setattr(plain_maps, "decoder", lambda type_: decoder(opaque if type_ is Scalar.LONG else type_))
    plain = plain_of(made.checks(made.folder))
    assert plain.outcome is Outcome.COULD_NOT_TELL
    assert "com.acme.Value (Kryo)" in plain.actual


@pytest.mark.parametrize("result_too", [False, True])
def test_a_source_that_plain_code_takes_for_damaged_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result_too: bool
) -> None:
    """The compiled walk has read it: whether the result is right is for the other checks to say."""
    made = migrated(GOLDEN / "legacy-2.3-rocksdb", tmp_path / "new", "main", Layout())

    def stricter(*_: object) -> NoReturn:
        raise DamagedError("a stricter map", "this one")

    monkeypatch.setattr(plain_reader.PlainReader, "_expected_lines", stricter)
    if result_too:
        monkeypatch.setattr(plain_reader.PlainReader, "_found_lines", stricter)
    plain = plain_of(made.checks(made.folder))
    assert plain.outcome is Outcome.COULD_NOT_TELL
    assert "in the source: key group" in plain.actual
    assert "expected a stricter map, found this one" in plain.actual


def test_a_result_that_plain_code_takes_for_damaged_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = migrated(GOLDEN / "legacy-2.3-rocksdb", tmp_path / "new", "main", Layout())

    def stricter(*_: object) -> NoReturn:
        raise DamagedError("a stricter row", "this one")

    monkeypatch.setattr(plain_reader.PlainReader, "_found_lines", stricter)
    assert plain_of(made.checks(made.folder)).outcome is Outcome.FAILED


def test_nulls_of_types_that_are_not_known_here_are_left_to_the_other_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = migrated(GOLDEN / "legacy-ttl-2.3-rocksdb", tmp_path / "new", "main", Layout(), keep_expired=True, now=0)
    monkeypatch.setattr(plain_reader, "holds_null", lambda type_: None)
    assert plain_of(made.checks(made.folder)).outcome is Outcome.PASSED
    monkeypatch.setattr(plain_reader, "holds_null", lambda type_: True)
    assert plain_of(made.checks(made.folder)).outcome is Outcome.FAILED


# Hashes.


@pytest.mark.parametrize(
    ("type_", "key"),
    [
        (OpaqueType("com.acme.Key", "Kryo"), b""),
        (EitherType(Scalar.LONG, Scalar.LONG, SCALA_EITHER), EitherValue(1, True)),
        (TupleType((Scalar.LONG,), "com.acme.CaseClass"), (1,)),
        (ListType(OptionType(Scalar.LONG)), [None]),
        (EnumType("com.acme.Color", ("RED",)), "RED"),
    ],
)
def test_a_key_of_unknown_hash_has_no_group(type_: FlinkType, key: object) -> None:
    assert unstable_reason(type_)
    assert key_group_of(type_, key, 128) is None


@example(Scalar.BOOLEAN)
@example(Scalar.BOOLEAN_VALUE)
@given(flink_types())
def test_nulls_of_known_types_are_those_of_the_conversion(type_: FlinkType) -> None:
    assert holds_null(type_) in (None, null_under_ttl(type_) is not None)


@pytest.mark.parametrize(
    ("text", "group"), [("", 94), ("a", 81), ("hello", 35), ("Flink", 127), ("polygenelubricants", 108), ("日本", 95)]
)
def test_key_groups_that_flink_told(text: str, group: int) -> None:
    assert key_group_of(Scalar.STRING, text, 128) == group
