"""Flink's jobs: finding them, starting a job once, and waiting until it reaches a state."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stateferry.airflow.flink.errors import (
    FlinkError,
    FlinkJobError,
    FlinkJobLostError,
    FlinkRefusedError,
    FlinkTimeoutError,
    FlinkUnreachableError,
    root_cause,
)
from stateferry.airflow.flink.rest import FlinkRest

TERMINAL = frozenset({"FINISHED", "CANCELED", "FAILED"})
RUN_ANSWER_SECONDS = 300.0
CLAIMABLE = "-claimable"
"""How the names of folders end that a job may claim; its own checkpoints have other names."""
_UNKNOWN = "FlinkJobNotFoundException"
_DUPLICATE = ("DuplicateJobSubmissionException", "DuplicateApplicationSubmissionException")
_REAPPEARS_SECONDS = 20.0
_LOOK_AGAIN_SECONDS = 2.0
_CACHE_MARGIN_SECONDS = 0.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobOverview:
    """A job in Flink's list of jobs."""

    id: str
    name: str
    state: str
    started: int
    is_up: bool
    """Running, with every task at work, so that a savepoint can be taken."""

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.state in TERMINAL

    def is_called(self, job: str) -> bool:
        """Whether this is the job's id or name."""
        return job in (self.id, self.name)


@dataclass(frozen=True)
class JarRun:
    """A program to start, with a job id that the caller has chosen."""

    job_id: str
    jar: str
    """The id that Flink gave the jar when it was uploaded, or its file name: then the one uploaded last."""
    entry_class: str | None = None
    arguments: Sequence[str] = ()
    parallelism: int | None = None
    savepoint: str | None = None
    claims: bool = False
    """Whether the savepoint belongs to the job from then on, which deletes its files when it needs them no longer."""
    configuration: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The body of the request to Flink."""
        body = {"jobId": self.job_id} | self.body_of_plan()
        if self.savepoint is not None:
            # The job must accept all of the savepoint's state.
            mode = "CLAIM" if self.claims else "NO_CLAIM"
            body |= {"savepointPath": self.savepoint, "claimMode": mode, "allowNonRestoredState": False}
        if self.configuration:
            body["flinkConfiguration"] = dict(self.configuration)
        return body

    def body_of_plan(self) -> dict[str, Any]:
        """The body of the request for the plan of the program's job."""
        body: dict[str, Any] = {"programArgsList": list(self.arguments)}
        if self.entry_class:
            body["entryClass"] = self.entry_class
        if self.parallelism is not None:
            body["parallelism"] = self.parallelism
        return body


@dataclass(frozen=True)
class Goal:
    """What a wait is for: one of these states and, if asked, a completed checkpoint."""

    states: frozenset[str] = frozenset({"RUNNING"})
    checkpoint: bool = False
    max_failures: int | None = None
    """How often a job that Flink restarts may fail on the way."""

    @classmethod
    def over(cls) -> Goal:
        """The goal that the job has ended in any state."""
        return cls(TERMINAL)


async def list_jobs(rest: FlinkRest) -> list[JobOverview]:
    """All jobs that Flink remembers, the newest first."""
    answer = await rest.get("/jobs/overview")
    jobs = [
        JobOverview(job["jid"], job["name"], job["state"], job["start-time"], _is_up(job)) for job in answer["jobs"]
    ]
    return sorted(jobs, key=lambda job: job.started, reverse=True)


def _is_up(job: Mapping[str, Any]) -> bool:
    tasks = job["tasks"]
    return bool(job["state"] == "RUNNING" and tasks["running"] + tasks["finished"] == tasks["total"])


async def find_job(rest: FlinkRest, job: str) -> JobOverview:
    """The job with this id or name: the running one, else the newest."""
    jobs = await list_jobs(rest)
    found = _choose(rest, job, jobs)
    if found is None:
        known = ", ".join(f"'{other.name}' ({other.id}, {other.state})" for other in jobs) or "none"
        raise FlinkError(f"no job has the name or id '{job}' at {rest.endpoint.url}; Flink knows these jobs: {known}")
    return found


