"""The command line: answers for people and programs, one line for every error, and quick enough to be asked often."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, model_serializer

from flinkstate.keyed.compression import Compression
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import InlineBytes, Metadata, Operator
from flinkstate.reading.reader import operator_id
from stateferry.basics import exit_codes
from stateferry.basics.exit_codes import exit_code_of, if_interrupted
from stateferry.cli import main
from stateferry.cli.progress import progress_bar
from stateferry.runs.catalog.publications import Control
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.runs import Run
from tests.support.samples import write_sample
from tests.support.terminal import Line, Terminal

GOLDEN = Path(__file__).parents[1] / "savepoints"
LEGACY = GOLDEN / "legacy-2.3-rocksdb"
SCRIPT = [sys.executable, "-m", "stateferry.cli"]

NOT_CANONICAL = ["native-2.3-rocksdb", "native-2.3-hashmap", "checkpoint-2.3-rocksdb"]
CANONICAL = sorted({folder.parent.name for folder in GOLDEN.glob("*/expected.jsonl")} - set(NOT_CANONICAL))

# What no reader can know without the classes of the job: by case, the states that hold such values, and the class.
UNREADABLE = {
    "kryo-1.20-rocksdb": ({"opaque", "opaque-in-map"}, "stateferry.flink.pojo.Opaque"),
    "kryo-2.3-rocksdb": ({"opaque", "opaque-in-map"}, "stateferry.flink.pojo.Opaque"),
    "kryo-registered-1.20-rocksdb": ({"opaque", "protobuf", "thrift-in-map"}, "(serialized by Kryo)"),
    "kryo-registered-2.3-rocksdb": ({"opaque", "protobuf", "thrift-in-map"}, "(serialized by Kryo)"),
    # A constant of an enum is only a number.
    **dict.fromkeys(
        ("declared-1.20-rocksdb", "declared-ttl-1.20-hashmap", "upgraded-2.3-rocksdb"),
        ({"value-24-HintedMap-Byte-Color"}, "stateferry.flink.pojo.Color"),
    ),
    # This backend describes only the subclasses that it had met before the snapshot began.
    "composites-ttl-1.20-hashmap": ({"value-22-Animal", "value-23-List-Animal"}, "stateferry.flink.pojo.Dog"),
    # Of a value by Kryo inside of another one it isn't known which Kryo wrote it.
    **dict.fromkeys(
        [name for name in CANONICAL if name.startswith("in-pojos-") and name != "in-pojos-2.3-hashmap"],
        ({"totals", "kryo", "moved"}, "(serialized by Kryo)"),
    ),
    "in-pojos-ttl-2.3-rocksdb": ({"kryo"}, "(serialized by Kryo)"),
    # Objects that Kryo wrote as a whole.
    **dict.fromkeys(
        [name for name in CANONICAL if name.startswith("in-objects-")], ({"whole", "raw"}, "(serialized by Kryo)")
    ),
    **dict.fromkeys(
        [name for name in CANONICAL if name.startswith(("kryo-parts-", "pojo-parts-"))],
        ({f"old-{number}" for number in range(5)}, "(serialized by Kryo)"),
    ),
}


def expected(savepoint: Path) -> list[Line]:
    with (savepoint / "expected.jsonl").open(encoding="ascii") as lines:
        return [json.loads(line) for line in lines]


def as_multiset(lines: list[Line]) -> Counter[str]:
    return Counter(json.dumps(line, sort_keys=True) for line in lines)


def unordered(lines: list[Line]) -> list[Line]:
    """Without the order of the entries of maps by Kryo. An empty one doesn't say what its keys would be."""

    def of(value: Any) -> Any:
        return sorted(value, key=json.dumps) if isinstance(value, list) and value else value or {}

    return [line | {"value": of(line["value"])} if "value" in line else line for line in lines]


def entries_of(lines: list[Line], operator: dict[str, Any], state: str) -> list[Line]:
    """What the generator says of a state, as a dump says it. Before version 5, `_metadata` knows no uids."""
    return [
        {name: value for name, value in line.items() if name not in ("operator", "state")}
        for line in lines
        if line["state"] == state and operator_id(line["operator"]).hex() == operator["id"]
    ]


def by_kryo(state: str, case: str) -> bool:
    """Whether the state's maps are by Kryo, by the names that the generator gives to states and scenarios."""
    return state.startswith("value-") and case.startswith(("declared", "upgraded"))


