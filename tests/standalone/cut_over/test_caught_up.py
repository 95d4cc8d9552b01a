"""Cut-overs that convert only what changed since the last catch-up, of a job that goes on writing; each purchase once.

The job retains one checkpoint, and completes two in a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from local_airflow.server import Server
from stateferry.runs.record.catch_ups import CatchUps
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import MigrateFacts
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import FAILING_JOB, RemoteJob
from tests.standalone.cut_over.ferry import DAG, Ferry
from tests.standalone.cut_over.purchases import entries
from tests.standalone.cut_over.test_with_airflow import question, wait_for_state
from tests.standalone.migration import answer, log_of
from tests.support.facts import kept_facts

pytestmark = [pytest.mark.airflow, pytest.mark.flink, pytest.mark.spark, pytest.mark.timeout(1800)]

SETTINGS = {
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
}
WANTED = {"source": "checkpoint", "format": "native"}
WITH_CHECKPOINT = {"stop_with": "checkpoint", "may_repeat": True}
# A busy machine may take longer for a catch-up than it took for the copy.
SLOW = "in which the copy converted everything"


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    with FlinkCluster("2.3.0", tmp_path_factory.mktemp("flink"), settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def ferry(airflow: Server, flink: FlinkCluster, tmp_path: Path) -> Ferry:
    return Ferry.ready(airflow, flink, tmp_path.name, tmp_path)


@pytest.fixture
def old(ferry: Ferry) -> RemoteJob:
    return ferry.start_old_job()


def cut_over(ferry: Ferry, old: RemoteJob, told: str, **wanted: object) -> str:
    """A run that has ended, after a person has approved it who was told this."""
    for _ in range(3):
        run = ferry.cut_over(old, **(WANTED | wanted), approval=True)
        wait_for_state(ferry, run, "decide", "awaiting_input")
        body = question(ferry, run)["body"]
        if is_slow := SLOW in body:
            answer(ferry.airflow, DAG, run, "Reject", "decide")
        else:
            assert told in body, ferry.logs(run)
            old.wait_for_checkpoints()
            answer(ferry.airflow, DAG, run, "Approve", "decide")
        if not (ferry.end_of(run) == "failed" and (is_slow or SLOW in ferry.logs(run))):
            return run
    pytest.fail(f"the machine is too busy: {body}")


@pytest.mark.full
def test_the_cut_over_converts_what_changed_since_the_last_catch_up(
    ferry: Ferry, old: RemoteJob, flink: FlinkCluster
) -> None:
    run = cut_over(ferry, old, "The cut-over converts only what has changed", **WITH_CHECKPOINT)
    assert old.status == "CANCELED"
    check_that_it_was_caught_up_with(ferry, run)
    new = ferry.running()
    restored = flink.get(f"/jobs/{new.id}/checkpoints")["latest"]["restored"]
    publication = ferry.published()
    assert publication is not None
    assert restored["external_path"] == f"file:{publication.record.target}"
    assert "/chk-" in publication.record.source
    ferry.check_that_nothing_was_lost("newMainState")


def check_that_it_was_caught_up_with(ferry: Ferry, run: str) -> None:
    assert ferry.end_of(run) == "success", ferry.logs(run)
    planned = ferry.xcom(run, "plan")
    final, rehearsal = (Run.open(Location.of(planned[name])) for name in ("folder", "rehearsal"))
    found, written = kept_facts(rehearsal, CatchUps), final.facts(MigrateFacts)
    assert found.why_not == ""
    assert final.plan.since == found.done[-1].run_id
    assert written is not None
    assert written.newer is not None
    # What Flink may drop is held as long as it is needed, and no longer.
    assert not any(one.exists() for one in (rehearsal.held, *(of.held for of in catch_ups(final, found))))


def catch_ups(final: Run, found: CatchUps) -> list[Run]:
    return [Run.open(final.folder.parent.child(one.run_id)) for one in found.done]


@pytest.mark.full
def test_the_new_job_claims_links_of_what_is_published(ferry: Ferry, old: RemoteJob, flink: FlinkCluster) -> None:
    run = cut_over(ferry, old, "and claims the new savepoint", claimable=True)
    check_that_it_was_caught_up_with(ferry, run)
    new = ferry.running()
    publication = ferry.published()
    assert publication is not None
    target = publication.record.target
    checkpoints = flink.get(f"/jobs/{new.id}/checkpoints")["latest"]
    assert checkpoints["restored"]["external_path"] == f"file:{target}-claimable"
    # Its checkpoints use the links, which the rest of the test has it write over and delete.
    assert f"{target}-claimable/" in _newest_metadata(checkpoints)
    ferry.check_that_nothing_was_lost("newMainState")
    assert entries(target, "newMainState") == entries(publication.record.source, "mainState")


def _newest_metadata(checkpoints: Any) -> str:
    folder = Path(str(checkpoints["completed"]["external_path"]).removeprefix("file:"))
    return (folder / METADATA).read_text(encoding="latin-1")


@pytest.mark.full
def test_a_cut_over_with_a_native_savepoint_is_caught_up_with_too(ferry: Ferry, old: RemoteJob) -> None:
    run = cut_over(ferry, old, "The cut-over converts only what has changed")
    assert old.status == "FINISHED"
    check_that_it_was_caught_up_with(ferry, run)
    ferry.check_that_nothing_was_lost("newMainState")


@pytest.mark.full
def test_where_nothing_can_be_caught_up_with_the_person_learns_why_and_everything_is_converted(
    ferry: Ferry, old: RemoteJob
) -> None:
    """Under time to live, once the job has begun to move keys itself; here its savepoints are canonical."""
    why = "a canonical savepoint can't be caught up with"
    told = f"**The cut-over converts everything**, and not only what has changed: {why}"
    run = cut_over(ferry, old, told, source="flink")
    assert ferry.end_of(run) == "success", ferry.logs(run)
    assert why in log_of(ferry.airflow, DAG, run, "rehearsal.catch_up")
    assert Run.open(Location.of(ferry.xcom(run, "plan")["folder"])).plan.since is None
    ferry.check_that_nothing_was_lost("newMainState")


@pytest.mark.full
def test_a_job_that_was_stopped_with_a_checkpoint_goes_on_from_it_if_the_new_one_fails(
    ferry: Ferry, old: RemoteJob, flink: FlinkCluster
) -> None:
    run = ferry.cut_over(old, **WANTED, **WITH_CHECKPOINT, entry_class=FAILING_JOB)
    assert ferry.end_of(run) == "failed"
    assert "the price list cannot be found" in ferry.logs(run)
    assert (old.status, ferry.published()) == ("CANCELED", None)
    back = ferry.running()
    assert back.id == ferry.xcom(run, "return_to_old_job")["job_id"]
    restored = flink.get(f"/jobs/{back.id}/checkpoints")["latest"]["restored"]
    assert "/chk-" in restored["external_path"]
    ferry.check_that_nothing_was_lost("mainState")


@pytest.mark.full
def test_a_night_converts_what_changed_since_the_last_one_though_flink_has_dropped_its_checkpoint(
    ferry: Ferry, old: RemoteJob
) -> None:
    nights = []
    for _ in range(2):
        run = ferry.trigger(old, mode="rehearse", full_every=7, **WANTED)
        assert ferry.end_of(run) == "success", ferry.logs(run)
        nights.append(Run.open(Location.of(ferry.xcom(run, "plan")["folder"])))
        old.wait_for_checkpoints()
    first, second = nights
    assert "this night converts everything: there is no earlier run" in first.report_page.read().decode()
    said = f"this night converts only what has changed since run {first.plan.run_id}"
    assert said in log_of(ferry.airflow, DAG, run, "rehearsal.snapshot")
    assert said in second.report_page.read().decode()
    written = kept_facts(second, MigrateFacts)
    assert written.newer is not None
    assert entries(second.staged.path, "newMainState") == entries(second.plan.source, "mainState")
    # The next night goes on from the second one.
    assert [one.held.exists() for one in nights] == [False, True]
    ferry.check_that_nothing_was_lost("mainState")
