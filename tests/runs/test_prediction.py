"""What earlier runs say of the length of a cut-over."""

from __future__ import annotations

import io
from pathlib import Path

from stateferry.runs.facts import SnapshotFacts, StateSize
from stateferry.runs.plan import plan_of
from stateferry.runs.prediction import PARTS, part_times, predict, unknown
from stateferry.runs.report import Report, SavepointDigests
from stateferry.runs.report_text import show_report, time_line
from stateferry.runs.runs import Run


def a_run(home: Path, number: int, size: int, **seconds: float) -> Run:
    state = {"legacy": "mainState", "new": "newMainState"}
    values = {"job": "orders", "source": "/in", "target": "/out", "home": str(home), "run_id": f"run-{number}"}
    run = Run.create(plan_of({**values, "operators": [{"operator": "main", "states": [state]}]}), number)
    run.keep(SnapshotFacts(states={"main/mainState": StateSize(1, size)}, seconds=seconds.pop("snapshot", 1.0)))
    kinds = {kind.name: kind for kind in PARTS}
    for part, taken in seconds.items():
        run.keep(kinds[part](seconds=taken))
    return run


def test_parts_go_with_the_bytes_and_what_nobody_knows_is_left_out(tmp_path: Path) -> None:
    for number, seconds in enumerate((2.0, 4.0, 30.0)):
        a_run(tmp_path, number, 1000, rescale=seconds)
    a_run(tmp_path, 3, 500, take_savepoint=7.0)
    now = a_run(tmp_path, 4, 2000, snapshot=4.0)
    predicted = predict(now)
    # The median of 0.001 (thrice) and 0.002 (twice) a byte; of 2, 4 and 30 s for 1000 bytes; of 7 s for 500.
    assert predicted == {"take_savepoint": 28.0, "snapshot": 2.0, "rescale": 8.0}
    assert unknown(predicted) == ("validate", "cut_over", "start_job", "migrate", "tables")


def test_only_the_newest_runs_count(tmp_path: Path) -> None:
    for number in range(10):
        now = a_run(tmp_path, number, 100, rescale=float(number))
    assert predict(now)["rescale"] == 7.0


def test_what_a_cut_over_took_is_held_against_what_the_runs_before_it_had_shown(tmp_path: Path) -> None:
    for number, seconds in enumerate((2.0, 4.0, 30.0)):
        a_run(tmp_path, number, 1000, take_savepoint=0.5, rescale=seconds)
    cut_over = a_run(tmp_path, 3, 2000, take_savepoint=3.0, snapshot=2.5, rescale=9.0, start_job=6.0)
    # What comes after it changes nothing of what was predicted for it.
    a_run(tmp_path, 4, 1000, rescale=1000.0, start_job=1000.0)
    said = "take_savepoint 3.0 s (predicted 1.0), snapshot 2.5 s (predicted 2.0), rescale 9.0 s (predicted 8.0)"
    assert time_line(part_times(cut_over)) == f"took: {said}, start_job 6.0 s (not predicted)"
    (first,) = part_times(a_run(tmp_path / "of its own", 0, 1000))
    assert time_line([first]) == "took: snapshot 1.0 s"


def test_a_run_whose_facts_are_damaged_predicts_nothing(tmp_path: Path) -> None:
    a_run(tmp_path, 0, 1000, rescale=2.0)
    damaged = a_run(tmp_path, 1, 1000, rescale=50.0)
    file = damaged.file_of(SnapshotFacts)
    file.write_atomically(file.read().replace(b'"bytes": 1000', b'"bytes": "many"'))
    assert predict(a_run(tmp_path, 2, 1000))["rescale"] == 2.0


def test_the_report_says_what_is_known_and_what_is_not(tmp_path: Path) -> None:
    none = SavepointDigests("/in", 1, {})
    report = Report("orders", "one", "plan", 0, none, none, (), {}, {"rescale": 8.0})
    out = io.StringIO()
    show_report(report, out)
    assert "a cut-over is likely to take: rescale 8 s" in out.getvalue()
    assert "no run has a time yet for: take_savepoint, snapshot," in out.getvalue()