@pytest.mark.matrix(most=20)
@pytest.mark.part
@pytest.mark.parametrize("case", CANONICAL)
def test_all_that_flink_wrote_is_inspected_and_dumped(terminal: Terminal, case: str) -> None:
    contents = expected(GOLDEN / case)
    unreadable, class_name = UNREADABLE.get(case, (set(), ""))
    accounted = 0
    for operator in terminal.inspects(GOLDEN / case)["operators"]:
        for state in operator["keyed"]["states"] if operator["keyed"] else []:
            known = entries_of(contents, operator, state["name"])
            assert state["entries"] == len(known)
            if state["name"] in unreadable:
                terminal.refuses(class_name, GOLDEN / case, operator["id"], state["name"])
            else:
                dumped = terminal.dumps(GOLDEN / case, state["name"], operator=operator["id"])
                if by_kryo(state["name"], case):
                    dumped, known = unordered(dumped), unordered(known)
                assert as_multiset(dumped) == as_multiset(known)
            accounted += len(known)
        for state in operator["operator_states"]:
            if state["name"] == "SourceReaderState":
                continue  # a source's own, not the generator's
            known = entries_of(contents, operator, state["name"])
            assert state["elements"] == len(known)
            accounted += len(known)
    assert accounted == len(contents)


def test_inspect_says_the_facts_of_a_legacy_savepoint(terminal: Terminal) -> None:
    facts = terminal.inspects(LEGACY)
    assert (facts["version"], facts["format"]) == (6, "canonical")
    (operator,) = [operator for operator in facts["operators"] if operator["keyed"]]
    assert operator["id"] == "075411a2d1ef617c7b2ad2770050b24f"
    assert (operator["uid"], operator["parallelism"], operator["max_parallelism"]) == ("main", 3, 128)
    assert operator["keyed"]["key_type"] == "String"
    states = {state["name"]: state for state in operator["keyed"]["states"]}
    assert {name: (state["kind"], state["type"], state["ttl"]) for name, state in states.items()} == {
        "mainState": ("VALUE", "Map<String,Long>", False),
        "newMainState": ("MAP", "Map<String,Long>", False),
        "isMigratedState": ("VALUE", "Boolean", False),
    }
    assert {state["namespace_type"] for state in states.values()} == {"VoidNamespace"}
    assert {name: (state["migratable"], state["reason"]) for name, state in states.items()} == {
        "mainState": (True, None),
        "newMainState": (False, "already a MapState"),
        "isMigratedState": (False, "a ValueState<Boolean>, not of a map"),
    }
    groups = Counter(line["key_group"] for line in entries_of(expected(LEGACY), operator, "mainState"))
    assert states["mainState"]["key_groups"]["empty"] == 128 - len(groups)
    largest = states["mainState"]["key_groups"]["largest"]
    assert largest["entries"] == groups[largest["key_group"]]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.STORED, Compression.SNAPPY])
def test_inspect_says_how_key_groups_are_compressed(
    terminal: Terminal, tmp_path: Path, compression: Compression
) -> None:
    write_sample(tmp_path / "s", compression=compression)
    (operator,) = terminal.inspects(tmp_path / "s")["operators"]
    assert operator["keyed"]["compression"] == [compression]
    text = terminal.says("inspect", tmp_path / "s")
    assert (f"keyed state by String (compression: {compression})" in text) is (compression is not Compression.NONE)
    assert ("compression" in text) is (compression is not Compression.NONE)


def test_inspect_shows_people_the_same_in_tables(terminal: Terminal) -> None:
    facts = terminal.inspects(LEGACY)
    text = terminal.says("inspect", LEGACY).partition("is a migration")[0]
    for operator in facts["operators"]:
        assert operator["id"] in text
        for state in operator["keyed"]["states"] if operator["keyed"] else []:
            (row,) = [line for line in text.splitlines() if f"│ {state['name']} " in line]
            for shown in (state["kind"], state["type"], f"{state['entries']:,}", state["reason"] or "yes"):
                assert f" {shown} " in row or f": {shown} " in row
            assert f"{state['key_groups']['empty']} empty" in row


