"""What a person needs to know to decide on a cut-over while the job still runs, in Markdown.

Airflow's page shows headings, lists and tables; lines of a paragraph run together there.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import islice

from stateferry.airflow.dag_runs.markup import cell, code
from stateferry.airflow.dag_runs.summary import check_rows, figure_rows
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.basics.durations import moment
from stateferry.basics.printable import printable
from stateferry.basics.quantities import percent
from stateferry.proof.expected.check_result import Outcome
from stateferry.runs.predict.differences import differences
from stateferry.runs.predict.estimates import OUTAGE, Prediction, basis_text, estimate_text, forecast_text
from stateferry.runs.predict.prediction import conversion_seconds, earlier_rehearsals
from stateferry.runs.record.catch_ups import CatchUps
from stateferry.runs.record.runs import Run
from stateferry.runs.report.report import Report

_REHEARSALS = 3


def subject_of(rehearsal: Run, foreseen: Prediction) -> str:
    """The question in a line."""
    job = printable(rehearsal.plan.job)
    if foreseen.outage is None:
        return f"Cut over job {job}? How long it will stand still isn't known"
    return f"Cut over job {job}? Ready: it will stand still for about {forecast_text(foreseen.outage)}"


def decision_summary(request: MigrationRequest, rehearsal: Run, foreseen: Prediction) -> str:
    """The rehearsal, and what follows from a yes, in Markdown."""
    report = Report.read(rehearsal.report)
    sections = (
        _now(request, rehearsal, report),
        _outage(rehearsal, foreseen),
        _catch_ups(rehearsal),
        _differences(rehearsal),
        _after_yes(request),
        check_rows(report),
        figure_rows(report),
    )
    return "\n\n".join("\n".join(lines) for lines in map(tuple, sections) if lines)


def _now(request: MigrationRequest, rehearsal: Run, report: Report) -> Iterator[str]:
    passed, failed, unsure = (report.count(outcome) for outcome in Outcome)
    verdict = "green" if report.is_green else "red"
    yield f"**Nothing stands still: job `{code(str(request.flink_job))}` runs**, and is stopped only after a yes."
    yield ""
    yield f"- the rehearsal is **{verdict}**: {passed} checks passed, {failed} failed, {unsure} could not tell"
    yield f"- it has read checkpoint {report.source.checkpoint_id}, `{code(report.source.path)}`"
    yield f"- it was ready at {moment(report.made_at)}"
    yield f"- run `{code(rehearsal.plan.run_id)}` of job `{code(rehearsal.plan.job)}`"
    for note in report.notes:
        yield f"- note: {cell(note)}"


def _outage(rehearsal: Run, foreseen: Prediction) -> Iterator[str]:
    if foreseen.outage is None:
        yield "**How long the job will stand still isn't known**: no run of this job has been timed."
        return
    newest = (rehearsal, *islice(earlier_rehearsals(rehearsal), _REHEARSALS - 1))
    last = ", ".join(f"{conversion_seconds(one):.0f} s" for one in newest)
    yield f"**Ready: the job will stand still for about {estimate_text(foreseen.outage)}.**"
    yield ""
    yield f"- snapshot, migrate, rescale and validate in the last rehearsals, the newest first: {last}"
    yield f"- {cell(basis_text(foreseen))}"
    if foreseen.missing:
        yield f"- not in it, as no run has a time for it yet: {', '.join(foreseen.missing)}"
    yield ""
    yield "| part of the outage | seconds | range |"
    yield "|---|---:|---:|"
    for part in OUTAGE:
        if (one := foreseen.parts.get(part.name)) is not None:
            assumed = "" if one.runs else " (assumed)"
            yield f"| {part.name}{assumed} | {one.seconds:.0f} | {one.low:.0f} to {one.high:.0f} |"


def _catch_ups(rehearsal: Run) -> Iterator[str]:
    found = rehearsal.facts(CatchUps)
    if found is None:
        return
    if found.why_not:
        yield f"**The cut-over converts everything**, and not only what has changed: {cell(found.why_not)}"
        if not found.done:
            return
    else:
        yield "**The cut-over converts only what has changed** since the last catch-up."
    yield ""
    yield f"- about {found.speed():,.0f} keys change in a second"
    if found.copy:
        yield f"- the copy, which converted everything, took {found.copy:.1f} s for the same steps"
    yield ""
    yield "| catch-up | its source was complete | changed keys | seconds |"
    yield "|---|---|---:|---:|"
    for one in found.done:
        yield f"| `{code(one.run_id)}` | {moment(one.at)} | {one.keys:,} | {one.seconds:.1f} |"


def _differences(rehearsal: Run) -> Iterator[str]:
    before = next(iter(earlier_rehearsals(rehearsal)), None)
    if before is None:
        yield "**There is no earlier rehearsal** to compare this one with."
        return
    found = differences(before, rehearsal)
    yield f"**Since the rehearsal `{code(before.plan.run_id)}`** {'this differs:' if found else 'nothing differs.'}"
    if found:
        yield ""
        yield "| | before | now |"
        yield "|---|---:|---:|"
        for one in found:
            yield f"| {cell(one.what)} | {cell(one.before)} | {cell(one.now)} |"


def lines_of_a_run(request: MigrationRequest) -> str:
    """What else a person needs to know to approve a run that stops no job."""
    lines = [
        "- this run has stopped no job: whether one stands still, and waits for the answer, only you know",
        f"- {start_text(request)}",
    ]
    if request.start_job:
        lines.append(f"- if it fails before its first checkpoint: {_way_back(request)}")
    return "\n".join(lines)


def _after_yes(request: MigrationRequest) -> Iterator[str]:
    yield "**After a yes**"
    yield ""
    yield f"- {_when(request)}"
    yield (
        f"- if the new run is red, or differs from this rehearsal by more than {percent(request.tolerance)} (entries, "
        f"expired) or in its layout: {_way_back(request)}"
    )
    yield f"- {start_text(request)}"
    if request.outage_limit is not None:
        yield (
            f"- if the new job has completed no checkpoint within {request.outage_limit} after the request to stop: "
            f"{_way_back(request)}"
        )
    yield (
        f"- if this rehearsal will be older than {request.rehearsal_max_age} when the job may be stopped, it is made "
        "again before; if the new one differs too much, the job isn't stopped"
    )
    yield ""
    yield "Reject: the job runs on, and nothing has changed."


def _when(request: MigrationRequest) -> str:
    sign = "a person gives the sign" if request.on_sign else ""
    window = f"its window {request.window} ({cell(request.time_zone)}) is open" if request.window else ""
    if sign or window:
        return f"the job is stopped when {' and '.join(filter(None, (sign, window)))}"
    return "the job is stopped at once"


def start_text(request: MigrationRequest) -> str:
    """Which program is started from the published savepoint."""
    if not request.start_job:
        return "**no job is started**: start_job is off, so a person starts the new job from the published savepoint"
    if request.runs_on == "kubernetes":
        return f"the operator starts the new job: the spec of `{code(str(request.resource))}` is changed as shown below"
    if request.runs_on == "own tasks":
        return "own tasks of the team start the new job: the group own_start"
    program = request.new_program()
    words = [program.jar, *([program.entry_class] if program.entry_class else ()), *program.arguments]
    subtasks = f", parallelism {program.parallelism}" if program.parallelism else ""
    claims = ", and claims the new savepoint" if request.given_options().get("claimable") else ""
    return f"the new job is started: `{code(shlex.join(words))}`{subtasks}{claims}"


def _way_back(request: MigrationRequest) -> str:
    if request.runs_on == "kubernetes":
        resource = code(str(request.resource))
        return (
            f"the operator starts the old job again: `{resource}` gets its spec as it is now, and what each start needs"
        )
    if request.runs_on == "own tasks":
        return "own tasks of the team start the old job again: the group own_return"
    if request.old_jar is None:
        return "**there is no way back by itself**, as no old_jar is given: a person has to start the old job"
    return f"the old job is started again by itself (`{code(request.old_jar)}`)"
