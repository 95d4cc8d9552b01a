"""Whether and when the job of an approved cut-over may be stopped. Each task asks anew, however late it comes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRescheduleException

from stateferry.airflow.dag_runs.dag_run import (
    REHEARSAL,
    REHEARSAL_AGAIN,
    fail_if_refused,
    newest_rehearsal_of,
    rehearsal_of,
    request_of,
    run_if_begun,
)
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.dag_runs.task_names import CATCH_UP
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.basics.durations import moment, parse_duration, rough_duration
from stateferry.basics.printable import printable
from stateferry.basics.quantities import percent
from stateferry.runs.catalog.publications import Control, OlderSourceError, check_age
from stateferry.runs.predict.differences import SourceLayout, beyond
from stateferry.runs.predict.estimates import START, Prediction, estimate_text
from stateferry.runs.predict.prediction import conversion_seconds, times_of
from stateferry.runs.record.facts import Began, SavepointTaken
from stateferry.runs.record.runs import Run
from stateferry.runs.report.decision import Answer, Decision
from stateferry.runs.report.report import Report

if TYPE_CHECKING:
    from airflow.sdk import Context

# Seconds between the end of a rehearsal that is made again and the window.
_SPARE = 60
# A catch-up that is so old (in milliseconds) leaves much to the one in the outage.
_FRESH_MS = 3_600_000
NOT_STOPPED = "The job was not stopped, and runs on"


def approved_decision(rehearsal: Run) -> Decision:
    """The approval of the cut-over; fails for good if there is none, because then the job must not be stopped."""
    with fail_if_refused():
        decision = rehearsal.facts(Decision)
    if decision is None or decision.answer is Answer.ASKED:
        raise refusal(f"nobody has approved the cut-over. {NOT_STOPPED}: clear the task decide")
    if not decision.is_approved:
        raise refusal(f"the cut-over was {printable(decision.in_words)}. {NOT_STOPPED}")
    return decision


def is_approved(context: Context) -> bool:
    """Whether the cut-over of this DAG run was approved, so that the job may have been stopped."""
    rehearsal = run_if_begun(context, REHEARSAL)
    decision = rehearsal.facts_if_sound(Decision) if rehearsal is not None else None
    return decision is not None and decision.is_approved


def check_window_fits(request: MigrationRequest, foreseen: Prediction | None) -> None:
    """Refuses a window that is shorter than the predicted outage, before anybody is asked."""
    window, lasts = request.stop_window(), _lasts(foreseen)
    if window is not None and window.begin(datetime.now(UTC), lasts) is None:
        raise refusal(
            f"no window {request.window} ({request.time_zone}) of the next days is long enough: the outage is "
            f"predicted to take up to {lasts.total_seconds():.0f} s. {NOT_STOPPED}"
        )


def check_outage_fits(request: MigrationRequest, foreseen: Prediction | None) -> None:
    """Refuses a limit that the outage is likely to exceed, before anybody is asked: the job would stop for nothing."""
    outage = None if foreseen is None else foreseen.outage
    if request.outage_limit is None or outage is None:
        return
    if 1000 * outage.seconds > parse_duration(request.outage_limit):
        raise refusal(
            f"outage_limit is {request.outage_limit}, and the outage is predicted to take {estimate_text(outage)}, so "
            f"the old job would be started again. {NOT_STOPPED}: give a longer one, or make the outage shorter"
        )


def check_may_be_published(rehearsal: Run) -> None:
    """Refuses a job that the cut-over would refuse for its checkpoint, when the job stands still already."""
    plan = rehearsal.plan
    with fail_if_refused():
        layout = rehearsal.facts(SourceLayout)
        with Control(plan.catalog_uri) as control:
            standing = control.standing(plan.job)
    if layout is None or standing is None:
        return
    try:
        check_age(plan.job, plan.source, layout.checkpoint_id, standing)
    except OlderSourceError as error:
        raise refusal(f"{printable(str(error))}. {NOT_STOPPED}") from None


def _check_nothing_published_since(rehearsal: Run) -> None:
    """Refuses a job that somebody else has cut over meanwhile: the job that runs now is the new one."""
    plan = rehearsal.plan
    with fail_if_refused(), Control(plan.catalog_uri) as control:
        standing = control.standing(plan.job)
    if standing is not None and standing.published_at > rehearsal.changes()[0].at:
        raise refusal(
            f"publication {standing.sequence} of job {plan.job} (run {standing.record.run_id}) was made after "
            f"rehearsal {plan.run_id} began, so the job that runs may be the new one. {NOT_STOPPED}: trigger a new run"
        )


def rehearsal_must_be_made_again(context: Context, log: Any) -> bool:
    """Whether the rehearsal will be too old when the job may be stopped; then waits until it is time for another one.

    The other one is begun so early that it ends before the window opens, by what this one took.
    """
    request, rehearsal = request_of(context), rehearsal_of(context)
    decision = approved_decision(rehearsal)
    now, begins = datetime.now(UTC), _begins(request, decision)
    if _age(rehearsal, begins) <= parse_duration(request.rehearsal_max_age):
        return False
    lead = timedelta(seconds=_SPARE + 1.5 * _seconds_of(rehearsal))
    if begins - lead > now:
        log.info("the rehearsal will be too old by then, and is made again at %s", _shown(begins - lead))
        raise AirflowRescheduleException(begins - lead)  # type: ignore[no-untyped-call]
    return True


def _seconds_of(rehearsal: Run) -> float:
    """The seconds of a rehearsal from its start on, with Flink's savepoint."""
    times = times_of(rehearsal)
    before = sum(times[part].wall for part in (START, SavepointTaken.name) if part in times)
    return before + conversion_seconds(rehearsal)


