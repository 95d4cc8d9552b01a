"""What `OLD=NEW` says of files that were moved: folders may have equals signs and commas in their names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.errors import RefusedError, UsageError
from flinkstate.files import stores
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import AbsoluteFile, FileSegment, Metadata, StreamHandle
from flinkstate.metadata.moved_files import check_stores, root_of
from flinkstate.reading.reader import Savepoint
from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED
from stateferry.cli import main
from stateferry.proof.checks import open_staged
from stateferry.proof.expected.check_result import Check, Outcome

ROOTS = {
    "/old=/new": ("/old", "/new"),
    "/env=prod/day=1=/backup/env=prod": ("/env=prod/day=1", "/backup/env=prod"),
    "s3://bucket/env=prod=file:///backup/a=b": ("s3://bucket/env=prod", "file:///backup/a=b"),
    "file:/a&b=c=s3a://other/d": ("file:/a&b=c", "s3a://other/d"),
}


@pytest.mark.parametrize("text", ROOTS)
def test_new_begins_where_an_address_does(text: str) -> None:
    assert root_of(text, "--files-from") == ROOTS[text]


@pytest.mark.parametrize("text", ["/new", "=/new", "/old=", "/a=b=c", "/a=/b=/c", "/old=new/folder", "old=/new"])
def test_what_has_no_two_parts_or_more_than_one_meaning_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"option --files-from: expected OLD=NEW, two absolute paths or URIs"):
        root_of(text, "--files-from")


GOLDEN = Path(__file__).parents[1] / "savepoints" / "legacy-2.3-rocksdb"
ELSEWHERE = (
    "http://127.0.0.1:1/file",
    "gs://other/file",
    "s3://other/file",
    "s3://b/file?endpoint_override=127.0.0.1:1",
    "s3://me:secret@b/file",
    "s3://b/a/../file",
    "hdfs://nn:8020/file",
    "abfs://c@a.dfs.core.windows.net/file",
)


def with_files_at(uri: str) -> Metadata:
    """The golden savepoint's metadata, with all its files at this address."""
    metadata = Savepoint.open(str(GOLDEN)).metadata

    def moved(stream: StreamHandle) -> StreamHandle:
        return AbsoluteFile(uri, stream.size)

    operators = (
        replace(operator, subtasks=tuple(subtask.with_streams(moved) for subtask in operator.subtasks))
        for operator in metadata.operators
    )
    return replace(metadata, operators=tuple(operators))


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_no_address_is_followed_that_only_metadata_names(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def connected(*_: object) -> None:
        raise AssertionError("a store was asked")

    monkeypatch.setattr(stores, "_store", connected)
    (tmp_path / METADATA).write_bytes(build_metadata(with_files_at(uri)))
    assert main(["inspect", str(tmp_path)]) == DAMAGED_OR_REFUSED
    said = capsys.readouterr().err
    assert "is in _metadata alone, and on another store than the savepoint" in said
    assert "--files-from" in said
    assert "secret" not in said
    staged = open_staged(str(tmp_path))
    assert isinstance(staged, Check)
    assert staged.outcome is Outcome.FAILED


def test_what_a_person_has_named_is_followed() -> None:
    check_stores(with_files_at("s3://b/shared/file"), "f", ["s3a://b/chk-5"])
    check_stores(with_files_at("s3://b/shared/file"), "f", ["/local", "s3://b/shared"])
    check_stores(with_files_at("hdfs://NN:8020/file"), "f", ["hdfs://nn/chk-5"])
    for local in ("file:/a/b", "file:///a/b", "/a/b"):
        check_stores(with_files_at(local), "f", ["/source"])
        with pytest.raises(RefusedError, match="is in _metadata alone, and on another store"):
            check_stores(with_files_at(local), "f", ["s3://b/source"])
    for unclear in ("s3://b/file?endpoint_override=h", "s3://b/a/../file"):
        with pytest.raises(RefusedError, match=r"^f: the address of a file of operator main, which is in _metadata: "):
            check_stores(with_files_at(unclear), "f", ["s3://b/source"])
    (subtask, *_) = with_files_at("x").operators[-1].subtasks
    assert subtask.managed_keyed is not None
    segment = replace(subtask.managed_keyed, stream=FileSegment("gs://other/file", 0, 1, 0, "id"))
    metadata = with_files_at("/a")
    of_segment = replace(metadata.operators[-1], subtasks=(subtask.with_keyed(segment),))
    with pytest.raises(RefusedError, match="gs://other/file"):
        check_stores(replace(metadata, operators=(of_segment,)), "f", ["/source"])
