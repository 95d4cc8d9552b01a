"""What `stateferry check` says of savepoints, as text and as JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stateferry.cli import main
from tests.classfiles.test_class_files import small_class
from tests.flink.upgrade_rows import table, table_in_docs

SAVEPOINTS = Path(__file__).parents[1] / "savepoints"
REFUSED = Path(__file__).parents[1] / "rocksdb" / "refused"
GOLDEN = Path(__file__).with_name("check_of_a_map.txt")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["check", *arguments])
    out, error = capsys.readouterr()
    return code, out + error


def facts(capsys: pytest.CaptureFixture[str], savepoint: str, target: str, *more: str) -> tuple[int, dict[str, Any]]:
    code, text = said(capsys, str(SAVEPOINTS / savepoint), "--for", target, "--json", *more)
    found: dict[str, Any] = json.loads(text)
    return code, found


def outcomes(found: dict[str, Any]) -> dict[str, str]:
    return {one["state"]: one["outcome"] for one in found["states"]}


def test_the_text_names_outcome_reason_exception_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, str(SAVEPOINTS / "hint-map-1.20-rocksdb"), "--for", "flink-2")
    assert code == 1
    assert text.replace(str(SAVEPOINTS), "/savepoints") == (GOLDEN.read_text(encoding="utf-8"))


def test_the_table_of_the_docs_is_what_the_rows_say() -> None:
    assert table_in_docs() == table()


def test_nothing_breaks_where_flink_has_all_serializers(capsys: pytest.CaptureFixture[str]) -> None:
    for savepoint, target in (
        ("legacy-ttl-1.20-rocksdb", "flink-2.3"),
        ("kinds-in-windows-1.20-rocksdb", "flink-2"),
        ("native-2.3-rocksdb", "flink-2.3"),
    ):
        code, found = facts(capsys, savepoint, target)
        assert (code, set(outcomes(found).values())) == (0, {"restores"}), savepoint


def test_objects_of_a_class_that_is_not_known_may_end_with_a_small_array(capsys: pytest.CaptureFixture[str]) -> None:
    """Flink 2 reads beyond such an array, also in what it wrote itself."""
    code, found = facts(capsys, "kryo-2.3-rocksdb", "flink-2")
    assert code == 1
    assert [(state["state"], state["outcome"]) for state in found["states"]] == [
        ("opaque", "unknown"), ("opaque-in-map", "unknown"), ("plain", "restores"),
    ]  # fmt: skip


def test_flink_1_reads_no_savepoint_of_flink_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = facts(capsys, "legacy-2.3-rocksdb", "flink-1.20")
    assert (code, set(outcomes(found).values())) == (1, {"refused"})
    assert found["states"][0]["exception"] == "IllegalArgumentException: Unrecognized checkpoint version number: 6"


def test_flink_1_does_not_read_it_either_if_its_keyed_state_is_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    for savepoint in (SAVEPOINTS / "native-2.3-hashmap", REFUSED / "forst-asynchronous-checkpoint-2.3"):
        code, text = said(capsys, str(savepoint), "--for", "flink-1.20")
        assert code == 1
        assert "(keyed state) (): is refused" in text
        assert "to do: go back to a savepoint that was taken before the upgrade\n" in text


def test_it_says_what_the_snapshot_was_taken_as(capsys: pytest.CaptureFixture[str]) -> None:
    for savepoint, taken_as in (
        (SAVEPOINTS / "legacy-2.3-rocksdb", "canonical savepoint"),
        (SAVEPOINTS / "native-2.3-rocksdb", "native savepoint"),
        (SAVEPOINTS / "native-2.3-hashmap", "native savepoint"),
        (SAVEPOINTS / "checkpoint-2.3-rocksdb", "checkpoint"),
        (REFUSED / "hashmap-checkpoint-2.3", "checkpoint"),
    ):
        assert said(capsys, str(savepoint), "--for", "flink-2")[1].startswith(
            f"{savepoint}: {taken_as} of Flink 2.1 to 2.3, "
        )


def test_of_files_that_are_not_read_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for savepoint, expected, why in (
        ("forst-asynchronous-checkpoint-2.3", 1, "is asynchronous (V2) state, as the ForSt backend writes it"),
        ("hashmap-checkpoint-2.3", 1, "this file has the HashMap backend's own layout"),
        ("changelog-checkpoint-2.3", 3, "has a changelog handle"),
    ):
        code, text = said(capsys, str(REFUSED / savepoint), "--for", "flink-2")
        assert code == expected
        assert why in text
        assert code == 3 or "1 state: 1 can't tell" in text


def test_what_was_not_tried_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = facts(capsys, "old-1.12-rocksdb", "flink-2.3")
    assert (code, set(outcomes(found).values())) == (1, {"unknown"})
    assert found["states"][0]["reason"].startswith("not tried with Flink 1.11 to 1.15, which wrote the savepoint")


@pytest.mark.parametrize(
    ("savepoint", "writer"),
    [
        ("../earlier_savepoints/2.0-rocksdb", "Flink 2.0"),
        ("../earlier_savepoints/2.1-rocksdb", "Flink 2.1 to 2.3"),
        ("../earlier_savepoints/2.2-rocksdb", "Flink 2.1 to 2.3"),
        ("legacy-2.3-rocksdb", "Flink 2.1 to 2.3"),
        ("../earlier_savepoints/1.19-rocksdb", "Flink 1.16 to 1.20"),
    ],
)
def test_it_names_the_versions_that_may_have_written_it(
    capsys: pytest.CaptureFixture[str], savepoint: str, writer: str
) -> None:
    assert facts(capsys, savepoint, "flink-2.3")[1]["written_by"] == writer


def test_with_the_new_jobs_classes_their_fields_are_looked_at(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Here the new job has none of the classes of the old one."""
    (tmp_path / "Other.class").write_bytes(small_class("Other", "java/lang/Object"))
    savepoint = "../earlier_savepoints/1.19-hashmap"
    assert outcomes(facts(capsys, savepoint, "flink-2.3")[1])["person"] == "restores"
    _, found = facts(capsys, savepoint, "flink-2.3", "--classes", str(tmp_path))
    assert outcomes(found)["person"] == "unknown"
    assert outcomes(found)["pair"] == "restores"


