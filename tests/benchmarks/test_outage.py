"""The benchmark of the outage: parts that take too long are stopped and shown, and goals count at their size only."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from benchmarks import outage, outage_by_dag
from benchmarks.executing import Background, FailedError, TookTooLongError
from benchmarks.measuring import PARTS, Outage, Scale
from benchmarks.report import tables

PLAIN = Outage("plain", 1_000_000, 3_000_000, (1.0, 20.0, 30.0, 9.0), 70.0)
_PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)', sys.argv[1]])"


def cells(line: Outage) -> list[str]:
    *_, row = tables([line]).splitlines()
    return [cell.strip() for cell in row.split("|")[1:-1]]


def test_an_outage_is_shown_with_its_parts_and_their_sum() -> None:
    assert cells(replace(PLAIN, uploaded=2_000_000, memory=1_500_000_000, shorter=2.5, faster=4, goal="reached")) == [
        "plain", "1", "3", "2", "1.0", "20.0", "30.0", "9.0", "60.0", "70.0", "1.5 GB", "2.50", "4.00", "reached",
    ]  # fmt: skip


@pytest.mark.parametrize("ended", range(len(PARTS)))
def test_a_part_that_was_stopped_is_shown_and_the_sum_is_a_lower_bound(ended: int) -> None:
    line = replace(PLAIN, parts=PLAIN.parts[:ended])
    assert cells(line)[4 : 4 + len(PARTS)] == [
        *(f"{seconds:.1f}" for seconds in line.parts), "stopped", *("" for _ in PARTS[ended + 1 :])
    ]  # fmt: skip
    assert cells(line)[8] == f"> {sum(line.parts):.1f}"
    assert (line.conversion is None) == (ended < 2)


def test_goals_count_at_their_size() -> None:
    way = outage.Way("way", "NATIVE", faster=4, shorter=3)
    peer = replace(PLAIN, parts=(1.0, 80.0, 30.0, 9.0))
    short = replace(PLAIN, parts=(1.0, 10.0, 8.0, 1.0))
    compared = outage.compared(way, short, PLAIN, peer, is_large=True)
    assert (compared.shorter, compared.faster) == (3, 8)
    assert compared.goal == "conversion ≥ 4 reached, outage ≥ 3 reached"
    assert outage.compared(way, short, PLAIN, peer, is_large=False).goal == ""
    slow = replace(PLAIN, parts=(1.0, 21.0))
    assert outage.compared(way, slow, PLAIN, peer, is_large=True).goal == "conversion ≥ 4 MISSED, outage ≥ 3 MISSED"


def test_a_conversion_since_a_base_has_goals_by_what_has_changed() -> None:
    way = outage.Way("since", "NATIVE", changed=0.01, shorter=2)
    whole = replace(PLAIN, parts=(1.0, 10.0, 8.0, 1.0))
    short, slow = (replace(PLAIN, parts=(1.0, seconds, 2.0, 1.0)) for seconds in (3.5, 16.1))
    assert outage.goals_since(way, short, whole, 500_000) == (
        "conversion ≤ 3.5 s reached, memory ≤ 2 GB reached, outage ≤ 1/2 of native → native reached"
    )
    assert outage.goals_since(way, slow, whole, 500_000) == (
        "conversion ≤ 3.5 s MISSED, memory ≤ 2 GB reached, outage ≤ 1/2 of native → native MISSED"
    )
    of_large = outage.goals_since(way, replace(short, memory=2_000_000_001), whole, 5_000_000)
    assert of_large == "conversion ≤ 8.0 s reached, memory ≤ 2 GB MISSED, outage ≤ 1/5 of native → native MISSED"
    assert outage.goals_since(way, short, replace(whole, parts=(1.0, 40.0, 8.0, 1.0)), 5_000_000).endswith(
        "outage ≤ 1/5 of native → native reached"
    )
    assert outage.goals_since(way, short, whole, 100_000) == "conversion ≤ 3.1 s MISSED, memory ≤ 2 GB reached"


_GOES_ON = """
import sys, time
from pathlib import Path
[0 for _ in range(10**7)]
done, go, ended = map(Path, sys.argv[1:])
done.touch()
while not go.exists():
    time.sleep(0.01)
time.sleep(0.5)
ended.touch()
"""


def test_a_command_goes_on_after_its_work_until_it_ends(tmp_path: Path) -> None:
    done, go, ended = (tmp_path / name for name in ("done", "go", "ended"))
    with Background(
        [sys.executable, "-c", _GOES_ON, *map(str, (done, go, ended))], tmp_path / "log", {}, 60
    ) as command:
        command.wait_for(done)
        assert not ended.exists()
        assert 0.05 < command.cpu_seconds < 30
        go.touch()
    assert ended.exists()


@pytest.mark.parametrize("work", ["pass", "open(sys.argv[1], 'w'); sys.exit(3)"])
def test_a_command_that_fails_before_or_after_its_work_is_no_result(work: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"import sys; {work}", str(tmp_path / "done")]
    message = "ended with 3" if "exit" in work else "ended without"
    with (
        pytest.raises(FailedError, match=message),
        Background(command, tmp_path / "log", {}, 60) as running,
    ):
        running.wait_for(tmp_path / "done")


def test_a_command_that_takes_too_long_is_stopped_with_its_children(tmp_path: Path) -> None:
    began = time.perf_counter()
    with (
        pytest.raises(TookTooLongError, match="was stopped after 1 seconds"),
        Background([sys.executable, "-c", _PARENT, str(tmp_path)], tmp_path / "log", {}, 1) as command,
    ):
        command.wait_for(tmp_path / "never")
    assert time.perf_counter() - began < 30
    # On a busy machine a process that was killed takes a moment to end.
    left = [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in (one.info["cmdline"] or ())]
    _, alive = psutil.wait_procs(left, timeout=30)
    assert not alive


@pytest.mark.full
@pytest.mark.flink
@pytest.mark.timeout(600)
def test_the_outage_of_each_way_is_measured(tmp_path: Path) -> None:
    measured = list(outage.measure(Scale(tmp_path, keys=2000)))
    lines = [line for line in measured if isinstance(line, Outage)]
    assert [line.what for line in lines] == [way.what for way in outage.WAYS]
    assert all(line.is_whole and line.source and line.result and line.uploaded and line.memory for line in lines)
    assert len(measured) == len(lines) + sum(not way.by_peer for way in outage.WAYS)


@pytest.mark.full
@pytest.mark.airflow
@pytest.mark.flink
@pytest.mark.timeout(900)
def test_the_outage_by_the_dag_is_measured_beside_that_by_the_command(tmp_path: Path) -> None:
    by_command, by_dag = outage_by_dag.measure(Scale(tmp_path, keys=2000))
    assert (by_command.is_whole, by_dag.is_whole) == (True, True)
    assert (by_command.result > 0, by_dag.result > 0) == (True, True)
    assert min(by_dag.parts) >= 0
