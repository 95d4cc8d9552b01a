"""A person's answer, and none in time, as the run remembers them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput

from flinkstate.errors import RefusedError, UsageError
from stateferry.airflow.dag_runs.dag_run import fail_if_refused
from stateferry.airflow.dag_runs.summary import report_summary
from stateferry.airflow.requests.planning import Occasion
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.tasks.approval import ApproveRun
from stateferry.airflow.tasks.plan_task import check_somebody_may_approve
from stateferry.airflow.tasks.rollback_tasks import ApproveRollback
from stateferry.basics.durations import now_ms
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.catalog.publications import Control
from stateferry.runs.predict.estimates import Estimate, Prediction
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.report.report import FileDigest, Report, SavepointDigests
from tests.airflow.state_migration.savepoints import planned_run
from tests.airflow.state_migration.test_steps import TaskInstance

ANSWERED = {"responded_at": datetime(2026, 11, 20, tzinfo=UTC), "responded_by_user": {"id": "1", "name": "ada"}}


@pytest.fixture
def run(home: Path, occasion: Occasion) -> Run:
    made = planned_run(MigrationRequest(), occasion)
    made.enter(RunState.RUNNING, 1)
    made.enter(RunState.VERIFIED, 2)
    return made


def context(run: Run, request: MigrationRequest | None = None, triggered_by: str | None = None) -> Any:
    said = {"folder": run.folder.path, "request": (request or MigrationRequest()).model_dump()}
    return {"ti": TaskInstance(said), "dag_run": SimpleNamespace(triggering_user_name=triggered_by)}


def answer(run: Run, event: dict[str, Any]) -> Any:
    return ApproveRun(task_id="approve").execute_complete(context(run), event)


def test_an_approval_is_written_down_with_who_gave_it(run: Run) -> None:
    assert answer(run, {"chosen_options": ["Approve"], "params_input": {}, **ANSWERED})["approved_by"] == "ada"
    assert (run.state, run.changes()[-1].reason) == (RunState.APPROVED, "approved by ada")


def test_a_rejection_ends_the_run_and_the_task(run: Run) -> None:
    with pytest.raises(AirflowFailException, match="rejected by ada"):
        answer(run, {"chosen_options": ["Reject"], "params_input": {}, **ANSWERED})
    assert (run.state, run.changes()[-1].reason) == (RunState.REJECTED, "rejected by ada")


def test_a_rejection_is_in_the_catalog_and_no_later_yes_changes_it(run: Run) -> None:
    with pytest.raises(AirflowFailException):
        answer(run, {"chosen_options": ["Reject"], "params_input": {}, **ANSWERED})
    with Control(run.plan.catalog_uri) as control:
        said = control.rejection(run.plan.job, run.plan.run_id)
    assert said is not None
    assert said.reason == "rejected by ada"
    with pytest.raises(AirflowFailException, match="a run that is rejected can't become approved"):
        answer(run, {"chosen_options": ["Approve"], "params_input": {}, **ANSWERED})
    assert run.state is RunState.REJECTED


def test_a_yes_after_a_no_that_only_the_catalog_knows_is_refused(run: Run) -> None:
    with Control(run.plan.catalog_uri) as control:
        control.reject(run.plan.job, run.plan.run_id, "rejected by ada")
    with pytest.raises(AirflowFailException, match="can't become approved"):
        answer(run, {"chosen_options": ["Approve"], "params_input": {}, **ANSWERED})
    assert (run.state, run.changes()[-1].reason) == (RunState.REJECTED, "rejected by ada")


def test_no_answer_in_time_ends_the_run_and_the_task(run: Run) -> None:
    with pytest.raises(AirflowFailException, match="no answer came in time"):
        answer(run, {"error": "no answer", "error_type": "timeout"})
    assert run.state is RunState.REJECTED


def test_who_switched_approval_off_is_not_asked(run: Run) -> None:
    with pytest.raises(AirflowSkipException):
        ApproveRun(task_id="approve").execute(context(run, MigrationRequest(approval=False)))
    assert (run.state, run.changes()[-1].reason) == (RunState.APPROVED, "approval is switched off")


def test_the_summary_says_what_one_has_to_know_and_takes_no_name_for_markup(run: Run) -> None:
    checks = (
        Check("main/a|b: rows", Outcome.PASSED, "10", "10"),
        Check("keys <script>", Outcome.COULD_NOT_TELL, "each", "?"),
    )
    savepoint = SavepointDigests("/in", 7, {"_metadata": FileDigest(1, "00" * 8)})
    facts = {"snapshot": {"notes": ["--flag-state is<b>Moved had no effect"]}}
    foreseen = Prediction(1, 1, 1, 1, {"snapshot": Estimate(12.4, 12, 13, 1)}, Estimate(12.4, 12, 13, 1))
    report = Report("demo", "r", "f", 0, savepoint, savepoint, checks, facts, prediction=foreseen)
    text = report_summary(report, run.plan)
    assert "**The report is green**: 1 check passed, 0 failed, 1 could not tell." in text
    assert "- from `/in` (checkpoint 7)" in text
    assert f"- to `{run.plan.target}`" in text
    assert "a cut-over is likely to keep the job still for 12 s (12 to 13 s): snapshot 12 s" in text
    assert "- note: --flag-state is\\<b\\>Moved had no effect" in text
    assert "| main/a\\|b: rows | passed | 10 | 10 |" in text
    assert "<script>" not in text


def test_a_strange_name_neither_steers_nor_leaves_its_place(run: Run) -> None:
    strange = "日本`\n\x1b[31m\u202e# a heading\n```\n"
    check = Check(f"{strange}: rows", Outcome.PASSED, strange, strange)
    savepoint = SavepointDigests(strange, 7, {"_metadata": FileDigest(1, "00" * 8)})
    report = Report(
        strange, strange, "f", 0, savepoint, savepoint, (check,), {"snapshot": {"states": {strange: {"n": 1}}}}
    )
    lines = report_summary(report, run.plan).split("\n")
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("#") for line in lines)
    assert not any("```" in line for line in lines)
    assert sum("日本" in line for line in lines) == 4


def test_a_refusal_shows_what_is_strange_in_it() -> None:
    with pytest.raises(AirflowFailException) as refused, fail_if_refused():
        raise RefusedError("operator 日本\x1b[31m\u202e")
    assert str(refused.value) == "operator 日本\\x1b[31m\\u202e"


def test_what_airflow_writes_of_a_run_only_its_user_reads(run: Run) -> None:
    answer(run, {"chosen_options": ["Approve"], "params_input": {}, **ANSWERED})
    assert {entry.stat().st_mode & 0o777 for entry in Path(run.folder.path).iterdir()} == {0o600}
    assert Path(run.folder.path).stat().st_mode & 0o777 == 0o700


def test_a_question_waits_as_long_as_was_asked_and_leaves_the_operator_as_it_is(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = questions(monkeypatch)
    operator = ApproveRollback(task_id="approve")
    before = dict(vars(operator))
    said = {"request": {"job": "orders", "approval_timeout": "90s"}, "consequences": ["input is read again"]}
    ti = SimpleNamespace(id="the task", xcom_pull=lambda task_ids: said)
    dag_run = SimpleNamespace(triggering_user_name="ada")
    with pytest.raises(TaskAwaitingInput) as waiting:
        operator.execute({"ti": ti, "dag_run": dag_run})  # type: ignore[typeddict-item]
    ((task, options, subject, body, users),) = asked
    assert (task, options, subject) == ("the task", ["Approve", "Reject"], "Roll back job orders?")
    assert (body, users) == ("- input is read again", [])
    assert (waiting.value.method_name, waiting.value.timeout) == ("execute_complete", timedelta(seconds=90))
    assert {name: value for name, value in vars(operator).items() if not name.startswith("_cached")} == before


def questions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What Airflow is given to ask."""
    asked: list[tuple[Any, ...]] = []

    def upsert(*said: Any, params: object, assigned_users: object = None) -> None:
        asked.append((*said, assigned_users))

    monkeypatch.setattr("stateferry.airflow.tasks.approval.upsert_hitl_detail", upsert)
    return asked