def _choose(rest: FlinkRest, job: str, jobs: list[JobOverview]) -> JobOverview | None:
    named = [found for found in jobs if found.is_called(job)]
    alive = [found for found in named if not found.is_over]
    if len(alive) > 1:
        raise FlinkError(
            f"{len(alive)} jobs named '{job}' are running at {rest.endpoint.url}: "
            f"{', '.join(found.id for found in alive)}; name one by its id"
        )
    return next(iter(alive or named), None)


async def job_state(rest: FlinkRest, job_id: str) -> str | None:
    """The job's state; None if Flink doesn't know the job."""
    try:
        answer = await rest.get(f"/jobs/{job_id}/status")
    except FlinkRefusedError as refused:
        if refused.status == 404 or refused.says(_UNKNOWN):
            return None
        raise
    return str(answer["status"])


async def known_state(rest: FlinkRest, job_id: str) -> str:
    """The job's state.

    If Flink doesn't know the job, this waits for a moment, because a restarted JobManager must recover the job first.
    """
    end = time.monotonic() + _REAPPEARS_SECONDS
    while (state := await job_state(rest, job_id)) is None:
        if time.monotonic() > end:
            raise FlinkJobLostError(
                f"{rest.endpoint.url} knows no job {job_id}: if its JobManager was restarted without high "
                "availability, the job is gone; if the job ended long ago, Flink has forgotten it"
            )
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    return state


async def has_checkpointed(rest: FlinkRest, job_id: str) -> bool:
    """Whether the job has completed a checkpoint or savepoint of its own; then an older job would read input again.

    Flink answers from a cache. To be sure that there is none, this asks again when the cache is out of date.
    """
    if await _shows_checkpoint(rest, job_id):
        return True
    await asyncio.sleep(await cached_for(rest))
    return await _shows_checkpoint(rest, job_id)


async def _shows_checkpoint(rest: FlinkRest, job_id: str) -> bool:
    latest = (await rest.get(f"/jobs/{job_id}/checkpoints"))["latest"]
    restored = latest["restored"]
    # A restarted JobManager doesn't remember checkpoints. But then the job was restored from a checkpoint, not from a
    # savepoint.
    # To Flink, a savepoint that the job has claimed is a checkpoint, too.
    claimed = restored is not None and str(restored["external_path"]).rstrip("/").endswith(CLAIMABLE)
    from_own = restored is not None and not restored["is_savepoint"] and not claimed
    return latest["completed"] is not None or latest["savepoint"] is not None or from_own


async def why_failed(rest: FlinkRest, job_id: str) -> str:
    """The newest failure in the job's history, in Flink's words."""
    end = time.monotonic() + await cached_for(rest)
    while not (failures := await _failures(rest, job_id, 1)):
        if time.monotonic() > end:
            return "Flink gives no reason"
        await asyncio.sleep(_CACHE_MARGIN_SECONDS)
    return failures[0]


async def _failures(rest: FlinkRest, job_id: str, most: int) -> list[str]:
    """The failures that Flink remembers, the newest first."""
    answer = await rest.get(f"/jobs/{job_id}/exceptions?maxExceptions={most}")
    return [root_cause(entry["stacktrace"]) for entry in answer["exceptionHistory"]["entries"]]


async def cancel_job(rest: FlinkRest, job_id: str) -> None:
    """Requests cancellation; does nothing if the job has ended."""
    try:
        await rest.patch(f"/jobs/{job_id}?mode=cancel")
    except FlinkRefusedError as refused:
        if refused.status != 409:
            raise


async def run_jar(rest: FlinkRest, run: JarRun) -> bool:
    """Starts the program unless a job with its id exists; returns whether it was started now."""
    end = time.monotonic() + rest.endpoint.patience
    while True:
        if (state := await job_state(rest, run.job_id)) is not None:
            _log.info("job %s exists already: it is %s", run.job_id, state)
            return False
        jar = await _jar_id(rest, run.jar)
        try:
            await rest.post_once(f"/jars/{jar}/run", run.body(), answer=RUN_ANSWER_SECONDS)
        except FlinkUnreachableError as lost:
            if time.monotonic() > end:
                raise
            _log.warning("%s; looking in Flink whether job %s was started", lost, run.job_id)
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        except FlinkRefusedError as refused:
            # An earlier request, whose answer was lost, was still in progress.
            if not refused.says(*_DUPLICATE):
                raise
            await known_state(rest, run.job_id)
            return False
        else:
            return True


