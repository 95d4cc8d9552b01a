"""What is told of a Java stack trace; where savepoints are looked for; ids."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from stateferry.airflow.flink.errors import root_cause
from stateferry.airflow.flink.identity import flink_id, folder_name
from stateferry.airflow.flink.savepoints import SavepointOrder
from stateferry.airflow.flink.storage import newest_completed


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ("java.io.IOException: disk full\n\tat a.b.C(D.java:1)\n", "java.io.IOException: disk full"),
        (
            (
                "java.util.concurrent.CompletionException: a.Outer: it failed\n\tat a.b.C(D.java:1)\n"
                "Caused by: a.Outer: it failed\n\tat a.b.C(D.java:1)\n\t... 3 more\n"
                "Caused by: a.Inner: because\n of this\n\tat a.b.C(D.java:1)\n\t... 9 more\n"
            ),
            "a.Outer: it failed – caused by a.Inner: because of this",
        ),
        (
            "a.First: 1\n\tat a.b.C(D.java:1)\nCaused by: a.Second: 2\nCaused by: a.Third: 3\n\tat e.f(G.java:2)\n",
            "a.First: 1 – caused by a.Second: 2 – caused by a.Third: 3",
        ),
        ("a.Error: no\n\tat a.b.C(D.java:1)\nCaused by: a.Error: no\n\tat e.f(G.java:2)\n", "a.Error: no"),
        ("plain words\nin two lines", "plain words in two lines"),
        ("", "(no reason is given)"),
    ],
)
def test_the_root_cause_of_a_stack_trace(trace: str, words: str) -> None:
    assert root_cause(trace) == words


def test_an_id_follows_from_its_parts_alone() -> None:
    assert flink_id("job", "dag", "task", "-1", "run") == flink_id("job", "dag", "task", "-1", "run")
    assert len({flink_id("a", "bc"), flink_id("ab", "c"), flink_id("abc"), flink_id("a", "b", "c")}) == 4
    assert len(flink_id("job")) == 32
    assert int(flink_id("job"), 16)


def test_a_folder_is_named_plainly() -> None:
    name = folder_name("dag", "group.task", "-1", "scheduled__2026-11-21T05:00:00+00:00")
    assert name.startswith("dag-group.task-_1-")
    assert not set(name) & set(":+/ %")


def test_each_place_has_triggers_of_its_own() -> None:
    one = SavepointOrder(("dag", "run"), "job", "s3://bucket/savepoints/")
    other = SavepointOrder(("dag", "run"), "job", "s3://elsewhere")
    assert one.directory == f"s3://bucket/savepoints/{folder_name('dag', 'run')}"
    assert len({one.trigger(0), one.trigger(1), other.trigger(0)}) == 3


def test_the_newest_complete_savepoint(tmp_path: Path) -> None:
    assert newest_completed(str(tmp_path / "nowhere")) is None
    for name, age, complete in (("savepoint-a", 20, True), ("savepoint-b", 10, True), ("savepoint-c", 0, False)):
        (tmp_path / name).mkdir()
        metadata = tmp_path / name / "_metadata"
        metadata.write_bytes(b"x" if complete else b"")
        os.utime(metadata, (1e9 - age, 1e9 - age))
    assert newest_completed(str(tmp_path)) == f"{tmp_path}/savepoint-b"
    assert newest_completed(f"file:{tmp_path}/") == f"file:{tmp_path}/savepoint-b"
    assert newest_completed(f"file://{tmp_path}") == f"file://{tmp_path}/savepoint-b"


def test_of_checkpoints_of_the_same_second_the_number_decides(tmp_path: Path) -> None:
    for names, newest in ((("chk-7", "chk-8"), "chk-8"), (("chk-9", "chk-10"), "chk-10")):
        for name in names:
            (tmp_path / name).mkdir()
            (tmp_path / name / "_metadata").write_bytes(b"x")
            os.utime(tmp_path / name / "_metadata", (1e9, 1e9))
        assert newest_completed(str(tmp_path)) == f"{tmp_path}/{newest}"


def test_the_newest_complete_savepoint_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    store, directory = MemoryFileSystem(), "memory://state/savepoints/of-one-task"
    find, remembered = MemoryFileSystem.find, dict[str, Any]()

    def find_as_remembered(store: MemoryFileSystem, path: str, **how: Any) -> Any:
        return remembered.setdefault(path, find(store, path, **how))

    # As drivers of stores do to whom a question is a request.
    monkeypatch.setattr(MemoryFileSystem, "find", find_as_remembered)
    monkeypatch.setattr(MemoryFileSystem, "invalidate_cache", lambda _: remembered.clear())
    try:
        store.pipe(f"{directory}/savepoint-c/data", b"x")
        assert newest_completed(directory) is None
        for name in ("savepoint-b", "savepoint-a"):
            store.pipe(f"{directory}/{name}/_metadata", b"x")
            assert newest_completed(f"{directory}/") == f"{directory}/{name}"
    finally:
        store.rm("memory://state", recursive=True)


@pytest.mark.parametrize("directory", ["nothing-known://bucket/savepoints", "s3://bucket/savepoints"])
def test_a_place_that_cannot_be_seen_from_here_is_no_answer(directory: str, caplog: pytest.LogCaptureFixture) -> None:
    assert newest_completed(directory) is None
    assert f"can't look for savepoints in {directory}" in caplog.text
