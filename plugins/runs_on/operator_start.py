"""Has the Flink Kubernetes Operator start a job from a savepoint, or the old one again by its spec as it was.

Each start sets `initialSavepointPath` and a new `savepointRedeployNonce` in one patch: without the nonce the operator
restores the job from its own last state, which may be that of the other job. A job that runs meanwhile the operator
ends by the same patch. What the job was restored from is asked of Flink.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from stateferry.airflow.dag_runs.dag_run import fail_if_refused
from stateferry.airflow.dag_runs.notices import tell
from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.errors import FlinkError, FlinkTimeoutError
from stateferry.airflow.flink.jobs import job_state
from stateferry.airflow.flink.rest import FlinkRest
from stateferry.airflow.flink.task import HOUR, UP, FlinkTask, job_started
from stateferry.airflow.kubernetes.errors import KubernetesError, OperatorError
from stateferry.airflow.kubernetes.resource import FlinkResource, Resource
from stateferry.airflow.kubernetes.spec import (
    Spec,
    changes,
    difference,
    is_applied,
    merged,
    merged_patches,
    option,
    with_options,
)
from stateferry.airflow.runs_on.operator_checks import for_good_there
from stateferry.airflow.runs_on.operator_spec import (
    MEANWHILE_OFF,
    RUNS,
    SpecBefore,
    nonce_of,
    plain,
    runs_from,
    started_spec,
)
from stateferry.airflow.runs_on.port import POLL_SECONDS
from stateferry.airflow.runs_on.session import wait_for_old_job
from stateferry.runs.record.runs import Run

_ANSWER_SECONDS = 5.0
Look = Callable[[FlinkResource], object]
"""Looks at the resource while a patch that is shown isn't applied; raises an error if it must not be any more.

