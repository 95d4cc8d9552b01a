"""The request for a rollback, from the form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import StrictBool, StrictStr

from state_migration.request_parts import BACK, JOB, Approval, OldJob, Text, checked
from stateferry.runs.options import Kind, Option


class RollbackRequest(Approval, OldJob):
    """The request for a rollback."""

    job: Annotated[Text, Option(Kind.TEXT, "Job", "the name under which the migration was run", section=JOB)] = None
    restart_job: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Start the old job",
            "start the old job from the savepoint that is valid after the rollback",
            row=-30,
            section=BACK,
        ),
    ] = False
    flink_job: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Job to cancel first",
            "name or id of the new job",
            row=-20,
            section=BACK,
            if_empty="no job is cancelled",
        ),
    ] = None
    flink_conn_id: Annotated[
        StrictStr,
        Option(Kind.TEXT, "Flink connection", "Airflow's connection of type Flink", row=-10, section=BACK),
    ] = "flink_default"

    def problems(self) -> Iterator[str]:
        if self.job is None:
            yield "job: missing: name the job whose publication is rolled back"
        if self.restart_job and self.old_jar is None:
            yield "old_jar: missing, and restart_job needs it: name the jar that was uploaded to Flink"
        for name in ("flink_job", "old_jar"):
            if not self.restart_job and self.has(name):
                yield f"{name}: given, but restart_job is off: turn it on, or leave {name} empty"


def rollback_request(values: Mapping[str, object], origin: str) -> RollbackRequest:
    """The request with these values; raises a `PlanError` with a line for each problem, which names `origin`."""
    return checked(RollbackRequest, values, origin)
