"""Null values that their serializer can't write: the run asks before it writes, and does what it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.metadata.metadata import Metadata
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar
from flinkstate.values.java_values import Singleton
from flinkstate.writing.writer import SavepointWriter
from stateferry.changes.rules import NullsCannotBeKeptError, NullsNeedAWordError
from stateferry.runs.record.step_facts import SnapshotFacts
from tests.flink.judge import dumped
from tests.support.facts import kept_facts
from tests.support.legacy_states import LEGACY, NEW, LegacyState
from tests.support.verified_runs import verified

pytestmark = pytest.mark.usefixtures("home")

HELD = LegacyState({"k": ({"a": 1, "b": None}, 0), "l": ({"a": None}, 0)}, {"m": {"a": (None, 0)}}, {"m": 0})
ON_HASH_MAP = "a job on the HashMap backend can't take a canonical savepoint any more"
ON_OLD_ROCKSDB = "a job on RocksDB can't put null itself under Flink 1.20"


def of_flink_1(folder: Path) -> None:
    """Makes the savepoint one of Flink 1.20, as far as `_metadata` says."""
    metadata = Savepoint.open(str(folder)).metadata
    operators = tuple(replace(operator, name="", uid="") for operator in metadata.operators)
    (folder / "_metadata").unlink()
    SavepointWriter(str(folder)).commit(Metadata(4, metadata.checkpoint_id, operators, (), metadata.properties))


def found(folder: Path) -> set[tuple[str, str, object]]:
    return {(line["key"], line["user_key"], line["value"]) for line in dumped(folder, "main", NEW)}


ROWS = {("k", "a", 1), ("k", "b", None), ("l", "a", None), ("m", "a", None)}


@pytest.mark.parametrize(
    ("version", "options", "reasons"),
    [
        (2, {}, {ON_HASH_MAP}),
        (1, {}, {ON_HASH_MAP, ON_OLD_ROCKSDB}),
        (1, {"output_format": "native"}, {ON_OLD_ROCKSDB}),
    ],
)
def test_nulls_stop_the_run_where_the_new_job_can_do_less(
    version: int, options: dict[str, object], reasons: set[str], tmp_path: Path
) -> None:
    HELD.write(str(tmp_path / "source"))
    if version == 1:
        of_flink_1(tmp_path / "source")
    with pytest.raises(NullsNeedAWordError) as stopped:
        verified(tmp_path / "source", tmp_path / "stopped", **options)
    said = str(stopped.value)
    assert ": 2 entries have a null value, which the serializer of Long can't write. As rows of newMainState" in said
    assert {reason for reason in (ON_HASH_MAP, ON_OLD_ROCKSDB) if reason in said} == reasons
    assert "Nothing has been written. Keep them all the same with --nulls keep, or leave" in said
    assert not (tmp_path / "stopped").exists()

    run = verified(tmp_path / "source", tmp_path / "kept", nulls="keep", **options)
    assert found(tmp_path / "kept") == ROWS
    facts = kept_facts(run, SnapshotFacts)
    (note,) = [note for note in facts.notes if "null" in note]
    assert note.startswith(f"2 null values of {LEGACY} of ")
    assert " become rows, which the serializer of Long can't write: " in note
    assert {reason for reason in (ON_HASH_MAP, ON_OLD_ROCKSDB) if reason in note} == reasons
    # Rows that the job has put itself stay: they are its own.
    verified(tmp_path / "source", tmp_path / "dropped", nulls="drop", **options)
    assert found(tmp_path / "dropped") == {("k", "a", 1), ("m", "a", None)}


def test_nulls_that_break_nothing_need_no_word(tmp_path: Path) -> None:
    HELD.write(str(tmp_path / "source"))
    run = verified(tmp_path / "source", tmp_path / "native", output_format="native")
    assert found(tmp_path / "native") == ROWS
    facts = kept_facts(run, SnapshotFacts)
    assert any(
        "can't write: RocksDB of Flink 2.3 holds them. If the job moves to another" in note for note in facts.notes
    )
    text = LegacyState({"k": ({"a": "1", "b": None}, 0)}, value=Scalar.STRING)
    text.write(str(tmp_path / "text"))
    for nulls in ("stop", "keep", "drop"):
        verified(tmp_path / "text", tmp_path / nulls, nulls=nulls)
        assert found(tmp_path / nulls) == {("k", "a", "1"), ("k", "b", None)}


def test_nulls_of_types_of_one_value_need_no_word(tmp_path: Path) -> None:
    """Their serializers don't look at the value, so no backend fails; under time to live null becomes the value."""
    one = LegacyState({"k": ({"a": Singleton.UNIT, "b": None}, 0)}, value=Scalar.UNIT)
    one.write(str(tmp_path / "source"))
    run = verified(tmp_path / "source", tmp_path / "kept")
    kept = {line["user_key"]: line["value"] for line in dumped(tmp_path / "kept", "main", NEW)}
    assert kept == {"a": {}, "b": None}
    facts = kept_facts(run, SnapshotFacts)
    assert not [note for note in facts.notes if "null" in note]
    one.with_changes(ttl=True).write(str(tmp_path / "aging"))
    with pytest.raises(NullsCannotBeKeptError):
        verified(tmp_path / "aging", tmp_path / "stopped", ttl_ms="30d", now=0)


def test_under_time_to_live_they_cannot_be_kept(tmp_path: Path) -> None:
    HELD.with_changes(ttl=True, rows={}, flags={}).write(str(tmp_path / "source"))
    options: dict[str, object] = {"ttl_ms": "30d", "now": 1}
    for nulls in ("stop", "keep"):
        with pytest.raises(NullsCannotBeKeptError, match=r"which a MapState with TTL can't hold; .* --nulls drop"):
            verified(tmp_path / "source", tmp_path / "stopped", nulls=nulls, **options)
    verified(tmp_path / "source", tmp_path / "dropped", nulls="drop", **options)
    assert found(tmp_path / "dropped") == {("k", "a", 1)}


@pytest.mark.parametrize("change", [lambda nulls: nulls, lambda _: "drop"])
def test_a_lazy_run_asks_and_drops_too(change: Callable[[str], str], tmp_path: Path) -> None:
    blobs = {f"k{number}": ({"a": 1, "b": None}, 0) for number in range(40)}
    LegacyState(blobs).write(str(tmp_path / "source"))
    lazy: dict[str, object] = {"lazy": True, "share": 0.5}
    with pytest.raises(NullsNeedAWordError):
        verified(tmp_path / "source", tmp_path / "stopped", **lazy)
    nulls = change("keep")
    verified(tmp_path / "source", tmp_path / "new", nulls=nulls, **lazy)
    rows = found(tmp_path / "new")
    assert {key for key, *_ in rows} < blobs.keys()
    assert {user_key for _, user_key, _ in rows} == ({"a"} if nulls == "drop" else {"a", "b"})
    left = dumped(tmp_path / "new", "main", LEGACY)
    assert all(line["value"] == {"a": 1, "b": None} for line in left)
    assert len(left) + len({key for key, *_ in rows}) == len(blobs)
