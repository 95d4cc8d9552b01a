"""Operators without a uid that have the same name, as Flink gives it to operators of one kind: ids tell them apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import operator_id
from stateferry.runs.record.step_facts import SnapshotFacts, TablesFacts
from tests.steps.test_nights_since import NOW, run
from tests.support.facts import kept_facts
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

IDS = [operator_id(name).hex() for name in ("main", "other")]


def written(folder: Path, main: LegacyState, other: LegacyState) -> Path:
    main.write(str(folder), other=other)
    file = folder / METADATA
    metadata = parse_metadata(file.read_bytes(), METADATA)
    operators = tuple(replace(one, uid=None, name="KeyedProcess") for one in metadata.operators)
    file.write_bytes(build_metadata(replace(metadata, operators=operators)))
    return folder


@pytest.mark.slow
def test_each_has_facts_checks_and_tables_of_its_own(tmp_path: Path) -> None:
    states = [{"legacy": LEGACY, "new": NEW, "flag": FLAG}]
    plan: dict[str, Any] = {"operators": [{"operator": id_, "states": states} for id_ in IDS], "state": {}}
    for night in range(2):
        main = LegacyState({f"key-{number}": ({"u": number + night}, NOW) for number in range(20)})
        other = LegacyState({f"key-{number}": ({"a": 1, "b": night}, NOW) for number in range(50)})
        report, night_of = run(written(tmp_path / f"source-{night}", main, other), tmp_path, night, **plan)
        assert report.is_green
        facts, tables = kept_facts(night_of, SnapshotFacts), kept_facts(night_of, TablesFacts)
        assert {name: one.entries for name, one in facts.states.items() if one.entries} == {
            f"{IDS[0]}/{LEGACY}": 20, f"{IDS[1]}/{LEGACY}": 50,
        }  # fmt: skip
        assert {name: one.blob_entries for name, one in facts.met.items()} == {
            f"{IDS[0]}/{LEGACY}": 20, f"{IDS[1]}/{LEGACY}": 100,
        }  # fmt: skip
        assert sorted(one.of for one in tables.tables) == [("nights", id_, NEW) for id_ in sorted(IDS)]
        names = [check.name for check in report.checks]
        assert len(names) == len(set(names))


def test_a_name_is_the_label_where_no_other_operator_has_it_as_name_or_uid(tmp_path: Path) -> None:
    folder = written(tmp_path / "source", LegacyState(), LegacyState())
    metadata = parse_metadata((folder / METADATA).read_bytes(), METADATA)
    one, other = metadata.operators

    def labels(*operators: object) -> list[str]:
        changed = build_metadata(replace(metadata, operators=operators))  # type: ignore[arg-type]
        return [operator.label for operator in parse_metadata(changed, METADATA).operators]

    assert labels(one, other) == [one.hex_id, other.hex_id]
    assert labels(one, replace(other, name="Map")) == ["KeyedProcess", "Map"]
    assert labels(one, replace(other, uid="other")) == [one.hex_id, "other"]
    assert labels(one, replace(other, uid="KeyedProcess", name=None)) == [one.hex_id, "KeyedProcess"]
    assert labels(replace(one, uid="main"), replace(other, uid="other")) == ["main", "other"]
