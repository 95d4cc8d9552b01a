"""Two keys of an IdentityHashMap can be equal: they stop a run that would make one of them, before it writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RefusedError, StateferryError
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.serializers.built_snapshots import kryo_snapshot
from flinkstate.serializers.types import FlinkType
from flinkstate.values.codecs import encode
from stateferry.runs.record.steps import Step
from stateferry.steps.pipeline import Pipeline
from tests.steps.test_nights_since import at_work
from tests.support import legacy_states
from tests.support.kryo_writing import kryo_object, varint
from tests.support.legacy_states import LEGACY, NEW, LegacyState
from tests.support.verified_runs import STAGED

UPGRADE: dict[str, Any] = {"operators": [], "to": "flink-2", "on_contradiction": "stop", "accept_expired": None}
NAME = b"java.util.IdentityHashMap"


def identity_map(keys: str, five: bool) -> bytes:
    parts = b"".join(kryo_object(part, five) for number, key in enumerate(keys) for part in (f"u{key}", number))
    return bytes([1, 0]) + NAME[:-1] + bytes([NAME[-1] | 0x80, 1]) + varint(len(keys) + five) + parts


def savepoint(folder: Path, patch: pytest.MonkeyPatch, keys: str, kryo: int, *, of_flink_1: bool = False) -> Path:
    patch.setattr(legacy_states, "kryo_map", lambda _, five: identity_map(keys, five))
    patch.setattr(legacy_states, "kryo_snapshot", lambda name: kryo_snapshot("java.util.Map" if of_flink_1 else name))
    LegacyState({"key": ({}, 0)}, kryo=kryo).write(str(folder))
    if of_flink_1:
        metadata = parse_metadata((folder / METADATA).read_bytes(), METADATA)
        operators = tuple(replace(one, name=None, uid=None) for one in metadata.operators)
        (folder / METADATA).write_bytes(build_metadata(replace(metadata, version=4, operators=operators)))
    return folder


def staged(source: Path, folder: Path, **options: Any) -> Path:
    with at_work(source, folder, 0, "orders", options) as work:
        Pipeline(work).carry_out(*STAGED)
        assert work.run.has_done(Step.VALIDATE)
        return Path(work.run.staged.path)


@pytest.mark.parametrize("format_", ["canonical", "native"])
@pytest.mark.parametrize("kryo", [2, 5])
def test_equal_keys_of_one_map_stop_a_migration(
    kryo: int, format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = savepoint(tmp_path / "source", monkeypatch, "aba", kryo)
    with pytest.raises(RefusedError, match=r'key "key", user key "ua": two keys of the map become the same String'):
        staged(source, tmp_path, output_format=format_)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("format_", "message"),
    [("canonical", "each key once in a state"), ("native", f"in state {NEW}, [0-9a-f]*{b'key'.hex()}.* behind a key")],
)
def test_those_that_flinks_own_serializer_stored_are_not_published(
    format_: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot doesn't look for them: it would take all runs some percent more time."""

    def twice(type_: FlinkType, value: Any) -> bytes:
        return encode(type_, value * 2 if value == [("u", 1)] else value)

    monkeypatch.setattr(legacy_states, "encode", twice)
    source = tmp_path / "source"
    LegacyState({"key": ({"u": 1}, 0), "other": ({"a": 1, "b": 1}, 0)}).write(str(source))
    monkeypatch.undo()
    with pytest.raises(StateferryError, match=message):
        staged(source, tmp_path, output_format=format_)
    assert not (tmp_path / "target").exists()


def test_other_keys_are_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged(savepoint(tmp_path / "source", monkeypatch, "abc", 2), tmp_path)


@pytest.mark.parametrize("type_", ["Map<String, Long>", "Map<String, Kryo<java.lang.Object>>"])
def test_a_map_of_flinks_own_is_not_made_of_one(type_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = savepoint(tmp_path / "source", monkeypatch, "aba", 2, of_flink_1=True)
    with pytest.raises(RefusedError, match="IdentityHashMap"):
        staged(source, tmp_path, **{**UPGRADE, "declared": {f"main/{LEGACY}": type_}})


def test_by_kryo_it_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = savepoint(tmp_path / "source", monkeypatch, "aba", 2, of_flink_1=True)
    staged(source, tmp_path, **{**UPGRADE, "declared": {f"main/{LEGACY}": "Map"}})
