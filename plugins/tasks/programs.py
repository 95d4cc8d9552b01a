"""The programs of a request: how they start as jobs, and whether Flink can start them, before it has to."""

from __future__ import annotations

from stateferry.airflow.dag_runs.foreseen import refusal
from stateferry.airflow.flink.errors import FlinkError, FlinkUnreachableError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import JarRun
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.requests.request_parts import Program

_NO_JOB = ""


def jar_run_of(job_id: str, program: Program, savepoint: str | None) -> JarRun:
    """The start of the program from the savepoint, as a job with this id."""
    return JarRun(job_id, program.jar, program.entry_class, tuple(program.arguments), program.parallelism, savepoint)


def check_programs(request: MigrationRequest) -> None:
    """Fails for good if Flink can't start the new job's program, or that of the old job, should it come back."""
    if request.start_job:
        _check("new", "jar, entry_class and program_args", request.new_program(), request.new_job_conn_id)
    if request.has("old_jar"):
        names = "old_jar, old_entry_class and old_program_args"
        _check("old", names, request.old_program(), request.flink_conn_id)


def _check(which: str, names: str, program: Program, connection: str) -> None:
    try:
        FlinkHook(connection).check_program(jar_run_of(_NO_JOB, program, None))
    except FlinkUnreachableError:
        raise
    except FlinkError as error:
        raise refusal(
            f"the {which} job can't be started as {names} say, with connection {connection}. Nothing has been stopped. "
            f"{error}"
        ) from None