def wait_until_the_job_may_stop(context: Context, log: Any, base: Run | None = None) -> Decision:
    """Returns the decision if the job may be stopped now; else frees the worker until it may, or fails for good.

    `base` is the last catch-up, if the run is one since it.
    """
    request, rehearsal = request_of(context), rehearsal_of(context)
    decision = approved_decision(rehearsal)
    _check_nothing_published_since(rehearsal)
    begins = _begins(request, decision)
    newest = _newest(context, rehearsal, decision)
    _check_age(request, newest, begins)
    _check_same_job(request, newest)
    if base is not None and (age := _age(base, begins)) > _FRESH_MS:
        raise refusal(
            f"the last catch-up, {base.plan.run_id}, will be {rough_duration(age)} old when the job may be stopped, so "
            f"the job would stand still for longer than was approved. {NOT_STOPPED}: clear the task "
            f"{REHEARSAL_AGAIN}.{CATCH_UP}, or trigger a new run"
        )
    if begins > datetime.now(UTC):
        log.info(
            "the job is stopped at %s at the earliest, in the window %s (%s). Until then it runs",
            _shown(begins),
            request.window,
            request.time_zone,
        )
        raise AirflowRescheduleException(begins)  # type: ignore[no-untyped-call]
    return decision


def _newest(context: Context, rehearsal: Run, decision: Decision) -> Run:
    """The newest green rehearsal of this DAG run; fails for good if it differs too much from the approved one."""
    again = newest_rehearsal_of(context)
    if again.plan.run_id == rehearsal.plan.run_id:
        return rehearsal
    with fail_if_refused():
        found = beyond(rehearsal, again, decision.may_differ)
    if found:
        raise refusal(
            f"the rehearsal was made again, and differs from the approved one by more than "
            f"{percent(decision.may_differ)}: {printable('; '.join(one.text for one in found))}. {NOT_STOPPED}: "
            "trigger a new run"
        )
    return again


def job_that_runs(request: MigrationRequest) -> str:
    """The id of the job that a cut-over stops, as Flink has it now."""
    return FlinkHook(request.flink_conn_id).job_id(str(request.flink_job))


def rehearsed_job(rehearsal: Run) -> str | None:
    """The id of the job whose savepoint or checkpoint the rehearsal has read; None if that isn't known."""
    with fail_if_refused():
        taken, began = rehearsal.facts(SavepointTaken), rehearsal.facts(Began)
    if taken is not None and taken.job_id is not None:
        return taken.job_id
    return None if began is None else began.flink_job


def _check_same_job(request: MigrationRequest, rehearsal: Run) -> None:
    """Refuses a job that was started after the rehearsal: it may be another program than that of the way back."""
    if (rehearsed := rehearsed_job(rehearsal)) is not None and rehearsed != (runs := job_that_runs(request)):
        raise refusal(
            f"{request.flink_job} is job {runs}, and rehearsal {rehearsal.plan.run_id} was of job {rehearsed}: "
            "somebody has started it again since then, perhaps with another program, which a cut-over that fails "
            f"wouldn't bring back. {NOT_STOPPED}: trigger a new run"
        )


def _begins(request: MigrationRequest, decision: Decision) -> datetime:
    """When the job may be stopped: now, or when a window opens that is long enough."""
    check_window_fits(request, decision.foreseen)
    now, window = datetime.now(UTC), request.stop_window()
    begins = now if window is None else window.begin(now, _lasts(decision.foreseen))
    assert begins is not None, "the window was checked"
    return begins


def _check_age(request: MigrationRequest, rehearsal: Run, at: datetime) -> None:
    age = _age(rehearsal, at)
    if age > parse_duration(request.rehearsal_max_age):
        raise refusal(
            f"rehearsal {rehearsal.plan.run_id} will be {rough_duration(age)} old when the job may be stopped, more "
            f"than rehearsal_max_age ({request.rehearsal_max_age}). {NOT_STOPPED}: trigger a new run"
        )


def _age(rehearsal: Run, at: datetime) -> int:
    """How old the rehearsal will be at that time, in milliseconds."""
    with fail_if_refused():
        return int(at.timestamp() * 1000) - Report.read(rehearsal.report).made_at


def _shown(at: datetime) -> str:
    return moment(int(at.timestamp() * 1000))


def _lasts(foreseen: Prediction | None) -> timedelta:
    """How long the outage may take, by what is predicted: the end of the range."""
    outage = None if foreseen is None else foreseen.outage
    return timedelta(seconds=0 if outage is None else outage.high)
