"""Savepoints of jobs of Flink SQL and CEP, as Flink wrote them: they are read, and carried over as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flinkstate.errors import RefusedError
from flinkstate.keyed.header import build_header
from flinkstate.keyed.key_group_file import KeyGroupFile
from flinkstate.keyed.keyed_file import WINDOW
from flinkstate.keyed.state import StateKind
from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.types import KryoType, OpaqueType, PojoType, TupleType, type_name
from stateferry.cli import main

pytestmark = pytest.mark.usefixtures("home")

CASES = sorted(path.parent for path in (Path(__file__).parents[1] / "table_savepoints").glob("*/_metadata"))
BESIDE = operator_id("beside")


def rows(savepoint: Savepoint) -> Iterator[tuple[str, int, str, bytes]]:
    """All rows of the operators that aren't migrated."""
    window = np.empty(WINDOW, np.uint8)
    for operator in savepoint.keyed_operators():
        for file in savepoint.open_files(operator) if operator.id != BESIDE else ():
            for group in file.handle.range:
                for section in file.sections_of(group, set(range(len(file.header.states))), window):
                    first = int(section.starts[0])
                    data, name = section.raw.tobytes(), file.header.states[section.state].name
                    for start, end in zip(section.starts - first, section.ends - first, strict=True):
                        yield operator.hex_id, group, name, data[int(start) : int(end)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_headers_are_read_whole(case: Path) -> None:
    savepoint, unknown = Savepoint.open(str(case)), 0
    for operator in savepoint.keyed_operators():
        for file in savepoint.open_files(operator):
            assert isinstance(file, KeyGroupFile)
            file.file.seek(0)
            assert build_header(file.header) == bytes(file.file.read(file.header_end))
        for state in savepoint.keyed_states(operator):
            unknown += isinstance(state.key, OpaqueType)
            assert state.kind is StateKind.TIMERS or state.value is not None
    assert (unknown > 0) == case.name.startswith("sql")


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_map_is_migrated_beside_them(case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new"
    all_operators = ",".join(f"{one.hex_id}=3" for one in Savepoint.open(str(case)).keyed_operators())
    places = ("--savepoint", str(case), "--target", str(target), "--operator", "beside", "--parallelism", all_operators)
    assert main(["run", *places, "--legacy-state", "totals", "--new-state", "totals-map"]) == 0
    assert "0 failed, 0 could not tell" in capsys.readouterr().out
    written = Savepoint.open(str(target))
    assert all(operator.parallelism == 3 for operator in written.keyed_operators())
    assert sorted(rows(written)) == sorted(rows(Savepoint.open(str(case))))
    assert len(list(rows(written))) > 20


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_keys_of_sql_get_no_other_max_parallelism(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their hashes aren't guessed; the keys of a pattern are those of the job."""
    options = ("run", "--savepoint", str(case), "--target", str(tmp_path / "new"), "--max-parallelism", "64")
    code = main([*options, "--job", "orders"])
    assert (code == 0) == case.name.startswith("cep")
    assert code == 0 or "RowDataSerializer" in capsys.readouterr().err


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_check_cant_tell(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", str(case), "--for", "flink-2.3"])
    said = capsys.readouterr().out
    # Of CEP's own states it can (`test_patterns.py`).
    is_unknown = "a serializer of Flink that Stateferry doesn't read" in " ".join(said.split())
    assert is_unknown == case.name.startswith("sql")
    assert "not one of Flink's own" not in said


def test_values_stay_unknown() -> None:
    savepoint = Savepoint.open(str(next(case for case in CASES if case.name.startswith("sql-2.3"))))
    operator = next(one for one in savepoint.keyed_operators() if one.id != BESIDE)
    state = savepoint.keyed_states(operator)[0]
    with pytest.raises(RefusedError, match="a serializer of Flink that Stateferry doesn't read"):
        list(read_entries(savepoint, operator, state))


def test_events_of_a_pattern_are_written_for_another_flink(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = next(case for case in CASES if case.name == "cep-objects-1.20-rocksdb")
    pattern = next(one for one in Savepoint.open(str(source)).keyed_operators() if one.id != BESIDE)
    options = ["run", "--savepoint", str(source), "--target", str(tmp_path / "new"), "--job", "orders"]
    assert main([*options, "--to", "flink-2"]) != 0
    assert "state sharedBuffer-events.f1.amounts of operator" in " ".join(capsys.readouterr().err.split())
    for state in ("sharedBuffer-events.f1", "eventQueuesStateName"):
        for field, declared in (("amounts", "Map<String, Long>"), ("items", "List<String>")):
            options += ["--declared", f"{pattern.hex_id}/{state}.{field}={declared}"]
    assert main([*options, "--to", "flink-2"]) == 0
    assert "sharedBuffer-events: sample read plainly" in capsys.readouterr().out
    written = Savepoint.open(str(tmp_path / "new"))
    upgraded = next(one for one in written.keyed_operators() if one.id == pattern.id)
    (events,) = (one for one in written.keyed_states(upgraded) if one.name == "sharedBuffer-events")
    assert isinstance(events.value, TupleType)
    basket = events.value.fields[1]
    assert isinstance(basket, PojoType)
    made = {field.name: field.type for field in basket.fields}
    collections = [type_name(made[name]) for name in ("amounts", "items")]
    assert collections == ["Map<String,Long>", "List<String>"]
    assert isinstance(made["prices"], KryoType)