def test_names_from_a_savepoint_are_neither_markup_nor_control_sequences(tmp_path: Path, terminal: Terminal) -> None:
    operator = Operator(operator_id("\ud800"), 1, 128, name="[red]\x1b[31mname", uid="\ud800")
    savepoint_of(tmp_path, Metadata(6, 1, (operator,), properties=b"\xac\xed\x00\x05\x70"))
    text = terminal.says("inspect", tmp_path)
    assert "[red]\\x1b[31mname" in text
    assert "\\ud800" in text


def savepoint_of(folder: Path, metadata: Metadata) -> None:
    (folder / "_metadata").write_bytes(build_metadata(metadata))


@pytest.mark.parametrize("version", [3, 4, 5])
def test_other_versions_are_described_as_what_they_are(tmp_path: Path, terminal: Terminal, version: int) -> None:
    operator = Operator(operator_id("main"), 2, 64, "the name", "main", InlineBytes("of a source", b"abc"))
    savepoint_of(
        tmp_path, Metadata(version, 7, (operator,), properties=b"\xac\xed\x00\x05\x70" if version > 3 else b"")
    )
    facts = terminal.inspects(tmp_path)
    assert (facts["version"], facts["checkpoint_id"]) == (version, 7)
    assert facts["operators"] == [
        {
            "id": "075411a2d1ef617c7b2ad2770050b24f",
            "uid": "main" if version >= 5 else None,
            "name": "the name" if version >= 5 else None,
            "parallelism": 2,
            "max_parallelism": 64,
            "default_max_parallelism": 128,
            "finished_subtasks": 0,
            "keyed": None,
            "operator_states": [],
            "coordinator_bytes": 3,
            "raw_bytes": 0,
        }
    ]
    assert f"version {version}" in terminal.says("inspect", tmp_path)


def test_an_operator_is_found_by_id_uid_and_name(terminal: Terminal) -> None:
    (operator,) = [operator for operator in terminal.inspects(LEGACY)["operators"] if operator["keyed"]]
    by_uid = terminal.dumps(LEGACY, "isMigratedState")
    assert by_uid
    for name in (operator["id"], operator["id"].upper(), operator["name"]):
        assert terminal.dumps(LEGACY, "isMigratedState", operator=name) == by_uid


def test_a_uid_is_found_where_only_ids_are_written(terminal: Terminal) -> None:
    assert terminal.dumps(GOLDEN / "legacy-1.20-hashmap", "isMigratedState")


def test_a_savepoint_may_be_named_by_its_metadata_and_as_a_uri(terminal: Terminal) -> None:
    lines = terminal.dumps(LEGACY, "mainState")
    assert terminal.dumps(LEGACY / "_metadata", "mainState") == lines
    out = terminal.says("dump", LEGACY.as_uri(), "--operator", "main", "--state", "mainState")
    assert [json.loads(line) for line in out.split("\n")[:-1]] == lines


@pytest.mark.slow
def test_limit_and_key_group_choose_entries(terminal: Terminal) -> None:
    lines = terminal.dumps(LEGACY, "newMainState")
    for limit in (0, 1, 5, len(lines), len(lines) + 1, 10**30):
        assert terminal.dumps(LEGACY, "newMainState", "--limit", str(limit)) == lines[:limit]
    group = lines[-1]["key_group"]
    of_group = [line for line in lines if line["key_group"] == group]
    assert terminal.dumps(LEGACY, "newMainState", "--key-group", str(group)) == of_group
    assert sum(len(terminal.dumps(LEGACY, "newMainState", "--key-group", str(group))) for group in range(128)) == len(
        lines
    )


