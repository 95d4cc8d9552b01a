"""What Flink is to do for a request, checked before it has to: start its programs, stop the job as it says."""

from __future__ import annotations

from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.airflow.flink.errors import FlinkError, FlinkUnreachableError
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import JarRun
from stateferry.airflow.flink.stopping import why_not_with_checkpoint
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.requests.request_parts import Program
from stateferry.runs.plan.upgrade_options import SAME_FLINK

OLD_PROGRAM = "old_jar, old_entry_class and old_program_args"

_NO_JOB = ""


def jar_run_of(job_id: str, program: Program, savepoint: str | None) -> JarRun:
    """The start of the program from the savepoint, as a job with this id."""
    return JarRun(job_id, program.jar, program.entry_class, tuple(program.arguments), program.parallelism, savepoint)


def check_programs(request: MigrationRequest) -> None:
    """Fails for good if Flink can't start the new job's program, or that of the old job, should it come back.

    It fails as well if the new job's Flink isn't the one for which the run makes the savepoint.
    """
    if request.start_job:
        check_new_flink(request)
        check_program("new", "jar, entry_class and program_args", request.new_program(), request.new_job_conn_id)
    if request.has("old_jar"):
        check_program("old", OLD_PROGRAM, request.old_program(), request.flink_conn_id)


def check_stop(request: MigrationRequest) -> None:
    """Fails for good if the job can't be stopped as the request says, before anything is asked of it."""
    if not (request.stops_job and request.stops_with_checkpoint):
        return
    hook = FlinkHook(request.flink_conn_id)
    job_id = hook.job_id(str(request.flink_job))
    if why := hook.run(lambda rest: why_not_with_checkpoint(rest, job_id)):
        raise refusal(f"stop_with: {why}")


def check_new_flink(request: MigrationRequest) -> None:
    """Of another Flink only the run knows which states it would read wrongly, if the plan names that Flink."""
    to = str(request.given_options().get("to", SAME_FLINK))
    if to == SAME_FLINK and request.new_flink_conn_id is None:
        return
    new = FlinkHook(request.new_job_conn_id).flink_version()
    if to != SAME_FLINK:
        if _line(to.removeprefix("flink-")) != _line(new):
            raise refusal(f"to: {to}, but connection {request.new_job_conn_id} is of Flink {new}")
        return
    if not request.stops_job:
        return
    old = FlinkHook(request.flink_conn_id).flink_version()
    if _line(old) != _line(new):
        raise refusal(
            f"new_flink_conn_id: {request.new_flink_conn_id} is of Flink {new}, and the old job runs on Flink {old}: "
            f"say in to for which Flink the new savepoint is ({'flink-2' if _line(new) == '2' else 'flink-1.20'}), so "
            "that states which it would read wrongly are found before the job is stopped"
        )


def _line(version: str) -> str:
    return version.partition(".")[0]


def check_program(which: str, names: str, program: Program, connection: str) -> None:
    """Fails for good if Flink can't start the program that these fields of the form name."""
    try:
        FlinkHook(connection).check_program(jar_run_of(_NO_JOB, program, None))
    except FlinkUnreachableError:
        raise
    except FlinkError as error:
        raise refusal(
            f"the {which} job can't be started as {names} say, with connection {connection}. Nothing has been stopped. "
            f"{error}"
        ) from None
