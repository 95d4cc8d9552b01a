"""The request for a rollback, from the form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import StrictBool

from stateferry.airflow.requests.request_parts import BACK, JOB, Approval, Connection, OldJob, Text, checked
from stateferry.runs.plan.option_marks import Kind, Option


class RollbackRequest(Approval, OldJob):
    """The request for a rollback."""

    job: Annotated[Text, Option(Kind.TEXT, "Job", "the name under which the migration was run", section=JOB)] = None
    way_back: Annotated[
        Literal["old savepoint", "convert"],
        Option(
            Kind.CHOICE,
            "Way back",
            "`old savepoint`: the old job starts from the savepoint that the run read, with which it was stopped; what "
            "the new job has stored since is lost, and its input is read again. `convert`: the new job is stopped with "
            "a savepoint, from which the job's DAG, or `state_migration`, makes the old job's state; nothing is lost, "
            "and everything is converted while no job runs",
            section=JOB,
            row=10,
        ),
    ] = "old savepoint"
    savepoint_directory: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Savepoint directory",
            "for `convert`: the directory into which Flink writes the savepoint of the new job; Spark must read it",
            section=JOB,
            row=20,
        ),
    ] = None
    restart_job: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Start the old job",
            "start the old job from the savepoint that the run read, with which it was stopped",
            row=-30,
            section=BACK,
        ),
    ] = False
    runs_on: Annotated[
        Literal["session", "kubernetes"],
        Option(
            Kind.CHOICE,
            "Jobs run on",
            "`session`: a session cluster starts the old job from its jar. `kubernetes`: the Flink Kubernetes Operator "
            "ends the new job and starts the old one, by the spec as it was, which the run has kept",
            row=-28,
            section=BACK,
        ),
    ] = "session"
    kubernetes_conn_id: Annotated[
        Connection,
        Option(Kind.TEXT, "Kubernetes connection", "Airflow's connection of type Kubernetes", row=-26, section=BACK),
    ] = "kubernetes_default"
    patch: Annotated[
        Literal["apply", "show"],
        Option(
            Kind.CHOICE,
            "Patches",
            "for `kubernetes`: `apply`: the run changes the resource. `show`: it shows the patch, and waits until a "
            "person or a pull request has applied it",
            row=-24,
            section=BACK,
        ),
    ] = "apply"
    flink_job: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Job to cancel first",
            "name or id of the new job, also if it has ended: the old job doesn't start beside it. With `convert` it "
            "is stopped with a savepoint",
            row=-20,
            section=BACK,
            if_empty="no job is cancelled",
        ),
    ] = None
    flink_conn_id: Annotated[
        Connection,
        Option(
            Kind.TEXT,
            "Flink connection",
            "the Airflow connection of the Flink that starts the old job",
            row=-10,
            section=BACK,
        ),
    ] = "flink_default"
    new_flink_conn_id: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Flink connection of the new job",
            "the Airflow connection of the Flink where the new job runs, if it is another one",
            row=-5,
            section=BACK,
            if_empty="the Flink that starts the old job",
        ),
    ] = None

    def problems(self) -> Iterator[str]:
        yield from self.approval_problems()
        if self.job is None:
            yield "job: missing: name the job whose publication is rolled back"
        if self.runs_on == "kubernetes":
            yield from self._operator_problems()
        elif self.restart_job:
            if self.old_jar is None:
                yield "old_jar: missing, and restart_job needs it: name the jar that was uploaded to Flink"
            if self.flink_job is None and not self.converts:
                yield "flink_job: missing, and restart_job needs it: name the new job, also if it has ended"
        yield from self._way_back_problems()
        for name in ("old_jar",) if self.converts else ("flink_job", "old_jar"):
            if not self.restart_job and self.has(name):
                yield f"{name}: given, but restart_job is off: turn it on, or leave {name} empty"

    @property
    def new_job_conn_id(self) -> str:
        """The connection of the Flink where the new job runs."""
        return self.new_flink_conn_id or self.flink_conn_id

    @property
    def converts(self) -> bool:
        """Whether the new job's state is converted back."""
        return self.way_back == "convert"

    @property
    def by_operator(self) -> bool:
        """Whether the Flink Kubernetes Operator starts the old job."""
        return self.runs_on == "kubernetes" and self.restart_job

    def _operator_problems(self) -> Iterator[str]:
        if self.converts:
            yield (
                "way_back: 'convert', but runs_on is 'kubernetes': choose 'old savepoint', or trigger state_migration "
                "with reverse on, and the old job's spec in new_spec"
            )
        if not self.restart_job:
            yield "runs_on: 'kubernetes', but restart_job is off: turn it on, or choose 'session'"
        for name in ("old_jar", "old_entry_class", "flink_job"):
            if self.has(name):
                yield f"{name}: given, but runs_on is 'kubernetes', where the spec as it was says all: leave it empty"

    def _way_back_problems(self) -> Iterator[str]:
        for name in ("flink_job", "savepoint_directory") if self.converts else ():
            if not self.has(name):
                yield f"{name}: missing, and way_back 'convert' needs it: the new job is stopped with a savepoint"
        if not self.converts and self.has("savepoint_directory"):
            yield "savepoint_directory: given, but way_back is 'old savepoint': choose 'convert', or leave it empty"


def rollback_request(values: Mapping[str, object], origin: str) -> RollbackRequest:
    """The request with these values; raises a `PlanError` with a line for each problem, which names `origin`."""
    return checked(RollbackRequest, values, origin)