def test_unknown_names_list_those_there_are(terminal: Terminal) -> None:
    code, error = terminal.fails("dump", LEGACY, "--operator", "mian", "--state", "mainState")
    assert code == exit_codes.USAGE
    assert "'mian'" in error
    assert "075411a2d1ef617c7b2ad2770050b24f" in error
    assert "uid 'main'" in error
    code, error = terminal.fails("dump", LEGACY, "--operator", "main", "--state", "manState")
    assert code == exit_codes.USAGE
    assert {"mainState", "newMainState", "isMigratedState"} <= set(error.replace(",", " ").split())


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ([], "COMMAND"),
        (["inspct"], "inspct"),
        (["inspect"], "SAVEPOINT"),
        (["inspect", "/nowhere/at/all"], "no such folder"),
        (["inspect", "nonsense://host/path"], "can't be reached"),
        (["inspect", str(LEGACY), "--jsn"], "--jsn"),
        (["dump", str(LEGACY), "--state", "mainState"], "--operator"),
        (["dump", str(LEGACY), "--operator", "main", "--state", "mainState", "--limit", "some"], "some"),
        (["dump", str(LEGACY), "--operator", "main", "--state", "mainState", "--limit", "-1"], "-1"),
        (["dump", str(LEGACY), "--operator", "main", "--state", "mainState", "--key-group", "128"], "0 to 127"),
        (["demo-savepoint", str(LEGACY)], "not empty"),
        (["demo-savepoint", str(LEGACY / "_metadata")], "not empty"),
        (["demo-savepoint", "/tmp/unused", "--ttl", "soon"], "30d"),
        (["demo-savepoint", "/tmp/unused", "--migrated", "1.5"], "0 to 1"),
        (["demo-savepoint", "/tmp/unused", "--parallelism", "129"], "128"),
        (["demo-savepoint", "/tmp/unused", "--keys", "-1"], "keys"),
    ],
)
def test_wrong_usage_is_code_2(terminal: Terminal, arguments: list[str], hint: str) -> None:
    code, error = terminal.fails(*arguments)
    assert code == 2
    assert hint in error
    assert not Path("/tmp/unused").exists()


def test_a_folder_without_metadata_is_code_3(terminal: Terminal, tmp_path: Path) -> None:
    code, error = terminal.fails("inspect", tmp_path)
    assert code == 3
    assert "_metadata" in error


@pytest.mark.parametrize(
    "command", [["inspect"], ["inspect", "--json"], ["dump", "--operator=main", "--state=mainState"]]
)
@pytest.mark.parametrize("case", ["native-2.3-hashmap"])
def test_what_is_not_canonical_is_refused_with_the_way_to_a_canonical_one(
    terminal: Terminal, command: list[str], case: str
) -> None:
    code, error = terminal.fails(command[0], GOLDEN / case, *command[1:])
    assert code == 3
    assert "native" in error
    assert "--type canonical" in error


def test_a_newer_version_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    data = bytearray((LEGACY / "_metadata").read_bytes())
    data[7] = 7
    (tmp_path / "_metadata").write_bytes(data)
    code, error = terminal.fails("inspect", tmp_path)
    assert code == 3
    assert "version 7" in error


def test_a_missing_state_file_is_damage(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "_metadata").write_bytes((LEGACY / "_metadata").read_bytes())
    code, error = terminal.fails("inspect", tmp_path)
    assert code == 3
    assert str(tmp_path) in error


