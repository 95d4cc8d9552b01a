"""Nights on what real Flink writes: a checkpoint whose files are those of the one before, under other names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.keyed import native_difference
from stateferry.basics.durations import now_ms
from stateferry.runs.record.run_list import find_run
from stateferry.runs.record.step_facts import SnapshotFacts
from tests.flink.harness import FlinkHarness
from tests.flink.jars import VERSIONS
from tests.flink.scenarios import SCENARIOS, legacy
from tests.flink.test_catch_up import job_of, snapshots
from tests.flink.test_pipeline import whole
from tests.steps.test_caught_up_nights import entries, night, rows
from tests.steps.test_nights_since import facts_of, run, run_on_everything, totals, walked, went_on

pytestmark = pytest.mark.flink


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_that_was_started_again_has_the_files_it_had(
    version: str, flink: Callable[[str], FlinkHarness], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"execution.checkpointing.incremental": "true"}
    job = replace(SCENARIOS["legacy-string-long"], rounds=3, backend="rocksdb", inline_threshold=0, settings=settings)
    first = flink(version).make_in_place(job, format_="CHECKPOINT").path
    second = flink(version).carry(first, job, format_="CHECKPOINT")
    run(first, tmp_path, 1, no_timers=False, nulls="keep")
    report, since = run(second, tmp_path, 2, no_timers=False, nulls="keep")
    everything = run_on_everything(second, tmp_path, 2, monkeypatch, no_timers=False, nulls="keep")
    assert report.is_green
    assert facts_of(since) == facts_of(everything)
    assert (went_on(since), walked(since)) == (True, 0)
    assert totals(since)["keys_unchanged"] == totals(everything)["keys_new"] > 100


@pytest.mark.full
def test_under_time_to_live_ages_follow_from_timestamps_that_flink_wrote(
    flink: Callable[[str], FlinkHarness], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours pass between the two nights, so what had all been alive has all expired."""
    settings = {"execution.checkpointing.incremental": "true"}
    of_blobs = legacy("Map{0-9}<String,Long>", migrated=0.0, ttl="config")
    job = replace(of_blobs, rounds=3, backend="rocksdb", inline_threshold=0, settings=settings)
    first = flink("2.3.0").make_in_place(job, format_="CHECKPOINT").path
    second = flink("2.3.0").carry(first, job, format_="CHECKPOINT")
    hour = 3_600_000
    run(first, tmp_path, 1, now=now_ms(), state={"ttl_ms": hour}, no_timers=False)
    later: dict[str, Any] = {"now": now_ms() + 2 * hour, "state": {"ttl_ms": hour}, "no_timers": False}
    report, since = run(second, tmp_path, 2, **later)
    everything = run_on_everything(second, tmp_path, 2, monkeypatch, **later)
    assert report.is_green
    assert facts_of(since) == facts_of(everything)
    assert went_on(since)
    facts = since.facts(SnapshotFacts)
    assert facts is not None
    (met,) = facts.met.values()
    assert met.blobs_expired == met.blobs > 100


def test_a_job_has_gone_on_since_the_night_before(
    flink: Callable[[str], FlinkHarness], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its timers of processing time have fired meanwhile, beside lists and state of windows."""
    monkeypatch.setattr(native_difference, "_MOST_CHANGED", 10.0)
    settings = {"execution.checkpointing.incremental": "true"}
    # With one subtask no key can weigh more than its share.
    job = replace(
        whole(128, ttl=None), parallelism=1, rounds=3, backend="rocksdb", inline_threshold=0, settings=settings
    )
    first = flink("2.3.0").make_in_place(job, format_="CHECKPOINT").path
    second = flink("2.3.0").carry(first, job, format_="CHECKPOINT")
    run(first, tmp_path, 1, no_timers=False, nulls="keep")
    report, since = run(second, tmp_path, 2, no_timers=False, nulls="keep")
    everything = run_on_everything(second, tmp_path, 2, monkeypatch, no_timers=False, nulls="keep")
    assert report.is_green
    assert facts_of(since) == facts_of(everything)
    assert went_on(since)
    of_first = find_run(str(tmp_path / "home"), "nights", "nights-1").facts(SnapshotFacts)
    of_second = since.facts(SnapshotFacts)
    assert of_first is not None
    assert of_second is not None
    assert of_first.states != of_second.states


@pytest.mark.full
def test_a_night_with_native_files_leaves_what_one_of_everything_leaves(
    flink: Callable[[str], FlinkHarness], tmp_path: Path
) -> None:
    """Of a job with states of every kind, timers and operator state beside its maps."""
    options = {"accept_empty": 1.0, "nulls": "keep"}
    sources = snapshots(flink("2.3.0"), job_of("Map{0-9}<String,Long>", migrated=0.0), (1, 2), tmp_path / "job")
    for number, source in enumerate(sources):
        since = night(source, tmp_path / "since", number, **options)
        whole_ = night(source, tmp_path / "whole", number, full_every=1, **options)
        assert entries(since) == entries(whole_)
        assert rows(tmp_path / "since" / "home") == rows(tmp_path / "whole" / "home")
    assert since.plan.since == "nights-0"