If it returns something, the patch isn't waited for any longer.
"""

_log = logging.getLogger(__name__)


def _nothing(_: FlinkResource) -> None: ...


class OperatorStart:
    """Starts of jobs of one resource; `kept` has the spec as it was. If `patch` is *show*, others apply the patches."""

    def __init__(self, flink: FlinkTask, resource: Resource, patch: str, kept: Callable[[], Run]) -> None:
        self._flink, self._resource, self._patch, self._kept = flink, resource, patch, kept

    def changes_back(self, savepoint: str) -> list[str]:
        """What `go_back` changes in the spec as it is now, a line for each field.

        Fails for good if Flink's connection leads to another cluster, where nobody would see the old job start.
        """
        with for_good_there():
            now = self._resource.read()
        job_id = now.job_status.get("jobId")
        if now.job_status.get("state") == "RUNNING" and self._flink.hook.job_state(str(job_id)) is None:
            raise refusal(f"{self._resource} runs job {job_id}, which Flink doesn't know at flink_conn_id")
        target = started_spec(self._before().spec, savepoint, nonce_of(now.spec) + 1)
        there = changes(now.spec, target)
        return [f"{self._resource}: {where} becomes {new}, and is {old}" for where, old, new in there]

    def go_back(self, savepoint: str) -> dict[str, Any]:
        """Starts the old job by the spec as it was, whatever runs now, and waits for its first checkpoint, if any."""
        with for_good_there():
            return self._go_back(self._resource.read(), savepoint)

    def _go_back(self, now: FlinkResource, savepoint: str, look: Look = _nothing) -> dict[str, Any]:
        began, before = time.time(), self._before().spec
        target = started_spec(before, savepoint, max(nonce_of(now.spec), nonce_of(self._shown(now.spec))) + 1)
        job_id, _ = self._start(now, target, savepoint, lambda: HOUR, self._flink.show, look)
        state = self._flink.hook.wait_for(job_id, UP, timeout=HOUR, poll_interval=POLL_SECONDS)
        wait_for_old_job(self._flink, job_id)
        self._let_go(before)
        return job_started(job_id, state, began)

    def _shown(self, now: Spec) -> Spec:
        """The spec as it becomes if somebody applies a patch that was shown before."""
        return now

    def _start(
        self,
        now: FlinkResource,
        target: Spec,
        savepoint: str,
        may_take: Callable[[], float],
        keep_job_id: Callable[[str], None],
        look: Look,
    ) -> tuple[str, float]:
        """Has the operator start a job from the savepoint; returns when Flink has restored it from there.

        It may take `may_take` seconds from when the patch is applied. Returns the job's id, and the seconds left.
        """
        if runs_from(now.spec, savepoint):
            # An earlier try has asked for it; then the nonce isn't new.
            target = merged(target, {"job": {"savepointRedeployNonce": nonce_of(now.spec)}})
        patch = merged_patches(difference(self._shown(now.spec), target), difference(now.spec, target))
        # While the patch is shown, another job may come up, and fail.
        seen = self._apply(now, patch, f"to start the job from {savepoint}", look)
        ended = {self._before().job_id}
        if not runs_from(seen.spec, savepoint):
            ended.add(seen.job_status.get("jobId"))
        news = _StartNews(self._resource, seen, target["job"]["savepointRedeployNonce"], ended)
        timeout = may_take()
        end = time.monotonic() + timeout
        job_id = self._resource.wait_for(news.job_id, patch=patch, timeout=timeout)
        while (restored := self._restored(job_id)) is None:
            now = self._resource.read()
            news.job_id(now)
            if time.monotonic() > end:
                raise FlinkTimeoutError(f"{self._resource} is {now.in_words}: Flink has not restored job {job_id} yet")
            time.sleep(POLL_SECONDS)
        # A job that never came up is none that could have done something.
        keep_job_id(job_id)
        if plain(restored) != plain(savepoint):
            raise OperatorError(f"job {job_id} of {self._resource} was restored from {restored}, not from {savepoint}")
        _log.info("job %s was restored from %s", job_id, restored)
        return job_id, max(end - time.monotonic(), 0)

    def _restored(self, job_id: str) -> str | None:
        """From where Flink says that it has restored the job; None as long as it doesn't answer or doesn't say."""
        endpoint = replace(self._flink.hook.get_conn(), patience=0.0, answer=_ANSWER_SECONDS)

        async def ask(_: FlinkRest) -> str | None:
            async with FlinkRest(endpoint) as rest:
                if await job_state(rest, job_id) is None:
                    return None
                restored = (await rest.get(f"/jobs/{job_id}/checkpoints"))["latest"]["restored"]
                return None if restored is None else str(restored["external_path"])

        try:
            return self._flink.hook.run(ask)
        except FlinkError:
            return None

    def _apply(self, now: FlinkResource, patch: Spec, why: str, look: Look = _nothing) -> FlinkResource:
        """Applies the patch; or shows it, for somebody else to apply, who is waited for as long as `look` allows.

        Returns the resource as it was last seen before.
        """
        if is_applied(now.spec, patch):
            return now
        if self._patch == "apply":
            _log.info("%s: %s: %s", self._resource, why, json.dumps(patch, ensure_ascii=False))
            self._resource.apply(now, patch)
            return now
        self._show(patch, why)

        def applied(one: FlinkResource) -> bool | None:
            nonlocal now
            if look(one) or is_applied(one.spec, patch):
                return True
            now = one
            return None

        self._resource.wait_for(applied, patch={}, timeout=24 * HOUR)
        return now

    def _show(self, patch: Spec, why: str) -> None:
        shown = json.dumps({"spec": patch}, ensure_ascii=False)
        text = f"apply this merge patch to {self._resource}, {why}; no other that this run has shown: {shown}"
        _log.warning("%s", text)
        self._flink.context["ti"].xcom_push(key="patch", value={"spec": patch})
        tell(self._flink.context, "waiting", self._kept().plan.job, text)

    def _let_go(self, before: Spec) -> None:
        """Sets what the operator must not do meanwhile as it was; these options alone restart no job."""
        now = self._resource.read()
        patch = with_options({name: option(before, name) for name in MEANWHILE_OFF}, now.spec)
        if self._patch == "show":
            if not is_applied(now.spec, patch):
                self._show(patch, "to let the operator roll back and restart failed jobs as before")
            return
        try:
            self._resource.apply(now, patch)
        except KubernetesError as error:
            _log.warning("the operator's own rollback and restart stay off: %s", error)

    def _before(self) -> SpecBefore:
        with fail_if_refused():
            kept = self._kept().facts(SpecBefore)
        if kept is None:
            raise refusal(f"this run has not stopped {self._resource}, so it doesn't know its spec as it was")
        return kept


class _StartNews:
    """Of a start with this nonce, asked for when the resource was as `before`; `ended` are jobs that are none of it.

    The operator looks at the job that was there before it reads the patch. So a failure of that one, which Flink has
    told us of already, comes after the patch, and isn't one of the start.
    """

    def __init__(self, resource: Resource, before: FlinkResource, nonce: int, ended: Collection[str | None]) -> None:
        self._resource, self._nonce, self._ended = resource, nonce, ended
        self._job_before, self._has_failed = before.job_status.get("jobId"), before.has_failed
        self._old_error = before.error

    def job_id(self, one: FlinkResource) -> str | None:
        """The id of the job that the operator has started for the patch; raises its error if it can't."""
        job = one.reconciled.get("job") or {}
        is_carried_out = job.get("savepointRedeployNonce") == self._nonce
        if is_carried_out:
            fails = one.error is not None or one.lifecycle == "FAILED"
        else:
            fails = one.error not in (None, self._old_error) and not self._is_of_job_before(one)
        if fails:
            raise OperatorError(f"the operator could not start {self._resource}, which is {one.in_words}")
        job_id = one.job_status.get("jobId")
        return (
            str(job_id) if is_carried_out and one.lifecycle in RUNS and job_id and job_id not in self._ended else None
        )

    def _is_of_job_before(self, one: FlinkResource) -> bool:
        """Whether the error came with the failure of the job before: it has one, and what comes later is another."""
        if self._has_failed or not one.has_failed or one.job_status.get("jobId") != self._job_before:
            return False
        self._has_failed, self._old_error = True, one.error
        return True
