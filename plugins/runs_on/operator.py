"""Jobs of the Flink Kubernetes Operator, in application mode: a run changes the spec of a FlinkDeployment.

The stop is `state: suspended` with `upgradeMode: savepoint`, into a savepoint folder that no other request has: so a
savepoint from before the request never counts. That with a checkpoint is in `operator_checkpoints`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from stateferry.airflow.dag_runs.dag_run import fail_if_refused, rehearsal_of, stop_asked
from stateferry.airflow.dag_runs.markup import cell
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.errors import FlinkError, FlinkTimeoutError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import TERMINAL
from stateferry.airflow.flink.savepoints import CHECKPOINT, SavepointOrder, TakenSavepoint, stopped_by_others
from stateferry.airflow.flink.stopping import found_in_the_end
from stateferry.airflow.flink.task import HOUR, UP_WITH_CHECKPOINT, FlinkTask, job_started
from stateferry.airflow.kubernetes.errors import OperatorError
from stateferry.airflow.kubernetes.resource import NO_PATH, FlinkResource, Resource
from stateferry.airflow.kubernetes.spec import Spec, changes, difference, merged
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.runs_on.operator_checkpoints import (
    check_nobody_goes_on,
    checkpoint_before_stop,
    where_cancelled,
)
from stateferry.airflow.runs_on.operator_checks import check_connection, check_runs, check_version, for_good_there
from stateferry.airflow.runs_on.operator_spec import (
    SpecBefore,
    is_suspended_by,
    never_came_up,
    nonce_of,
    plain,
    runs_from,
    started_spec,
    suspended,
    suspension,
)
from stateferry.airflow.runs_on.operator_start import OperatorStart
from stateferry.airflow.runs_on.port import MOST_FAILURES, POLL_SECONDS
from stateferry.airflow.runs_on.programs import check_stop
from stateferry.basics.durations import now_ms
from stateferry.runs.control.outage_limit import check_may_start
from stateferry.runs.record.facts import NewJob
from stateferry.runs.record.runs import Run

# The operator may have removed the job's cluster; then the next try of the task sees how it went on.
_FLINK_SECONDS = 30.0
_LOOK_SECONDS = 5.0
# The job's cluster may be gone with the job, which stands still meanwhile.
_GONE_SECONDS = 2.0
_ENDS_WITHIN = 10.0
_RESTORED_WITHIN = 30.0

_log = logging.getLogger(__name__)


def _may_start(run: Run) -> None:
    with fail_if_refused():
        check_may_start(run)


class Operator(OperatorStart):
    """The FlinkDeployment of the job, and Flink's REST API of its cluster."""

    def __init__(self, flink: FlinkTask, resource: Resource, request: MigrationRequest) -> None:
        super().__init__(flink, resource, request.patch, lambda: rehearsal_of(flink.context))
        self._request = request

    def check(self) -> None:
        with for_good_there():
            now = self._resource.read()
            check_runs(self._resource, now)
            check_connection(self._resource, now, self._request, self._flink.hook)
            check_stop(self._request)
            if self._request.start_job:
                check_version(now.spec, self._request)
                self._resource.check_patch(difference(now.spec, self._new(now.spec, "file:///savepoint", 1)))

    def preview(self) -> Iterator[str]:
        if not self._request.start_job:
            return
        with for_good_there():
            before = self._resource.read().spec
        yield f"**The spec of {cell(str(self._resource))} changes for the new job**"
        yield ""
        yield "| field | now | then |"
        yield "|---|---|---|"
        for where, old, new in changes(before, self._new(before, "(the new savepoint)", 1)):
            if where == "job.savepointRedeployNonce":
                new = "(another number)"
            yield f"| {cell(where)} | {cell(old)} | {cell(new)} |"
        yield ""
        shown = ", after a person or a pull request has applied each patch" if self._request.patch == "show" else ""
        yield f"The way back is the spec as it is now, and what each start needs{shown}."

    def is_stopping(self, order: SavepointOrder) -> bool:
        return is_suspended_by(self._resource.read(), order)

    def stop(self, order: SavepointOrder) -> TakenSavepoint:
        with for_good_there():
            now = self._resource.read()
            if not is_suspended_by(now, order):
                now = self.keep_spec()
                if order.format == CHECKPOINT:
                    self._keep_checkpoint(order)
            patch = suspension(self._before().spec, order)
            seen = self._apply(now, patch, "to stop the job")
            if order.format == CHECKPOINT:
                self._keep_job(seen)
            location = self._wait_until_stopped(order, patch, timeout=6 * HOUR)
        return TakenSavepoint(self._before().job_id, location)

    def stopped_in_the_end(self, order: SavepointOrder) -> TakenSavepoint | None:
        with for_good_there():
            if not is_suspended_by(self._resource.read(), order):
                kept = rehearsal_of(self._flink.context).facts(SpecBefore)
                if kept is not None and kept.stop_error:
                    # An earlier try may not have got Flink's answer.
                    self._check_goes_on(order, kept.stop_error)
                return None
            try:
                # Which format of a savepoint was ordered, only the task that stopped the job knows.
                location = self._wait_until_stopped(order, {"job": suspended(order)}, timeout=HOUR)
            except OperatorError as error:
                found = self._put_back(order, str(error))
                if found is None:
                    return None
                location = found
        return TakenSavepoint(self._before().job_id, location)

    def _wait_until_stopped(self, order: SavepointOrder, patch: Spec, *, timeout: float) -> str:
        # Of a savepoint the operator tells, of a cancelled job Flink does so sooner.
        look_every = POLL_SECONDS if order.format == CHECKPOINT else 30.0
        return self._resource.wait_for(
            lambda one: self._stopped_with(one, order), patch=patch, timeout=timeout, look_every=look_every
        )

    def _put_back(self, order: SavepointOrder, error: str) -> str | None:
        """Makes the spec as it was, so that the old job runs on.

        Returns the savepoint with which the operator has stopped the job after all, before a patch that is shown was
        applied.
        """
        _log.warning("%s. The spec becomes as it was, so that the operator has the old job run on", error)
        before, found = self._before(), list[str]()
        rehearsal_of(self._flink.context).keep(replace(before, stop_error=error))

        def stopped(one: FlinkResource) -> bool:
            with suppress(FlinkError):
                if (location := self._stopped_with(one, order)) is not None:
                    found.append(location)
            return bool(found)

        now = self._resource.read()
        seen = self._apply(now, difference(now.spec, before.spec), "to let the old job run on", stopped)
        if found:
            _log.warning("withdraw the patch that lets the old job run on: it is stopped with %s after all", found[0])
            return found[0]
        if seen.lifecycle != "SUSPENDED":
            self._check_goes_on(order, error)
        return None

    def _check_goes_on(self, order: SavepointOrder, error: str) -> None:
        """Refuses to say that the old job runs on if Flink has stopped it, and the operator doesn't start it again.

        The operator starts it if its own next try of the stop has succeeded, of which it says so later than Flink.
        """
        old = self._before().job_id

        def restored(one: FlinkResource) -> bool | None:
            return one.lifecycle == "SUSPENDED" or one.job_status.get("jobId") != old or None

        if restored(self._resource.read()) or (found := self._stopped_in_flink(order)) is None:
            return
        try:
            self._resource.wait_for(restored, patch={}, timeout=_RESTORED_WITHIN)
        except FlinkTimeoutError:
            raise refusal(
                f"Flink has stopped the job with {found.location}, although the operator's error was: {error}. Look "
                "whether the operator has started the job again; if no job runs, start the old one from that savepoint"
            ) from None

    @property
    def new_job_id(self) -> str | None:
        return None

    def has_started(self, savepoint: str) -> bool:
        return runs_from(self._resource.read().spec, savepoint)

    def start(self, run: Run, savepoint: str, *, timeout: float) -> dict[str, Any]:
        began = time.time()
        before = self._before()
        run.keep(before)

        def keep_job_id(job_id: str) -> None:
            self._flink.show(job_id)
            recorded = run.facts(NewJob)
            run.keep(NewJob(job_id) if recorded is None else replace(recorded, job_id=job_id))

        with for_good_there():
            now = self._resource.read()
            if not runs_from(now.spec, savepoint) and not self._waits(now):
                raise refusal(f"{self._resource} isn't as this run has left it: somebody else has started a job there")
            self._check_nobody_goes_on(now)
            target = self._new(before.spec, savepoint, nonce_of(now.spec) + (not runs_from(now.spec, savepoint)))
            kept = replace(before, started_from=savepoint, start_nonce=nonce_of(target))
            rehearsal_of(self._flink.context).keep(kept)
            job_id, left = self._start(
                now, target, savepoint, lambda: self._may_take(timeout), keep_job_id, lambda _: _may_start(run)
            )
            goal = replace(UP_WITH_CHECKPOINT, max_failures=MOST_FAILURES)
            state = self._flink.hook.wait_for(job_id, goal, timeout=left, poll_interval=POLL_SECONDS)
            self._let_go(before.spec)
        return job_started(job_id, state, began)

    def _may_take(self, timeout: float) -> float:
        """The seconds that a new job has from now on: none after the limit of the outage."""
        asked = stop_asked(self._flink.context)
        if asked is None or asked.limit is None:
            return timeout
        return max(min(timeout, (asked.at + asked.limit - now_ms()) / 1000), 0)

    def new_job(self, run: Run) -> str | None:
        recorded = run.facts_if_sound(NewJob)
        if recorded is None:
            return None
        if recorded.job_id is not None:
            return recorded.job_id
        now = self._resource.read()
        if not runs_from(now.spec, run.plan.target):
            return None
        job_id = str(now.job_status.get("jobId") or "")
        if never_came_up(now, self._before().job_id) and self._restored(job_id) is None:
            _log.info("%s: the new job has never run: %s", self._resource, now.in_words)
            return None
        return job_id or None

    def start_old(self, savepoint: str) -> dict[str, Any]:
        with for_good_there():
            now, before = self._resource.read(), self._before()
            # A spec may have the field, and an empty one is of no job that this run has started.
            own = {savepoint, before.started_from} - {""}
            if not self._waits(now) and now.job.get("initialSavepointPath") not in own:
                raise refusal(
                    f"somebody else has started a job of {self._resource} since this run stopped it, so from "
                    f"{savepoint} the old job would read again what that job has processed. Nothing has been changed"
                )
            try:
                self._check_nobody_goes_on(now)
            except FlinkError as error:
                _log.warning(
                    "look whether a job runs there, before the old job starts: Flink can't be asked: %s", error
                )
            if self._patch == "apply":
                # The operator starts a job again that the run has ended, until the way back's patch is there.
                self._check_unused(now)
            return self._go_back(now, savepoint, self._check_unused)

    def _shown(self, now: Spec) -> Spec:
        before = self._before()
        if self._patch != "show" or not before.started_from:
            return now
        return self._new(before.spec, before.started_from, before.start_nonce)

    def _check_unused(self, one: FlinkResource) -> None:
        """Refuses the way back if the new job, which may have come up meanwhile, has completed a checkpoint."""
        before, job_id = self._before(), one.job_status.get("jobId")
        if not runs_from(one.spec, before.started_from) or job_id in (None, before.job_id):
            return
        hook = FlinkHook(self._request.flink_conn_id, patience=_LOOK_SECONDS)
        try:
            used = hook.job_state(job_id) is not None and hook.has_checkpointed(job_id)
        except FlinkError as error:
            # A job that can't come up has no REST service either.
            if not never_came_up(one, before.job_id):
                _log.warning(
                    "look whether the new job %s has completed a checkpoint, which the old job would read again, "
                    "before the way back: Flink can't be asked: %s", job_id, error
                )  # fmt: skip
            return
        if used:
            so = "withdraw the patch of the way back" if self._patch == "show" else "the old job isn't started"
            raise refusal(
                f"{so}: the new job {job_id} has come up meanwhile, and has completed a checkpoint, so it has "
                "processed input that the old job would read again. Its publication may be rolled back already"
            )

    def keep_spec(self) -> FlinkResource:
        """Keeps what the way back needs, before anything is changed."""
        with for_good_there():
            now = self._resource.read()
            check_runs(self._resource, now)
        kept = SpecBefore(str(self._resource), now.spec, now.job_status.get("jobId"))
        rehearsal_of(self._flink.context).keep(kept)
        return now

    def _keep_checkpoint(self, order: SavepointOrder) -> None:
        """Keeps a checkpoint that the job takes now, so that little is processed again after the stop."""
        before = self._before()
        taken = self._flink.hook.run(
            lambda rest: checkpoint_before_stop(rest, order, str(before.job_id), timeout=6 * HOUR)
        )
        rehearsal_of(self._flink.context).keep(replace(before, checkpoint=taken))

    def _keep_job(self, seen: FlinkResource) -> None:
        """Keeps the id of the job that the operator stops, which was `seen` before the patch.

        Until then the operator may have started a failed job again as another one.
        """
        before, now = self._before(), self._resource.read()
        job_id = now.job_status.get("jobId") or seen.job_status.get("jobId") or before.job_id
        if job_id != before.job_id:
            _log.warning("the operator has started job %s again, as job %s", before.job_id, job_id)
            rehearsal_of(self._flink.context).keep(replace(before, job_id=job_id, checkpoint=0))

    def _check_nobody_goes_on(self, now: FlinkResource) -> None:
        # A savepoint says itself that its job has ended with it.
        if self._request.stops_with_checkpoint and self._waits(now):
            check_nobody_goes_on(self._resource, now, self._flink.hook, str(self._before().job_id))

    def _waits(self, now: FlinkResource) -> bool:
        """Whether the resource is as the stop left it."""
        return now.job.get("state") == "suspended"

    def _stopped_with(self, one: FlinkResource, order: SavepointOrder) -> str | None:
        """The savepoint with which the operator has stopped the job; raises an error if it couldn't, or has another."""
        if order.format == CHECKPOINT:
            before = self._before()
            return where_cancelled(self._resource, one, self._flink.hook, str(before.job_id), before.checkpoint)
        job = one.reconciled.get("job") or {}
        if job.get("state") != "suspended" or one.lifecycle != "SUSPENDED":
            if one.error is None:
                return None
            # The operator tries again, and Flink may go on stopping the job for longer than the operator waits.
            if (found := self._stopped_in_flink(order)) is None:
                raise OperatorError(f"the operator could not stop {self._resource}, which is {one.in_words}")
            return found.location
        path = str(one.job_status.get("upgradeSavepointPath") or "")
        mode = job.get("upgradeMode")
        if mode != "savepoint" or path in NO_PATH or not plain(path).startswith(f"{plain(order.directory)}/"):
            raise OperatorError(
                f"{self._resource} is suspended, but not with the savepoint that was asked for: upgradeMode is {mode}, "
                f"and upgradeSavepointPath is {path or 'empty'}, not in {order.directory}"
            )
        self._check_ended(path)
        return path

    def _check_ended(self, savepoint: str) -> None:
        """Refuses a stop after whose savepoint Flink lets the job run on, because a task has failed while it stopped.

        The operator takes that for a success.
        """
        job_id, end = str(self._before().job_id), time.monotonic() + _ENDS_WITHIN
        hook = FlinkHook(self._request.flink_conn_id, patience=_GONE_SECONDS)
        while True:
            try:
                state = hook.job_state(job_id)
            except FlinkError:
                return
            if state in (None, "FINISHED"):
                return
            if state in TERMINAL or time.monotonic() > end:
                raise refusal(
                    f"the operator says that {self._resource} is suspended with {savepoint}, but Flink says that job "
                    f"{job_id} is {state}: it may have gone on after that savepoint, from which another job would "
                    "process the same once more. If it runs, stop it in Flink with another savepoint. Start the old "
                    "job from where it has ended, by initialSavepointPath and a new savepointRedeployNonce"
                )
            time.sleep(POLL_SECONDS)

    def _stopped_in_flink(self, order: SavepointOrder) -> TakenSavepoint | None:
        """The savepoint with which Flink has stopped the job, waited for; None if the job runs on."""
        order = replace(order, job=str(self._before().job_id))
        hook = FlinkHook(self._request.flink_conn_id, patience=_FLINK_SECONDS)
        if order.format == CHECKPOINT:
            return hook.run(lambda rest: found_in_the_end(rest, order, timeout=HOUR, poll_interval=POLL_SECONDS))
        return hook.run(lambda rest: stopped_by_others(rest, order, timeout=HOUR))

    def _new(self, before: Spec, savepoint: str, nonce: int) -> dict[str, Any]:
        return started_spec(merged(before, self._request.new_spec_patch()), savepoint, nonce)