def test_maps_from_before_an_upgrade_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = facts(capsys, "upgraded-hint-hash-map-2.3-rocksdb", "flink-2.3", "--all")
    assert (code, outcomes(found)["mainState"]) == (1, "wrong")
    reason = next(state["reason"] for state in found["states"] if state["state"] == "mainState")
    assert reason.startswith("9 of all 17 values are by Kryo 2, from before an upgrade to Flink 2: ")
    assert reason.endswith(
        "8 are by Kryo 5, written since: of these no count can say what they had lost when they were read"
    )


def test_objects_that_were_not_read_may_be_from_before_an_upgrade(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = facts(capsys, "in-objects-upgraded-2.3-rocksdb", "flink-2")
    assert (code, set(outcomes(found).values())) == (1, {"unknown"})
    assert {state["advice"].rpartition(": ")[2] for state in found["states"]} == {"--classes job.jar"}


def test_operator_state_and_what_connectors_write(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = facts(capsys, "several-operators-2.3-hashmap", "flink-2.3")
    assert outcomes(found)["SourceReaderState"] == "unknown"
    assert outcomes(found)["(coordinator)"] == "unknown"
    code, found = facts(capsys, "operator-state-1.20-hashmap", "flink-2.3")
    assert (code, set(outcomes(found).values())) == (0, {"restores"})


def test_one_file_of_each_operator_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    savepoint = tmp_path / "savepoint"
    assert main(["demo-savepoint", str(savepoint), "--keys", "400"]) == 0
    files = sorted((path for path in savepoint.iterdir() if path.name != "_metadata"), key=_size)
    assert len(files) > 1
    for file in files[:-1]:
        file.unlink()
    code, text = said(capsys, str(savepoint), "--for", "flink-2.3")
    assert (code, text.splitlines()[-1]) == (0, "3 states: 3 restores")


def _size(path: Path) -> int:
    return path.stat().st_size


def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, text = said(capsys, str(SAVEPOINTS / "legacy-2.3-rocksdb"), "--for", "flink-2.33")
    assert code == 2
    assert "unknown value 'flink-2.33'. Did you mean flink-2.3?" in text
    # What earlier ones make of a savepoint was not tried.
    for target in ("flink-2.0", "flink-2.1", "flink-2.2"):
        assert said(capsys, str(SAVEPOINTS / "legacy-2.3-rocksdb"), "--for", target)[0] == 2
    old, new = (str(SAVEPOINTS / f"hint-hash-map-{version}-rocksdb") for version in ("1.20", "2.3"))
    for arguments, why in (
        ((old, "--for", "flink-2.3"), "is for a savepoint of Flink 2 and --for flink-2: leave it out"),
        ((new, "--for", "flink-1.20"), "is for a savepoint of Flink 2 and --for flink-2: leave it out"),
        ((new, "--for", "flink-2", "--before", old), "says that the job was never upgraded, --before that it was"),
    ):
        code, text = said(capsys, *arguments, "--all-by-kryo-5")
        assert (code, f"--all-by-kryo-5 {why}" in text) == (2, True), text
    assert said(capsys, new, "--for", "flink-2", "--all-by-kryo-5")[0] == 0
    damaged = tmp_path / "damaged"
    shutil.copytree(SAVEPOINTS / "hint-hash-map-1.20-rocksdb", damaged)
    content = (damaged / "_metadata").read_bytes()
    (damaged / "_metadata").write_bytes(content[: len(content) // 2])
    code, text = said(capsys, str(damaged), "--for", "flink-2.3")
    assert code == 3
    assert "_metadata" in text


def test_it_says_what_max_parallelism_a_new_job_would_get(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = said(capsys, str(SAVEPOINTS / "legacy-wide-1.20-rocksdb"), "--for", "flink-1.20")
    assert text.splitlines()[-1].startswith(
        "note: 075411a2d1ef617c7b2ad2770050b24f: a new job gets max parallelism 128 "
    )
    assert "note" not in said(capsys, str(SAVEPOINTS / "legacy-2.3-rocksdb"), "--for", "flink-2.3")[1]
