"""Collections of POJOs, enums and objects by Kryo inside of values, as Flink 1.20 wrote them, are upgraded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flinkstate.classfiles.job_classes import read_job_classes
from flinkstate.errors import PlanError, RejectedError
from flinkstate.kryo.forms_of_flink_2 import Forms
from flinkstate.kryo.to_other_kryo import Recoded, recoder
from flinkstate.reading.reader import Savepoint
from stateferry.changes.upgrade import nullable_maps
from stateferry.proof.expected.check_result import Outcome
from stateferry.runs.report.report import Report
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Outcome as Becomes
from stateferry.verdict.versions import Line
from tests.steps.test_for_another_flink import ALONE, GOLDEN
from tests.steps.test_native_source import run

SOURCE = GOLDEN / "in-collections-1.20-rocksdb"
JAR = str(GOLDEN.parent / "kryo" / "collection-classes.jar")
STATES = ("aged", "list", "map", "value")


def upgraded(folder: Path, **options: Any) -> Report:
    report, _ = run(SOURCE, folder, **{**ALONE, "to": "flink-2", "parallelism": 2, "classes": [JAR], **options})
    return report


def way_back(folder: Path) -> Report:
    """The report of the upgraded savepoint's way back to Flink 1.20."""
    upgraded(folder)
    options = {**ALONE, "to": "flink-1.20", "parallelism": 2, "classes": [JAR], "all_by_kryo_5": True}
    return run(folder / "target", folder / "back", **options)[0]


def outcomes(report: Report, what: str) -> dict[str, Outcome]:
    """What the checks of this name say, by state."""
    names = {check.name.rpartition("/")[2].partition(": "): check.outcome for check in report.checks}
    return {state: outcome for (state, _, name), outcome in names.items() if name == what}


@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"parallelism": 3, "max_parallelism": 300, "output_format": "native"}, marks=pytest.mark.slow)],
    ids=["alone", "in another layout"],
)
def test_every_key_is_upgraded_and_read_plainly(options: dict[str, Any], tmp_path: Path) -> None:
    report = upgraded(tmp_path, **options)
    assert report.is_green, report.failed
    for what in ("carried over, written by Kryo 5", "sample read plainly"):
        assert outcomes(report, what) == dict.fromkeys(STATES, Outcome.PASSED)
    job = read_job_classes([JAR])
    found = verdicts(Savepoint.open(str(tmp_path / "target")), Asked(Line.TWO, job, everything=True, new_job=job))
    assert {one.finding.outcome for one in found} == {Becomes.RESTORES}
    assert outcomes(report, "elements read plainly") == {"broadcast": Outcome.PASSED, "split": Outcome.PASSED}


def test_plain_code_sees_what_snapshot_and_writers_get_wrong_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = nullable_maps._spliced

    def changed(data: Any, starts: Any, ends: Any, heads: Any, replaced: Any) -> Recoded:
        """Gives the last collection of two bytes or more the bytes of an empty one."""
        filled = np.flatnonzero(replaced[3] - replaced[2] > 5)[-1:]
        data = np.append(data, np.zeros(5, np.uint8))
        replaced[2, filled], replaced[3, filled] = len(data) - 5, len(data)
        return whole(data, starts, ends, heads, replaced)

    monkeypatch.setattr(nullable_maps, "_spliced", changed)
    with pytest.raises(RejectedError) as stopped:
        upgraded(tmp_path)
    failed = re.search(r"published: (.*) \(", str(stopped.value))
    assert failed is not None
    assert {name.partition("/")[2] for name in failed[1].split(", ")} == {
        *(f"{state}: sample read plainly" for state in STATES),
        *(f"{state}: elements read plainly" for state in ("broadcast", "split")),
    }


def test_the_way_back_is_read_plainly(tmp_path: Path) -> None:
    report = way_back(tmp_path)
    assert report.is_green, report.failed
    for what in ("carried over, written by Kryo 2", "sample read plainly"):
        assert outcomes(report, what) == dict.fromkeys(STATES, Outcome.PASSED)
    assert outcomes(report, "elements read plainly") == {"broadcast": Outcome.PASSED, "split": Outcome.PASSED}


def test_plain_code_sees_what_the_way_back_gets_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each enum one constant becomes another one, wherever it is written."""
    whole = Forms.arrays.fget  # type: ignore[attr-defined]

    def changed(forms: Forms) -> tuple[Any, ...]:
        nodes, orders, *others = whole(forms)
        return nodes, np.where(orders == 1, 2, orders), *others

    recoder.cache_clear()
    monkeypatch.setattr(Forms, "arrays", property(changed))
    with pytest.raises(RejectedError) as stopped:
        way_back(tmp_path)
    recoder.cache_clear()
    for state in ("value", "map", "aged"):
        assert f"{state}: sample read plainly" in str(stopped.value)
    assert "broadcast: elements read plainly" in str(stopped.value)


def test_without_the_classes_each_field_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as stopped:
        upgraded(tmp_path, classes=[])
    told = str(stopped.value)
    for place in ("value.items", "list.counts", "map.marks", "aged.f1.cart.stops", "split.set", "broadcast.colors"):
        assert re.search(rf"say --declared '\w+/{re.escape(place)}=", told), place
    assert not (tmp_path / "target").exists()


def test_a_declaration_is_held_against_the_class(tmp_path: Path) -> None:
    wrong = {"main/value.items": "List<Pojo<stateferry.flink.pojo.Address>>"}
    with pytest.raises(PlanError, match=r"--declared says .*Address>>, and .*Cart in the jar has .*<.*Item> items"):
        upgraded(tmp_path, declared=wrong)
    assert not (tmp_path / "target").exists()
