"""The application that the steps of a run share: steps ask it, and do without it where there is none."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
)

from flinkstate.errors import StateferryError, TransientError
from stateferry.airflow.requests.planning import default_catalog
from stateferry.airflow.tasks import shared_application_task
from stateferry.airflow.tasks.shared_application_task import ShareApplication, dismiss, wait_until_ready
from stateferry.airflow.tasks.steps import StepOperator
from stateferry.runs.catalog.processes import Process
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.shared_application import DismissedError, Output, SharedApplication, StepRequest
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import RescaleFacts, SnapshotFacts
from tests.airflow.state_migration.test_steps import Submit, TaskInstance, execute, run, submits

__all__ = ["run", "submits"]

PATIENCE = 120
# Airflow's hook leaves it to the garbage collector to close what it has read spark-submit's output from.
pytestmark = pytest.mark.filterwarnings("ignore:.*FileIO.*:pytest.PytestUnraisableExceptionWarning")


@contextmanager
def mailbox(run: Run) -> Iterator[SharedApplication]:
    with SharedApplication(run.plan.catalog_uri, run.folder.shown) as shared:
        yield shared


@contextmanager
def application(run: Run, does: Callable[[StepRequest], list[Output]]) -> Iterator[list[str]]:
    """One that answers as it is told to; gives the steps that it was asked for."""
    asked: list[str] = []
    ended = threading.Event()

    def serve() -> None:
        with mailbox(run) as shared, suppress(DismissedError):
            while not ended.wait(0.05):
                if (request := shared.request("a")) is not None:
                    asked.append(request.step)
                    for output in does(request):
                        shared.keep_output("a", request.number, output)
                        time.sleep(0.3)

    with mailbox(run) as shared, shared.kept_alive("a"):
        shared.announce("a")
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            ended.set()
            thread.join()


def test_a_step_is_done_by_the_application_and_what_it_prints_is_in_the_log(
    run: Run, submits: Submit, capsys: pytest.CaptureFixture[str]
) -> None:
    submits("echo nobody submits a step >&2; exit 70")

    def does(_: StepRequest) -> list[Output]:
        run.keep(RescaleFacts(seconds=1.0, ended_at=0))
        return [Output("rescale: 1/2 50%; 1s; run"), Output("rescale: 1/2 50%; 1s; running\nis done\n", exit_code=0)]

    with application(run, does) as asked:
        assert execute("rescale", run)["seconds"] == 1.0
    assert asked == ["rescale"]
    told = capsys.readouterr().out
    assert told.count("rescale: 1/2 50%; 1s; running") == told.count("is done") == 1


def test_a_lease_that_the_application_keeps_between_steps_is_in_nobodys_way(run: Run, submits: Submit) -> None:
    submits("exit 70")
    run.keep(RescaleFacts(seconds=1.0, ended_at=0))
    other = Process(os.getppid(), socket.gethostname(), 0)
    with Control(run.plan.catalog_uri) as control:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Process, "this", lambda: other)
            held = control.acquire(run.plan.job, run.plan.run_id)
        with application(run, lambda _: [Output("", exit_code=0)]):
            assert execute("rescale", run)["seconds"] == 1.0
        # It keeps an application of one's own waiting.
        with pytest.raises(AirflowRescheduleException):
            execute("rescale", run)
        control.release(held)


def test_a_refusal_means_what_it_means_in_an_application_of_its_own(run: Run, submits: Submit) -> None:
    run.enter(RunState.RUNNING, 1)
    submits("exit 70")
    with (
        application(run, lambda _: [Output("stateferry: /data/x: expected a file, found none\n", exit_code=3)]),
        pytest.raises(AirflowFailException, match="expected a file, found none"),
    ):
        execute("rescale", run)


@pytest.mark.parametrize("code", [70, 75, 143])
def test_after_any_other_end_the_step_goes_on_alone(run: Run, submits: Submit, tmp_path: Path, code: int) -> None:
    submits(f"touch {tmp_path}/submitted")
    run.keep(RescaleFacts(seconds=1.0, ended_at=0))
    with application(run, lambda _: [Output("stateferry: Spark's JVM was lost\n", exit_code=code)]):
        assert execute("rescale", run)["seconds"] == 1.0
    assert (tmp_path / "submitted").exists()


def test_an_application_that_never_begins_is_given_up(
    run: Run, submits: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_application_task, "_SECONDS_TO_BEGIN", 0.3)
    submits(f"touch {tmp_path}/submitted")
    run.keep(RescaleFacts(seconds=1.0, ended_at=0))
    with application(run, lambda _: []):
        assert execute("rescale", run)["seconds"] == 1.0
        with mailbox(run) as shared:
            assert not shared.is_alive(), "it would keep the lease"
    assert (tmp_path / "submitted").exists()


def test_a_step_does_without_an_application_that_cant_be_asked(
    run: Run, submits: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> None:
        raise StateferryError("permission denied for table stateferry_application")

    submits(f"touch {tmp_path}/submitted")
    run.keep(RescaleFacts(seconds=1.0, ended_at=0))
    monkeypatch.setattr(SharedApplication, "ask", refused)
    assert execute("rescale", run)["seconds"] == 1.0
    assert (tmp_path / "submitted").exists()
    assert "the run's application can't be asked: permission denied" in capsys.readouterr().out


def test_a_step_waits_while_the_catalog_is_away(run: Run, submits: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    submits("exit 70")
    run.keep(RescaleFacts(seconds=1.0, ended_at=0))
    monkeypatch.setattr("stateferry.runs.control.shared_application._PAUSE", 0.05)
    output = SharedApplication.output
    times: list[int] = []

    def away(self: SharedApplication, number: int) -> Output | None:
        times.append(number)
        if len(times) < 4:
            raise TransientError("the catalog is away")
        return output(self, number)

    monkeypatch.setattr(SharedApplication, "output", away)
    with application(run, lambda _: [Output("", exit_code=0)]):
        assert execute("rescale", run)["seconds"] == 1.0
    assert len(times) >= 4


def test_a_step_whose_application_is_lost_has_one_of_its_own(
    run: Run, submits: Submit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submits(f"touch {tmp_path}/submitted")
    run.keep(RescaleFacts(seconds=1.0, ended_at=0))

    def is_lost(_: StepRequest) -> list[Output]:
        with mailbox(run) as shared:
            shared.dismiss()
        return []

    with application(run, is_lost):
        assert execute("rescale", run)["seconds"] == 1.0
    assert (tmp_path / "submitted").exists()
    assert "the application of the run doesn't answer, or has ended" in capsys.readouterr().out


@pytest.mark.parametrize("state", ["success", "skipped", "failed", "absent"])
def test_a_step_doesnt_wait_for_an_application_that_wont_come(
    run: Run, submits: Submit, tmp_path: Path, state: str
) -> None:
    submits(f"touch {tmp_path}/submitted")
    began = time.monotonic()
    step(run, {} if state == "absent" else {"application": state})
    assert time.monotonic() - began < shared_application_task._SECONDS_TO_START / 2
    assert (tmp_path / "submitted").exists()


@pytest.mark.parametrize("state", [None, "queued"])
def test_a_step_waits_a_while_for_an_application_that_is_about_to_start(
    run: Run, submits: Submit, tmp_path: Path, state: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    submits("exit 70")
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(step, run, {"application": state})
        time.sleep(0.5)
        with application(run, lambda _: [Output("", exit_code=0)]):
            assert done.result(PATIENCE)["seconds"] == 1.0
    # Without a slot for both, the step would wait in vain.
    monkeypatch.setattr(shared_application_task, "_SECONDS_TO_START", 0.5)
    submits(f"touch {tmp_path}/submitted")
    step(run, {"application": state})
    assert (tmp_path / "submitted").exists()


def step(run: Run, states: dict[str, str | None]) -> dict[str, Any]:
    run.keep(SnapshotFacts(seconds=1.0, ended_at=0))
    operator = StepOperator(task_id="snapshot", step="snapshot")
    context: Any = {"ti": TaskInstance(output(run), states), "task": operator, "outlet_events": {}}
    operator.render_template_fields(context)
    return operator.execute(context)


def output(run: Run) -> dict[str, Any]:
    return {"folder": run.folder.path, "request": {}}


def test_who_ends_the_task_ends_the_application(run: Run, submits: Submit) -> None:
    operator = StepOperator(task_id="rescale", step="rescale")
    submits("echo nobody submits it again >&2; exit 1")
    with application(run, lambda _: []) as asked, ThreadPoolExecutor(1) as thread:
        ended = thread.submit(execute, "rescale", run, operator=operator)
        while not asked:
            assert not ended.done(), ended.result()
            time.sleep(0.05)
        operator.on_kill()
        with pytest.raises(AirflowException, match="rescale was ended, and the application with it"):
            ended.result(PATIENCE)
        with mailbox(run) as shared:
            assert not shared.is_alive()


def share(run: Run) -> None:
    operator = ShareApplication()
    context: Any = {"ti": TaskInstance(output(run)), "task": operator}
    operator.render_template_fields(context)
    operator.execute(context)


def test_the_application_is_announced_while_it_runs(run: Run, submits: Submit, tmp_path: Path) -> None:
    assert default_catalog() == run.plan.catalog_uri
    submits(f'echo "$@" > {tmp_path}/output; while [ ! -e {tmp_path}/end ]; do sleep 0.1; done')
    with ThreadPoolExecutor(1) as thread, mailbox(run) as shared:
        done = thread.submit(share, run)
        while not shared.is_alive():
            assert not done.done(), done.result()
            time.sleep(0.05)
        (tmp_path / "end").touch()
        done.result(PATIENCE)
        assert not shared.is_alive()
    told = (tmp_path / "output").read_text()
    named = f"--application the task --catalog {run.plan.catalog_uri}"
    assert told.endswith(f"spark_jobs/steps.py --run {run.folder.path} {named}\n")


def test_a_catalog_with_a_password_is_in_no_command() -> None:
    without = "postgresql://ferry@db/catalog"
    assert shared_application_task._naming(without) == ["--catalog", without]
    assert shared_application_task._naming("postgresql://ferry:secret@db/catalog") == []
    assert shared_application_task._naming("postgresql://ferry@db/catalog?password=secret") == []


def test_a_role_that_may_not_read_the_row_keeps_no_savepoint_from_being_taken(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: SharedApplication) -> bool:
        raise StateferryError("permission denied for table stateferry_application")

    monkeypatch.setattr(SharedApplication, "is_ready", refused)
    context: Any = {"ti": TaskInstance(output(run), {"application": "running"})}
    wait_until_ready(context, "folder", logging.getLogger())
    assert "can't be asked: permission denied" in caplog.text


@pytest.mark.parametrize(("which", "task"), [("folder", "application"), ("rehearsal", "rehearsal.application")])
def test_the_savepoint_is_taken_when_spark_has_started(run: Run, which: str, task: str) -> None:
    ti = TaskInstance({which: run.folder.path, "request": {}}, {task: "running"})
    context: Any = {"ti": ti}
    with ThreadPoolExecutor(1) as thread, mailbox(run) as shared:
        shared.announce("a")
        waiting = thread.submit(wait_until_ready, context, which, logging.getLogger())
        time.sleep(0.5)
        assert not waiting.done()
        shared.say_ready("a")
        waiting.result(PATIENCE)


@pytest.mark.parametrize("state", ["success", "skipped", "failed", "absent", "running"])
def test_a_savepoint_doesnt_wait_for_an_application_that_wont_come(
    run: Run, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_application_task, "_SECONDS_TO_BE_READY", 0.5 if state == "running" else PATIENCE)
    ti = TaskInstance(output(run), {} if state == "absent" else {"application": state})
    context: Any = {"ti": ti}
    began = time.monotonic()
    wait_until_ready(context, "folder", logging.getLogger())
    assert time.monotonic() - began < PATIENCE / 2


def test_an_application_that_is_killed_leaves_the_steps_to_themselves(
    run: Run, submits: Submit, capsys: pytest.CaptureFixture[str]
) -> None:
    submits("kill -9 $$")
    with pytest.raises(AirflowSkipException, match=r"exit code -9: SIGKILL has ended it.*of its own"):
        share(run)


def test_conclude_dismisses_an_application_that_waits_for_nothing(
    run: Run, submits: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stateferry.runs.control.shared_application._SECONDS_TO_END", 0.1)
    submits(f"echo $$ > {tmp_path}/being-written; mv {tmp_path}/being-written {tmp_path}/pid; exec sleep 600")
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(share, run)
        while not (tmp_path / "pid").exists():
            assert not done.done(), done.result()
            time.sleep(0.05)
        context: Any = {"ti": TaskInstance(output(run))}
        dismiss(context)
        done.result(PATIENCE)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGCONT)