async def check_program(rest: FlinkRest, run: JarRun) -> None:
    """Has Flink make the plan of the program's job, which starts nothing; raises its error if it can't.

    So a jar that isn't there, a wrong entry class or arguments that the program refuses are known before the start.
    """
    jar = await _jar_id(rest, run.jar)
    await rest.post_once(f"/jars/{jar}/plan", run.body_of_plan(), answer=RUN_ANSWER_SECONDS)


async def look(rest: FlinkRest, job_id: str, goal: Goal) -> str | None:
    """The job's state if it has reached the goal, None if it still may.

    Raises an error if the job has ended without reaching the goal, or if Flink doesn't know it.
    """
    state = await known_state(rest, job_id)
    has_one = has_checkpointed if state in TERMINAL else _shows_checkpoint
    if state in goal.states and (not goal.checkpoint or await has_one(rest, job_id)):
        return state
    if state == "FAILED":
        raise FlinkJobError(f"job {job_id} has failed: {await why_failed(rest, job_id)}")
    if state in TERMINAL:
        raise FlinkJobError(f"job {job_id} is {state}; expected: {_shown(goal)}")
    if goal.max_failures is not None:
        failures = await _failures(rest, job_id, goal.max_failures + 1)
        if len(failures) > goal.max_failures:
            raise FlinkJobError(
                f"job {job_id} is {state}, not {_shown(goal)}, and has failed {len(failures)} times, which is more "
                f"than the {goal.max_failures} that are allowed. Its newest failure: {failures[0]}"
            )
    return None


async def look_for(rest: FlinkRest, job: str, goal: Goal) -> str | None:
    """As :func:`look`, for a job's name or id; None also if there is no such job yet.

    For a name, a job that has ended may be followed by another one.
    """
    found = _choose(rest, job, await list_jobs(rest))
    if found is None or (found.is_over and found.state not in goal.states and found.id != job):
        return None
    return await look(rest, found.id, goal)


async def wait_for(rest: FlinkRest, job_id: str, goal: Goal, *, timeout: float, poll_interval: float) -> str:
    """Waits for the goal and returns the state in which it was reached."""
    end = time.monotonic() + timeout
    while (reached := await look(rest, job_id, goal)) is None:
        if time.monotonic() > end:
            raise FlinkTimeoutError(f"{await progress_of(rest, job_id, goal)} after {timeout:g} s")
        await asyncio.sleep(poll_interval)
    return reached


async def progress_of(rest: FlinkRest, job_id: str, goal: Goal) -> str:
    """Describes a job that hasn't reached its goal: its state and its newest failure."""
    state = await job_state(rest, job_id)
    failures = [] if state is None else await _failures(rest, job_id, 1)
    newest = f"; its newest failure: {failures[0]}" if failures else ""
    return f"job {job_id} is {state}, not {_shown(goal)}{newest}"


async def cached_for(rest: FlinkRest) -> float:
    """The seconds for which Flink may answer from its cache."""
    return float((await rest.get("/config"))["refresh-interval"]) / 1000 + _CACHE_MARGIN_SECONDS


async def _jar_id(rest: FlinkRest, jar: str) -> str:
    files = (await rest.get("/jars"))["files"]
    named = [file for file in files if jar in (file["id"], file["name"])]
    if not named:
        known = ", ".join(sorted(file["name"] for file in files)) or "none"
        raise FlinkError(f"no jar '{jar}' was uploaded to {rest.endpoint.url}; Flink has these jars: {known}")
    return str(max(named, key=lambda file: file["uploaded"])["id"])


def _shown(goal: Goal) -> str:
    return " or ".join(sorted(goal.states)) + (" with a completed checkpoint" if goal.checkpoint else "")