def test_only_who_is_named_may_answer_and_four_eyes_are_told_before(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions(monkeypatch)
    monkeypatch.setattr("stateferry.airflow.tasks.approval.report_summary", lambda *_: "the report")
    monkeypatch.setattr("stateferry.airflow.tasks.approval.Report.read", lambda _: None)
    request = MigrationRequest.model_validate({"approvers": ["ada", "grace"], "four_eyes": True})
    with pytest.raises(TaskAwaitingInput):
        ApproveRun(task_id="approve").execute(context(run, request, "ada"))
    ((*_, body, users),) = asked
    assert users == [{"id": "ada", "name": "ada"}, {"id": "grace", "name": "grace"}]
    report, own, four_eyes = body.split("\n\n")
    assert report == "the report"
    assert own.startswith("- this run has stopped no job")
    assert "**no job is started**" in own
    assert four_eyes == "**Four eyes**: ada has triggered this run, so another person must approve it."


def test_with_four_eyes_who_triggered_may_reject_but_is_asked_again_after_a_yes(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = questions(monkeypatch)
    own = context(run, MigrationRequest(four_eyes=True), "ada")
    operator, yes = ApproveRun(task_id="approve"), {"chosen_options": ["Approve"], **ANSWERED}
    with pytest.raises(TaskAwaitingInput) as waiting:
        operator.execute_complete(own, yes, answer_by=now_ms() + 3_600_000)
    assert len(asked) == 1
    assert run.state is RunState.VERIFIED
    assert waiting.value.timeout is not None
    # A reminder comes before the end.
    assert timedelta(minutes=44) < waiting.value.timeout <= timedelta(minutes=45)
    assert waiting.value.kwargs is not None
    assert waiting.value.kwargs["answer_by"] > now_ms() + 59 * 60_000
    assert "ada has approved, but has also triggered this run" in capsys.readouterr().out
    # Another person is enough, and so is a run that the schedule has triggered.
    for triggered_by in ("grace", None):
        other = context(run, MigrationRequest(four_eyes=True), triggered_by)
        assert operator.execute_complete(other, yes)["approved_by"] == "ada"
    with pytest.raises(AirflowFailException, match="rejected by ada"):
        operator.execute_complete(own, {"chosen_options": ["Reject"], **ANSWERED})


def test_a_question_that_nobody_may_approve_is_not_asked() -> None:
    alone = MigrationRequest.model_validate({"approvers": "ada", "four_eyes": True})
    with pytest.raises(UsageError, match="only ada, who has triggered this run"):
        check_somebody_may_approve(alone, "ada")
    check_somebody_may_approve(alone, "grace")
    check_somebody_may_approve(alone, None)


def test_what_is_neither_an_answer_nor_a_timeout_decides_nothing(run: Run) -> None:
    with pytest.raises(RuntimeError, match="the answer was lost"):
        answer(run, {"error": "the answer was lost", "error_type": "unknown"})
    assert run.state is RunState.VERIFIED