def test_damage_names_its_place(terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    savepoint = demo(tmp_path / "demo", terminal, "--keys=1", "--migrated=1", "--parallelism=1")
    (line,) = terminal.dumps(savepoint, "isMigratedState")
    (file,) = (file for file in savepoint.iterdir() if file.name != "_metadata")
    data = bytearray(file.read_bytes())
    # Behind the file's only flag is the end of the key group.
    at = len(data) - 3
    data[at] = 7
    file.write_bytes(data)
    assert main(["dump", str(savepoint), "--operator", "main", "--state", "isMigratedState"]) == 3
    place = f"{file}, key group {line['key_group']}, offset {at}"
    out, error = capsys.readouterr()
    assert (out, error) == ("", f"stateferry: {place}: expected a Boolean: 0 or 1, found 7\n")


@pytest.mark.parametrize("arguments", [["inspect", "--debug"], ["--debug", "inspect"]])
def test_debug_shows_where_an_error_arose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main([*arguments, str(tmp_path)]) == 3
    error = capsys.readouterr().err
    assert error.startswith("Traceback")
    assert "reader.py" in error
    assert error.splitlines()[-1].startswith("stateferry: ")


@pytest.mark.slow
def test_what_was_found_before_an_error_is_printed(tmp_path: Path, terminal: Terminal) -> None:
    savepoint = demo(tmp_path / "demo", terminal, "--keys=300", "--parallelism=1")
    (file,) = (file for file in savepoint.iterdir() if file.name != "_metadata")
    file.write_bytes(file.read_bytes()[:-1] + b"\7")
    command = [*SCRIPT, "dump", str(savepoint), "--operator", "main", "--state", "mainState"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert ran.returncode == 3
    *lines, error = ran.stdout.splitlines()
    assert len([json.loads(line) for line in lines]) > 200
    assert error.startswith(f"stateferry: {file}, key group 127, offset ")


@pytest.mark.parametrize(
    ("total", "watched", "shown"), [(1 << 30, True, True), (1 << 30, False, False), (1, True, False)]
)
def test_long_work_that_is_watched_shows_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, total: int, watched: bool, shown: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: watched)
    with progress_bar("reading", total) as done:
        done(total)
    out, error = capsys.readouterr()
    assert out == ""
    assert ("reading" in error) == shown


def test_a_fault_of_its_own_is_neither_the_input_s_nor_an_answer(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("stateferry.look.survey.survey", broken)
    code, error = terminal.fails("inspect", LEGACY)
    assert code == exit_codes.INTERNAL
    assert "RuntimeError: two; lines" in error
    assert "--debug" in error


def test_an_interrupt_ends_with_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("stateferry.look.survey.survey", interrupted)
    assert main(["inspect", str(LEGACY)]) == exit_codes.INTERRUPTED
    assert capsys.readouterr() == ("", "stateferry: interrupted\n")


def test_an_interruption_is_one_whatever_fails_while_things_are_put_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("the other end is gone")

    monkeypatch.setattr("stateferry.look.survey.survey", interrupted)
    assert main(["inspect", str(LEGACY)]) == exit_codes.INTERRUPTED
    assert capsys.readouterr() == ("", "stateferry: interrupted\n")


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [
        (signal.SIGTERM, exit_codes.TERMINATED, "stateferry: ended by SIGTERM: it goes on later\n"),
        (signal.SIGINT, exit_codes.INTERRUPTED, "stateferry: interrupted: it goes on later\n"),
    ],
)
def test_a_signal_is_told_from_a_failure_also_if_a_library_makes_an_error_of_it(
    capsys: pytest.CaptureFixture[str], number: signal.Signals, code: int, line: str
) -> None:
    class Slow(BaseModel):
        @model_serializer
        def serialized(self) -> str:
            os.kill(os.getpid(), number)
            return ""

    def work() -> int:
        with if_interrupted("it goes on later"):
            Slow().model_dump_json()
        return 0

    # As in a process of its own: other tests of this process may have set handlers.
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {each: signal.signal(each, handler) for each, handler in usual.items()}
    try:
        assert exit_code_of(work) == code
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert capsys.readouterr() == ("", line)


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, shown in (
        (["--version"], "stateferry 0."),
        (["--help"], "examples:"),
        (["dump", "--help"], "--limit"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        assert shown in capsys.readouterr().out


def demo(folder: Path, terminal: Terminal, *options: str) -> Path:
    assert "wrote" in terminal.says("demo-savepoint", folder, *options)
    return folder


@pytest.mark.parametrize("command", ["status", "runs", "clean"])
def test_where_there_is_nothing_it_says_so(tmp_path: Path, terminal: Terminal, command: str) -> None:
    home = tmp_path / "home"
    said = terminal.says(command, "--home", home)
    assert said.endswith("\n")
    assert said.count("\n") == 1
    assert str(home) in said


def test_the_status_of_a_job_that_nobody_knows(tmp_path: Path, terminal: Terminal) -> None:
    with Control(f"sqlite:///{tmp_path}/catalog.db") as control:
        control.acquire("orders", "one")
    said = terminal.says("status", "--home", tmp_path, "--job", "ordrs")
    assert said == f"no job 'ordrs' is known in {tmp_path}. Did you mean orders? There are: orders\n"
    assert "at work: run one" in terminal.says("status", "--home", tmp_path, "--job", "orders")


def test_where_there_is_nothing_programs_get_nothing(tmp_path: Path, terminal: Terminal) -> None:
    assert json.loads(terminal.says("status", "--home", tmp_path, "--json")) == {}
    assert json.loads(terminal.says("runs", "--home", tmp_path, "--json")) == []


@pytest.mark.parametrize("flink", ["1.20", "2.3"])
@pytest.mark.parametrize("options", [[], ["--compressed"], ["--max-parallelism", "300"]])
def test_a_demo_savepoint_holds_what_was_asked_for(
    terminal: Terminal, tmp_path: Path, flink: str, options: list[str]
) -> None:
    savepoint = demo(tmp_path / "demo", terminal, "--keys=200", "--entries=5", "--flink", flink, *options)
    facts = terminal.inspects(savepoint)
    assert facts["version"] == {"1.20": 4, "2.3": 6}[flink]
    (operator,) = facts["operators"]
    states = {state["name"]: (state["entries"], state["ttl"]) for state in operator["keyed"]["states"]}
    assert states == {"mainState": (140, False), "newMainState": (300, False), "isMigratedState": (60, False)}
    blobs, rows, flags = (terminal.dumps(savepoint, name) for name in states)
    assert all(len(line["value"]) == 5 for line in blobs)
    assert all(line["value"] is True for line in flags)
    assert Counter(line["key"] for line in rows) == {line["key"]: 5 for line in flags}
    assert len({line["key"] for line in (*blobs, *flags)}) == 200


@pytest.mark.slow
def test_output_goes_out_line_by_line_and_a_closed_pipe_is_quiet(tmp_path: Path, terminal: Terminal) -> None:
    savepoint = demo(tmp_path / "demo", terminal, "--keys=20000")
    command = [*SCRIPT, "dump", str(savepoint), "--operator", "main", "--state", "mainState"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["key_group"] == 0
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == exit_codes.OUTPUT_CLOSED


@pytest.mark.matrix(most=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["inspect", "inspect --json", "dump --operator main --state mainState", "--version", "--help", "run --help"],
)
def test_where_nobody_reads_it_ends_quietly(command: str) -> None:
    name, *options = command.split()
    arguments = [*SCRIPT, name, *([str(LEGACY)] if name in ("inspect", "dump") else []), *options]
    # As on most machines, Python keeps back what it prints.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == exit_codes.OUTPUT_CLOSED
    shell = ["sh", "-c", '"$@" >&-', "sh", *arguments]
    ran = subprocess.run(shell, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.slow
def test_an_error_that_nobody_can_see_has_its_exit_code(tmp_path: Path) -> None:
    shell = ["sh", "-c", '"$@" >&- 2>&-', "sh", *SCRIPT, "inspect", str(tmp_path)]
    assert subprocess.run(shell, check=False).returncode == exit_codes.DAMAGED_OR_REFUSED


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_utf_8_whatever_the_terminal_is(encoding: str) -> None:
    command = [*SCRIPT, "dump", str(LEGACY), "--operator", "main", "--state", "newMainState"]
    ran = subprocess.run(command, capture_output=True, check=True, env={"PYTHONIOENCODING": encoding})
    lines = [json.loads(line) for line in ran.stdout.decode("utf-8").split("\n")[:-1]]
    known = [line for line in expected(LEGACY) if line["state"] == "newMainState"]
    assert {(line["key"], line["user_key"]) for line in lines} == {(line["key"], line["user_key"]) for line in known}


@pytest.mark.matrix(most=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["inspect"], ["inspect", "--json"], ["dump", "--operator=main", "--state=mainState"]]
)
def test_a_small_question_is_answered_in_two_seconds(command: list[str]) -> None:
    arguments = [*SCRIPT, command[0], str(LEGACY), *command[1:]]

    def seconds() -> float:
        """Of processor time: the machine may be busy with something else."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(arguments, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    seconds()  # compiles what was not compiled before
    assert min(seconds(), seconds()) < 2


def test_runs_are_a_table_with_a_heading(terminal: Terminal, tmp_path: Path) -> None:
    place = {"home": str(tmp_path), "source": "/in", "target": "/out", "parallelism": 3}
    for number, job in enumerate(["orders", "a\x1b[31m"]):
        Run.create(plan_of({**place, "job": job, "run_id": f"run-{number}"}), 1_795_192_495_628 + number)
    heading, *lines = terminal.says("runs", "--home", tmp_path).splitlines()
    assert heading.split() == ["run", "job", "state", "since", "(UTC)", "target"]
    assert sorted(line.split() for line in lines) == [
        ["run-0", "orders", "planned", "2026-11-20", "16:34:55", "/out"],
        ["run-1", r"a\x1b[31m", "planned", "2026-11-20", "16:34:55", "/out"],
    ]
    assert {line.index("planned") for line in lines} == {heading.index("state")}
    assert terminal.says("runs", "--home", tmp_path, "--job", "none").startswith("there is no run of job none in ")
