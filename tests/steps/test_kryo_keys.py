"""Maps under keys that Flink gives to Kryo: what a run makes of them, and what it refuses by name."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.header import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendKind,
    KeyedHeader,
    StateMeta,
)
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Metadata, Operator, Subtask
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.built_snapshots import kryo_snapshot, simple_snapshot, snapshot_of
from flinkstate.serializers.types import FlinkType, MapType, Scalar
from flinkstate.values.codecs import encode
from flinkstate.writing.writer import SavepointWriter
from stateferry.cli import main
from tests.support.in_process import without_spark

MAP = MapType(Scalar.STRING, Scalar.LONG)
MAPS = {(1, 2): {"a": 1, "b": 2}, (-3, 4): {"a": 3}, (5, -(2**62)): {"": 4, "c" * 300: 5}, (2**63 - 1, 0): {"z": 6}}
PLAN = ("--operator", "main", "--legacy-state", "counts", "--new-state", "rows")


def uuid(number: tuple[int, int], *, five: bool) -> bytes:
    """A UUID by Kryo: two numbers as short as they are, or eight bytes each."""
    if five:
        return b"\x54\1" + struct.pack("<qq", *number)
    return b"\x54\1" + b"".join(map(_short, number))


def _short(number: int) -> bytes:
    left = (number << 1 ^ number >> 63) & (1 << 64) - 1
    out = bytearray()
    while left > 0x7F and len(out) < 8:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def key_group(number: tuple[int, int], largest: int = 128) -> int:
    bits = number[0] ^ number[1]
    code = np.array([bits >> 32 ^ bits], np.int64).astype(np.int32)
    return int(assign_to_key_groups(code, largest)[0])


def meta(name: str, kind: str, value: FlinkType) -> StateMeta:
    serializers = (
        (VALUE_SERIALIZER, snapshot_of(value)),
        (NAMESPACE_SERIALIZER, simple_snapshot(Scalar.VOID_NAMESPACE)),
    )
    return StateMeta(name, BackendKind.KEY_VALUE, ((KEYED_STATE_TYPE, kind),), serializers)


Rows = Sequence[tuple[int, int, bytes, bytes]]


def savepoint(target: Path, rows: Rows, *, five: bool, key_class: str = "java.util.UUID", new: bool = False) -> Path:
    """A savepoint with these rows: key group, state, what is behind the key group, value."""
    metas = (meta("counts", "VALUE", MAP), *((meta("rows", "MAP", MAP),) if new else ()))
    writer, id_ = SavepointWriter(str(target)), operator_id("main")
    header = KeyedHeader(False, kryo_snapshot(key_class), metas)
    with writer.keyed_file(id_.hex(), 0, header, KeyGroupRange(0, 127)) as file:
        for group, state in sorted({row[:2] for row in rows}):
            own = [_sized(bytes([group]) + key) + _sized(value) for *of, key, value in rows if of == [group, state]]
            data = np.frombuffer(b"".join(own), np.uint8).copy()
            file.entries(group, state, data, len(data) - len(own[-1]))
        subtask = Subtask(0, managed_keyed=file.close())
    version, name = (6, "main") if five else (4, None)
    operator = Operator(id_, 1, 128, name, name, subtasks=(subtask,))
    writer.commit(Metadata(version, 1, (operator,), properties=b"\xac\xed\x00\x05\x70"))
    return target


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def blobs(*, five: bool) -> Rows:
    return [(key_group(one), 0, uuid(one, five=five) + b"\0", encode(MAP, map_)) for one, map_ in MAPS.items()]


def stored(target: Path, state: str) -> dict[bytes, bytes]:
    """The rows of a state as they are in the savepoint."""
    found: dict[bytes, bytes] = {}
    opened = Savepoint.open(str(target))
    for file in opened.open_files(opened.operator("main")):
        names = [one.name for one in file.header.states]
        for group in file.handle.range:
            for section in file.sections(group):
                if names[section.state] == state:
                    keys = zip(section.key_starts.tolist(), section.key_ends.tolist(), strict=True)
                    values = zip(section.value_starts.tolist(), section.ends.tolist(), strict=True)
                    found |= {
                        bytes(section.data[slice(*key)]): bytes(section.data[slice(*value)])
                        for key, value in zip(keys, values, strict=True)
                    }
    return found


def expected(*, five: bool) -> dict[bytes, bytes]:
    return {
        bytes([key_group(one)]) + uuid(one, five=five) + b"\0" + encode(Scalar.STRING, user_key): b"\0"
        + encode(Scalar.LONG, value)
        for one, map_ in MAPS.items()
        for user_key, value in map_.items()
    }


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    without_spark(monkeypatch)


def run(source: Path, *options: str) -> int:
    return main(["run", "--savepoint", str(source), "--target", str(source.parent / "new"), *PLAN, *options])


@pytest.mark.parametrize("options", [(), ("--parallelism", "3"), ("--format", "native")], ids=str)
@pytest.mark.parametrize("five", [False, True])
def test_rows_have_the_keys_as_they_were(
    five: bool, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = savepoint(tmp_path / "old", blobs(five=five), five=five)
    assert run(source, *options) == 0
    said = capsys.readouterr()
    assert ", 0 could not tell" in said.out + said.err
    assert stored(tmp_path / "new", "rows") == expected(five=five)
    assert stored(tmp_path / "new", "counts") == {}


def test_tables_have_the_bytes_of_the_keys(tmp_path: Path) -> None:
    assert run(savepoint(tmp_path / "old", blobs(five=True), five=True)) == 0
    files = (tmp_path / "home" / "warehouse").rglob("map_entry/data/**/*.parquet")
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert {(row["key_raw"], row["user_key"], row["value"]) for row in rows} == {
        (uuid(one, five=True), *entry) for one, map_ in MAPS.items() for entry in map_.items()
    }
    assert not any("key" in row for row in rows)


def test_inspect_proposes_the_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(savepoint(tmp_path / "old", blobs(five=True), five=True)), "--json"]) == 0
    (operator,) = json.loads(capsys.readouterr().out)["operators"]
    (state,) = operator["keyed"]["states"]
    assert (state["migratable"], state["reason"]) == (True, None)


@pytest.mark.parametrize("largest", [64, 300])
@pytest.mark.parametrize("five", [False, True])
def test_keys_go_to_the_key_groups_of_their_hashes(
    five: bool, largest: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = savepoint(tmp_path / "old", blobs(five=five), five=five)
    assert run(source, "--max-parallelism", str(largest)) == 0
    assert ", 0 could not tell" in capsys.readouterr().out
    width = 1 if largest <= 128 else 2
    rows = {
        key_group(one, largest).to_bytes(width, "big") + uuid(one, five=five) + b"\0" + encode(Scalar.STRING, user_key)
        for one, map_ in MAPS.items()
        for user_key in map_
    }
    assert stored(tmp_path / "new", "rows").keys() == rows


def test_a_key_in_the_key_group_of_another_stops_a_change_of_max_parallelism(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (group, state, key, value), *others = blobs(five=True)
    rows = sorted([(group ^ 1, state, key, value), *others])
    assert run(savepoint(tmp_path / "old", rows, five=True), "--max-parallelism", "64") != 0
    assert f"expected keys whose hash gives key group {group ^ 1}" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("five", [False, True])
def test_rows_of_a_job_that_has_begun_to_move_its_maps_come_first(five: bool, tmp_path: Path) -> None:
    moved, *_ = MAPS
    of_row = uuid(moved, five=five) + b"\0" + encode(Scalar.STRING, "a")
    row = key_group(moved), 1, of_row, b"\0" + encode(Scalar.LONG, 7)
    source = savepoint(tmp_path / "old", [*blobs(five=five), row], five=five, new=True)
    assert run(source, "--no-flag-state") == 0
    assert stored(tmp_path / "new", "rows") == expected(five=five) | {bytes([row[0]]) + of_row: row[3]}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--to", "flink-1.20"), "can't be migrated and written for another Flink in one run"),
        (("--lazy", "--flag-state", "moved", "--share", "50%"), "of which a lazy run can't tell"),
    ],
)
def test_what_else_a_run_may_do_is_refused(
    options: tuple[str, ...], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(savepoint(tmp_path / "old", blobs(five=True), five=True), *options) != 0
    assert why in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_keys_from_before_an_upgrade_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job of Flink 2 doesn't find what is under keys that Kryo 2 has written."""
    rows = [*blobs(five=True)[:2], *blobs(five=False)[2:]]
    assert run(savepoint(tmp_path / "old", rows, five=True)) != 0
    assert "Kryo 2 has written this key, before the job was upgraded" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (b"\x54\1" + bytes(16) + b"\1\0", "expected 0 behind a key by Kryo, found 1"),
        (b"\x54\1" + bytes(16) + b"\0\0", "expected the end of a key by Kryo, found 1 more bytes"),
        (b"\x54\1" + bytes(9) + b"\0", "expected more bytes of what Kryo wrote, found its end"),
        (b"\1\0com.acme.Ow\xee\1\0", "com.acme.Own"),
    ],
)
def test_a_key_that_cannot_be_read_stops_the_run(
    key: bytes, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*blobs(five=True), (0, 0, key, encode(MAP, {"a": 1}))]
    assert run(savepoint(tmp_path / "old", sorted(rows), five=True)) != 0
    assert why in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_row_under_another_key_is_red(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The validation compares the bytes of the keys, too."""
    source = savepoint(tmp_path / "old", blobs(five=True), five=True)
    assert run(source) == 0
    told = ("verify", str(source), str(tmp_path / "new"), *PLAN)
    assert main(told) == 0
    (file,) = (one for one in (tmp_path / "new").iterdir() if one.name != METADATA)
    key = uuid(next(iter(MAPS)), five=True)
    content = file.read_bytes()
    assert content.count(key) == 2
    file.write_bytes(content.replace(key, key[:-1] + b"\1"))
    capsys.readouterr()
    assert main(told) == 1
    assert "main/rows: content" in capsys.readouterr().out


def test_keys_that_may_have_several_forms_get_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = savepoint(tmp_path / "old", blobs(five=True), five=True, key_class="java.lang.Object")
    assert run(source) == 0
    assert "keys of counts of main are by Kryo (java.lang.Object)" in capsys.readouterr().out


def test_keys_that_may_have_several_forms_are_refused_beside_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = blobs(five=True)
    source = savepoint(tmp_path / "old", rows, five=True, key_class="java.lang.Object", new=True)
    assert run(source, "--no-flag-state") != 0
    assert "equal ones may have other bytes" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_the_way_back_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(savepoint(tmp_path / "old", blobs(five=True), five=True)) == 0
    places = ("--savepoint", str(tmp_path / "new"), "--target", str(tmp_path / "back"))
    assert main(["run", "--reverse", *places, *PLAN]) != 0
    assert "its keys or values are by Kryo (java.util.UUID)" in capsys.readouterr().err
    assert not (tmp_path / "back").exists()


def test_a_catch_up_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = savepoint(tmp_path / "old", blobs(five=True), five=True)
    assert run(source, "--rehearse", "--format", "native") == 0
    (base,) = (one.name for one in (tmp_path / "home" / "runs" / "main").iterdir())
    capsys.readouterr()
    assert run(source, "--format", "native", "--since", base) != 0
    said = capsys.readouterr().err
    assert "of which it isn't known which have changed: leave --since out, which converts everything" in said
