"""What the page of all jobs shows of a cut-over from its yes on: for who is on call while a job stands still."""

from __future__ import annotations

from collections.abc import Iterator

from stateferry.basics.durations import moment
from stateferry.runs.predict.estimates import forecast_text
from stateferry.runs.record.facts import SavepointTaken
from stateferry.show.document import facts, table
from stateferry.show.markup import Content, Markup, element, join, link
from stateferry.show.outage_view import CutOver, OutagePart, Phase, TaskLook
from stateferry.show.outcome import seconds_text

_KINDS = {Phase.RUNS: "", Phase.STOPS: "warn", Phase.STANDS_STILL: "bad", Phase.RETURNS: "bad", Phase.ABANDONED: "bad"}
_NOT_KNOWN = "not known: no earlier run of this job has been timed"
_NEXT = {
    "take_savepoint": "Flink stops the job with a savepoint",
    "snapshot": "the savepoint is read",
    "migrate": "the new savepoint is written",
    "rescale": "if max parallelism changes, key groups get new ranges",
    "validate": "it is compared with the old one",
    "cut_over": "it is published",
    "start_job": "the new job starts, and its first checkpoint ends the outage",
}


def outage_section(one: CutOver, now: int) -> Markup:
    """The cut-over, with the time until which it probably takes."""
    rows: list[tuple[str, Content]] = [
        ("since", _since(one, now)),
        ("outage", _foreseen(one)),
        ("expected until", _until(one, now)),
        ("at the latest", _limit(one, now)),
        ("at work", _at_work(one, now)),
        ("next", _next(one)),
        ("if it fails", _if_it_fails(one)),
        ("to go back", _to_go_back(one)),
        ("ask", _people(one)),
    ]
    lead = element("strong", _title(one))
    return element("div", element("p", lead), facts(rows), _parts(one), class_=f"notice {_KINDS[one.phase]}".strip())


def _title(one: CutOver) -> str:
    match one.phase:
        case Phase.RUNS:
            return "The cut-over is approved. The job runs, and is stopped as soon as it may."
        case Phase.STOPS:
            return "The job is being stopped: it processes nothing any more when its savepoint is complete."
        case Phase.STANDS_STILL:
            return "The job stands still."
        case Phase.RETURNS:
            why = one.why_returns or "the cut-over has failed"
            return f"The job stands still. The old job is started again, because {why}."
        case Phase.ABANDONED:
            return "The DAG run has ended, and neither the new job nor the old one is known to run."


def _since(one: CutOver, now: int) -> Content:
    if one.since is None:
        return None
    return f"{moment(one.since)}, for {seconds_text((now - one.since) / 1000)}"


def _foreseen(one: CutOver) -> Content:
    """Before the stop: how long the job is likely to stand still."""
    if one.phase is not Phase.RUNS:
        return None
    outage = None if one.decision.foreseen is None else one.decision.foreseen.outage
    return _NOT_KNOWN if outage is None else f"about {forecast_text(outage)}"


def _until(one: CutOver, now: int) -> Content:
    if one.phase not in (Phase.STOPS, Phase.STANDS_STILL):
        return None
    if one.until is None:
        return _NOT_KNOWN
    at, earliest, latest = one.until
    left = seconds_text(max(at - now, 0) / 1000)
    return f"{_time(at)}, in about {left} (between {_time(earliest)} and {_time(latest)})"


def _limit(one: CutOver, now: int) -> Content:
    if one.asked is None or one.asked.limit is None or one.phase is Phase.ABANDONED:
        return None
    at = one.asked.at + one.asked.limit
    if one.phase is Phase.RETURNS:
        return None
    words = f"{_time(at)}, in {seconds_text(max(at - now, 0) / 1000)}"
    return f"{words}: without a checkpoint of the new job by then, the old job is started again by itself"


def _at_work(one: CutOver, now: int) -> Content:
    if one.phase is Phase.ABANDONED:
        return "nobody"
    busy = one.at_work
    if not busy:
        return "between two tasks"
    return join(*(element("div", link(task.name, task.address), _how(task, now)) for task in busy))


def _how(task: TaskLook, now: int) -> str:
    since = f" for {seconds_text((now - task.since) / 1000)}" if task.since is not None and task.since <= now else ""
    tried = f", try {task.tries}" if task.tries > 1 else ""
    word = {"up_for_retry": "is tried again soon", "up_for_reschedule": "waits"}.get(task.state, task.state)
    return f" {word}{since}{tried}"


def _next(one: CutOver) -> Content:
    if one.phase is Phase.RETURNS:
        return "the new job is ended, the publication rolled back, and the old job started from its own savepoint"
    if one.phase is Phase.ABANDONED:
        where = f" from {one.savepoint}" if one.savepoint else ""
        return f"start the old job{where}, or repair what the log of return_to_old_job names and clear that task"
    left = [_NEXT[part.name] for part in one.parts if part.seconds is None and part.name in _NEXT]
    return "; ".join(left if one.phase is Phase.RUNS else left[1:]) or None


def _if_it_fails(one: CutOver) -> Content:
    if one.asked is None or one.phase in (Phase.RETURNS, Phase.ABANDONED):
        return None
    if one.asked.way_back:
        return "the old job is started again by itself, unless the new one has completed a checkpoint"
    return "a person has to start the old job from its savepoint: no old_jar was given"


def _to_go_back(one: CutOver) -> Content:
    """While Flink takes the savepoint, nothing can be taken back; but the wish can be recorded."""
    task = one.dag_run.tasks.get(SavepointTaken.name)
    if one.phase is not Phase.STOPS or task is None or one.asked is None or not one.asked.way_back:
        return None
    what = ": then the old job is started again from its savepoint, as soon as Flink has completed that"
    return join("mark the task ", link(task.name, task.address), " as failed", what)


def _people(one: CutOver) -> Content:
    dag_run = one.dag_run
    named = [one.decision.reason]
    if dag_run.triggered_by:
        named.append(f"triggered by {dag_run.triggered_by}")
    if dag_run.asked:
        named.append(f"{', '.join(dag_run.asked)} may answer its questions")
    return join("; ".join(named), ": ", link("tasks and logs", dag_run.address))


def _parts(one: CutOver) -> Markup | None:
    if one.phase is Phase.RUNS:
        return None
    heads = [("part", ""), ("took", "number"), ("predicted", "number"), ("range", "number")]
    return table(heads, [list(_cells(part)) for part in one.parts])


def _cells(part: OutagePart) -> Iterator[Content]:
    yield part.name
    yield "" if part.seconds is None else seconds_text(part.seconds)
    yield "" if part.predicted is None else seconds_text(part.predicted.seconds)
    yield "" if part.predicted is None else f"{part.predicted.low:.0f} to {part.predicted.high:.0f} s"


def _time(at: int) -> str:
    return moment(at)[11:]
