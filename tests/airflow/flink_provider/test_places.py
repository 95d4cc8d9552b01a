"""Each place where jobs live, with real Flink: a job is stopped, started from a savepoint, and brought back.

Kubernetes and its operator are stand-ins; where the operator would start a cluster for the job, the job starts on one
that is there.
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import JarRun
from stateferry.airflow.flink.savepoints import SavepointOrder, stopped_by_others, take
from stateferry.airflow.flink.task import FlinkTask, task_key
from stateferry.airflow.kubernetes.api import ApiServer
from stateferry.airflow.requests.planning import Occasion, plan_for
from stateferry.airflow.runs_on import places
from stateferry.runs.control.outage_limit import record_start
from stateferry.runs.record.facts import NewJob
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from tests.airflow.flink_provider.conftest import end
from tests.airflow.flink_provider.tries import local
from tests.airflow.kubernetes.conftest import asked, spec_of
from tests.airflow.kubernetes.stand_in import NAME, Body, Kubernetes, StandInOperator
from tests.airflow.state_migration.conftest import home as home
from tests.airflow.state_migration.conftest import occasion as occasion
from tests.airflow.state_migration.test_decide import context, decided, rehearsed
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import LEGACY_JOB, NEW_JOB, RemoteJob
from tests.support.operator_crds import schema

pytestmark = pytest.mark.flink
# The environment of the steps, which this one isn't.
_STATEFERRY = str(Path(__file__).parents[3] / ".venv" / "bin" / "stateferry")


def operator_of(kind: str, job_id: str, jar: str, sink: Path) -> Kubernetes:
    """A resource whose operator has the real cluster do what the spec says."""
    spec = spec_of()
    if kind == "flinksessionjob":
        spec = {"deploymentName": "cluster", **{name: spec[name] for name in ("flinkConfiguration", "job")}}
    spec["job"] |= {"entryClass": LEGACY_JOB, "args": ["--sink", str(sink)]}
    body = {"metadata": {"name": NAME, "namespace": "team"}, "spec": spec}
    kubernetes = Kubernetes(body, schema("1.10.0", f"{kind}s"))
    jobs = [job_id]

    def stop(folder: str, kind: str) -> str:
        order = SavepointOrder(("of the operator",), jobs[-1], folder, stop=True, format=kind)
        return FlinkHook().run(lambda rest: take(rest, order, timeout=60, poll_interval=0.1)).location

    def start(wanted: Body) -> str:
        job: Any = wanted["job"]
        FlinkHook().cancel(jobs[-1], timeout=60, poll_interval=0.1)
        jobs.append(f"{int(jobs[-1], 16) ^ len(jobs):032x}")
        FlinkHook().run_jar(JarRun(jobs[-1], jar, job["entryClass"], job["args"], 2, job["initialSavepointPath"]))
        return jobs[-1]

    StandInOperator(kubernetes, stop, start, job_id)
    return kubernetes


@pytest.mark.parametrize("where", ["session", "flinkdeployment", "flinksessionjob"])
def test_a_real_job_is_stopped_started_and_brought_back(
    where: str, cluster: FlinkCluster, jar: str, sink: Path, connection: None, tmp_path: Path, home: Path,
    occasion: Occasion, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    first = RemoteJob.start(cluster, jar, LEGACY_JOB, "--sink", sink)
    first.wait_for_checkpoints(1)
    name = str(cluster.get(f"/jobs/{first.id}")["name"])
    arguments = ["--sink", str(sink)]
    program = {"jar": jar, "entry_class": LEGACY_JOB, "program_args": " ".join(arguments), "job_parallelism": 2}
    fields: dict[str, object] = {"new_spec": {"job": {"args": [*arguments, "--more", "1"]}}}
    fields["resource"] = f"{where}/{NAME}"
    if where == "session":
        of_kubernetes = dict.fromkeys(("resource", "namespace", "new_spec"))
        fields = {"runs_on": where, **of_kubernetes, **program, **{f"old_{key}": one for key, one in program.items()}}
    request = asked(tmp_path, flink_job=name, **fields)
    rehearsal = rehearsed(home, occasion.rehearsal(), request)
    decided(rehearsal)
    run = Run.create(plan_for(request, occasion, str(home / "demo" / "legacy")), occasion.now)
    monkeypatch.setattr(FlinkTask, "show", lambda *_: None)

    def of_task(task: str) -> Any:
        here = context(rehearsal, request, occasion)
        here["ti"] = SimpleNamespace(**{**vars(here["ti"]), "task_id": task, "run_id": f"{where} {first.id}"})
        return here

    with ExitStack() as stack:
        if where != "session":
            url = stack.enter_context(operator_of(where, first.id, jar, sink).serving())
            monkeypatch.setattr(places, "api_server", lambda _: ApiServer(url))
        place, here = places.place_of(request, of_task("take_savepoint")), of_task("take_savepoint")
        place.check()
        order = SavepointOrder(task_key(here), name, str(request.savepoint_directory), stop=True)
        assert not place.is_stopping(order)
        taken = place.stop(order)
        assert place.is_stopping(order)
        assert first.status == "FINISHED"
        assert taken.job_id == first.id
        assert place.stopped_in_the_end(order) == taken
        # As if the operator had given up before Flink has stopped the job.
        own = replace(order, job=first.id)
        assert FlinkHook().run(lambda rest: stopped_by_others(rest, own, timeout=60)) == taken

        place = places.place_of(request, of_task("start_job"))
        record_start(run, NewJob(place.new_job_id))
        # The publication: here the old savepoint in another place.
        published = shutil.copytree(local(taken.location), tmp_path / "published").as_uri()
        assert not place.has_started(published)
        started = place.start(run, published, timeout=60)
        assert started["state"] == "RUNNING"
        assert place.has_started(published)
        assert place.new_job(run) == started["job_id"]
        assert restored_from(cluster, started["job_id"]) == published

        FlinkHook().cancel(started["job_id"], timeout=60, poll_interval=0.1)
        # Only from a new job without a checkpoint is there a way back; this one has some.
        monkeypatch.setattr(FlinkHook, "has_checkpointed", lambda *_: False)
        back = places.place_of(request, of_task("return_to_old_job")).start_old(taken.location)
        assert back["job_id"] not in (first.id, started["job_id"])
        assert restored_from(cluster, back["job_id"]) == local(taken.location).as_uri()
        runs_on = replace(own, job=back["job_id"])
        assert FlinkHook().run(lambda rest: stopped_by_others(rest, runs_on, timeout=60)) is None
    end(RemoteJob(cluster, back["job_id"]))


@pytest.mark.full
def test_the_new_job_claims_links_and_leaves_what_is_published(
    cluster: FlinkCluster, jar: str, sink: Path, connection: None, tmp_path: Path, home: Path, occasion: Occasion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    first = RemoteJob.start(cluster, jar, LEGACY_JOB, "--sink", sink)
    first.wait_for_checkpoints(1)
    target = tmp_path / "new"
    monkeypatch.setenv("STATEFERRY_HOME", str(home))
    source = first.stop_with_savepoint("NATIVE")
    command = [_STATEFERRY, "run", "--savepoint", str(source), "--target", str(target), "--job", "claimed"]
    command += ["--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState"]
    command += ["--no-timers", "--format", "native", "--claimable"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    assert f"or have it claim {target}-claimable" in said
    (newest,) = runs_of(str(home), "claimed")
    assert newest.plan is not None
    run, before = Run(newest.plan, newest.folder), {file.name: file.read_bytes() for file in target.iterdir()}

    of_kubernetes = dict.fromkeys(("resource", "namespace", "new_spec"))
    program = {"jar": jar, "entry_class": NEW_JOB, "program_args": f"--sink {sink}", "job_parallelism": 2}
    request = asked(tmp_path, runs_on="session", **of_kubernetes, **program)
    here = context(rehearsed(home, occasion.rehearsal(), request), request, occasion)
    here["ti"] = SimpleNamespace(**{**vars(here["ti"]), "task_id": "start_job", "run_id": f"claims {first.id}"})
    monkeypatch.setattr(FlinkTask, "show", lambda *_: None)
    started = places.place_of(request, here).start(run, run.plan.target, timeout=60)
    assert restored_from(cluster, started["job_id"]) == Path(f"{target}-claimable").as_uri()
    second = RemoteJob(cluster, started["job_id"])
    # As its newest checkpoint follows, Flink removes what it has claimed and needs no longer.
    second.wait_for_checkpoints()
    end(second)
    assert {file.name: file.read_bytes() for file in target.iterdir()} == before
    # Without links the job starts from what is published.
    shutil.rmtree(f"{target}-claimable", ignore_errors=True)
    here["ti"] = SimpleNamespace(**{**vars(here["ti"]), "run_id": f"claims no more {first.id}"})
    again = places.place_of(request, here).start(run, run.plan.target, timeout=60)
    assert restored_from(cluster, again["job_id"]) == target.as_uri()
    end(RemoteJob(cluster, again["job_id"]))


def restored_from(cluster: FlinkCluster, job: str) -> str:
    latest = cluster.get(f"/jobs/{job}/checkpoints")["latest"]
    assert latest["completed"] is not None
    return local(latest["restored"]["external_path"]).as_uri()
