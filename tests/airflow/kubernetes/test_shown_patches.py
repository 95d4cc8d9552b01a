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
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.runs_on.operator_spec import SpecBefore, suspension
from stateferry.basics.durations import now_ms
from stateferry.runs.control.outage_limit import OutageExceeded, StopAsked, record_start
from stateferry.runs.record.facts import NewJob
from tests.airflow.kubernetes.conftest import OLD_JOB, CutOver, run_of
from tests.support.operator_crds import versions

Make = Callable[..., CutOver]


@pytest.mark.parametrize("version", versions())
def test_a_patch_that_is_only_shown_is_waited_for(cut_over: Make, version: str, occasion: Occasion) -> None:
    """As with a repository from which another program applies it."""
    made = cut_over(version, patch="show")
    answers: list[Any] = []

    def applies(patch: Any) -> None:
        made.kubernetes.change_spec(patch["spec"])
        made.operator.reconcile()

    def pushed(key: str, value: Any) -> None:
        answers.append(made.kubernetes.patch(value, dry_run=True))
        threading.Timer(0.1, applies, [value]).start()

    made.context["ti"].xcom_push = pushed
    taken = made.place.stop(made.order())
    started = made.place.start(run_of(made, occasion, taken.location), "/new", timeout=10)
    assert made.flinks.restored[started["job_id"]] == "/new"
    assert made.kubernetes.patches == []
    # Nobody waits for the last patch, without which the operator restarts no failed job any more.
    wait_until(lambda: "kubernetes.operator.job.restart.failed" not in made.spec["flinkConfiguration"])
    made.flinks.checkpointed.clear()
    back = made.place.start_old(taken.location)
    assert made.flinks.restored[back["job_id"]] == taken.location
    # The operator's API server takes each of them: stop, start, way back, and what lets the operator go on as before.
    assert [status for status, _ in answers] == [200] * 5


class Shown:
    """A cut-over whose patches are shown; the job is stopped, and the start's patch has been shown and not applied."""

    def __init__(self, made: CutOver, occasion: Occasion, timeout: float = 10, nonce: int | None = None) -> None:
        """`nonce` is one that somebody else sets while the job is suspended."""
        self.made, self.patches = made, list[Any]()
        made.context["ti"].xcom_push = lambda key, value: self.patches.append(value["spec"])
        order = made.order()
        rehearsal_of(made.context).keep(SpecBefore("orders", made.before, OLD_JOB))
        self.apply(suspension(made.before, order))
        self.savepoint = f"{order.directory}/savepoint-1"
        self.run = run_of(made, occasion, self.savepoint)
        record_start(self.run, NewJob())
        if nonce is not None:
            made.kubernetes.change_spec({"job": {"savepointRedeployNonce": nonce}})
        self.starting = self.begin(lambda: made.place.start(self.run, self.run.plan.target, timeout=timeout))

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


def test_the_error_of_a_start_that_is_applied_late_is_none_of_the_way_back(cut_over: Make, occasion: Occasion) -> None:
    shown = Shown(cut_over(patch="show"), occasion)
    shown.exceed()
    back = shown.begin(lambda: shown.made.place.start_old(shown.savepoint))
    of_start, of_back = shown.patches
    shown.apply(of_start)
    kubernetes = shown.made.kubernetes
    kubernetes.set_status(error="[main] CrashLoop", jobManagerDeploymentStatus="ERROR", lifecycleState="FAILED")
    time.sleep(0.3)
    kubernetes.change_spec(of_back)
    # The operator comes a moment later.
    time.sleep(0.3)
    shown.made.operator.reconcile()
    started: Any = back.result(10)
    assert shown.made.flinks.running == started["job_id"]
    assert shown.made.flinks.restored[started["job_id"]] == shown.savepoint


@pytest.mark.parametrize(("limit", "least", "most"), [(None, 2.2, 4.0), (5_000, 0.0, 3.0)], ids=["no limit", "limit"])
def test_the_new_job_has_its_time_from_when_the_patch_is_applied_but_none_after_the_limit(
    cut_over: Make, occasion: Occasion, limit: int | None, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_over(patch="show")
    left: list[float] = []

    def wait_for(*_: object, timeout: float, **__: object) -> str:
        left.append(timeout)
        return "RUNNING"

    monkeypatch.setattr(FlinkHook, "wait_for", wait_for)
    rehearsal_of(made.context).keep(StopAsked(now_ms(), limit))
    shown = Shown(made, occasion, timeout=4.0)
    time.sleep(2.0)
    shown.apply(shown.patches[0])
    shown.starting.result(10)
    assert least <= left[0] <= most


def test_start_and_way_back_have_nonces_of_their_own_whatever_somebody_else_has_set(
    cut_over: Make, occasion: Occasion
) -> None:
    shown = Shown(cut_over(patch="show"), occasion, nonce=5)
    shown.exceed()
    shown.begin(lambda: shown.made.place.start_old(shown.savepoint))
    assert [patch["job"]["savepointRedeployNonce"] for patch in shown.patches] == [6, 7]
    shown.apply(shown.patches[1])


def test_a_stop_that_succeeds_while_the_patch_that_gives_it_up_is_shown_is_one(cut_over: Make) -> None:
    made = cut_over(patch="show")
    patches: list[Any] = []
    made.context["ti"].xcom_push = lambda key, value: patches.append(value["spec"])
    order, good = made.order(), made.operator.stop

    def fails(*_: Any) -> str:
        raise ValueError("Savepoint Error")

    made.operator.stop = fails
    rehearsal_of(made.context).keep(SpecBefore("orders", made.before, OLD_JOB))
    made.kubernetes.change_spec(suspension(made.before, order))
    made.operator.reconcile()
    ending = ThreadPoolExecutor(1).submit(lambda: made.place.stopped_in_the_end(order))
    wait_until(lambda: bool(patches) or ending.done())
    made.operator.stop = good
    made.operator.reconcile()
    taken = ending.result(10)
    assert taken is not None
    assert taken.location == f"{order.directory}/savepoint-1"
