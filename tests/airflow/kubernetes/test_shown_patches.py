"""Patches that are only shown: somebody else applies them, late, together, or never."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from stateferry.airflow.dag_runs.dag_run import rehearsal_of
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.runs_on.operator_spec import SpecBefore, suspension
from stateferry.runs.control.outage_limit import OutageExceeded, record_start
from stateferry.runs.record.facts import NewJob
from tests.airflow.kubernetes.conftest import OLD_JOB, CutOver, run_of

Make = Callable[..., CutOver]


def test_a_patch_that_is_only_shown_is_waited_for(cut_over: Make, occasion: Occasion) -> None:
    """As with a repository from which another program applies it."""
    made = cut_over(patch="show")

    def applies(patch: Any) -> None:
        made.kubernetes.change_spec(patch["spec"])
        made.operator.reconcile()

    made.context["ti"].xcom_push = lambda key, value: threading.Timer(0.1, applies, [value]).start()
    taken = made.place.stop(made.order())
    started = made.place.start(run_of(made, occasion, taken.location), "/new", timeout=10)
    assert made.flinks.restored[started["job_id"]] == "/new"
    assert made.kubernetes.patches == []
    # Nobody waits for the last patch, without which the operator restarts no failed job any more.
    wait_until(lambda: "kubernetes.operator.job.restart.failed" not in made.spec["flinkConfiguration"])


class Shown:
    """A cut-over whose patches are shown; the job is stopped, and the start's patch has been shown and not applied."""

    def __init__(self, made: CutOver, occasion: Occasion) -> None:
        self.made, self.patches = made, list[Any]()
        made.context["ti"].xcom_push = lambda key, value: self.patches.append(value["spec"])
        order = made.order()
        rehearsal_of(made.context).keep(SpecBefore("orders", made.before, OLD_JOB))
        self.apply(suspension(made.before, order))
        self.savepoint = f"{order.directory}/savepoint-1"
        self.run = run_of(made, occasion, self.savepoint)
        record_start(self.run, NewJob())
        self.starting = self.begin(lambda: made.place.start(self.run, self.run.plan.target, timeout=10))

    def begin(self, work: Callable[[], object]) -> Future[object]:
        """Has a task work until it has shown its patch."""
        before = len(self.patches)
        task = ThreadPoolExecutor(1).submit(work)
        wait_until(lambda: len(self.patches) > before or task.done())
        return task

    def apply(self, *patches: Any) -> None:
        for patch in patches:
            self.made.kubernetes.change_spec(patch)
        self.made.operator.reconcile()

    def exceed(self) -> None:
        """The outage has exceeded its limit; whatever waits looks again."""
        self.run.keep(OutageExceeded(1, 1))
        self.made.kubernetes.set_status(lifecycleState="SUSPENDED")


def wait_until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("start", ["together", "before", "never"])
def test_the_way_back_that_is_shown_goes_back_from_the_start_that_was_shown(
    cut_over: Make, occasion: Occasion, start: str
) -> None:
    shown = Shown(cut_over(patch="show"), occasion)
    shown.exceed()
    with pytest.raises(AirflowFailException, match="starts no new job: the outage has taken longer"):
        shown.starting.result(10)
    back = shown.begin(lambda: shown.made.place.start_old(shown.savepoint))
    of_start, of_back = shown.patches
    if start == "before":
        shown.apply(of_start)
    shown.apply(*([of_start, of_back] if start == "together" else [of_back]))
    started: Any = back.result(10)
    flinks = shown.made.flinks
    assert flinks.running == started["job_id"]
    assert flinks.restored[started["job_id"]] == shown.savepoint
    assert shown.made.spec["image"] == "orders:1"
    assert shown.made.spec["job"]["entryClass"] == "a.LegacyJob"


def test_a_new_job_that_comes_up_while_the_way_back_is_shown_is_not_thrown_away(
    cut_over: Make, occasion: Occasion
) -> None:
    shown = Shown(cut_over(patch="show"), occasion)
    shown.exceed()
    back = shown.begin(lambda: shown.made.place.start_old(shown.savepoint))
    shown.apply(shown.patches[0])
    shown.made.flinks.checkpointed.add(str(shown.made.flinks.running))
    shown.made.kubernetes.set_status(lifecycleState="STABLE")
    with pytest.raises(AirflowFailException, match=r"withdraw the patch of the way back: the new job .* has come up"):
        back.result(10)
