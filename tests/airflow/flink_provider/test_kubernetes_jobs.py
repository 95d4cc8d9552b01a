"""The operator's place with real Flink: its jobs stop with real savepoints and say what they were restored from.

Kubernetes and the operator are stand-ins; where the operator would start a cluster for the job, the job starts on one
that is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import JarRun
from stateferry.airflow.flink.savepoints import SavepointOrder, take
from stateferry.airflow.flink.task import FlinkTask, task_key
from stateferry.airflow.kubernetes.api import ApiServer
from stateferry.airflow.requests.planning import Occasion, plan_for
from stateferry.airflow.runs_on import places
from stateferry.runs.control.outage_limit import record_start
from stateferry.runs.record.facts import NewJob
from stateferry.runs.record.runs import Run
from tests.airflow.flink_provider.conftest import end
from tests.airflow.kubernetes.conftest import asked, spec_of
from tests.airflow.kubernetes.stand_in import NAME, Body, Kubernetes, StandInOperator
from tests.airflow.state_migration.conftest import home as home
from tests.airflow.state_migration.conftest import occasion as occasion
from tests.airflow.state_migration.test_decide import context, decided, rehearsed
from tests.flink.cluster import FlinkCluster
from tests.flink.remote import LEGACY_JOB, RemoteJob
from tests.support.operator_crds import schema

pytestmark = pytest.mark.flink


def test_a_real_job_is_stopped_started_and_brought_back(
    cluster: FlinkCluster, jar: str, sink: Path, connection: None, tmp_path: Path, home: Path, occasion: Occasion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    first = RemoteJob.start(cluster, jar, LEGACY_JOB, "--sink", sink)
    jobs = [first.id]
    spec = spec_of()
    spec["job"] |= {"entryClass": LEGACY_JOB, "args": ["--sink", str(sink)]}
    kubernetes = Kubernetes({"metadata": {"name": NAME, "namespace": "team"}, "spec": spec}, schema("1.10.0"))

    def stop(folder: str, kind: str) -> str:
        order = SavepointOrder(("of the operator",), jobs[-1], folder, stop=True, format=kind)
        return FlinkHook().run(lambda rest: take(rest, order, timeout=60, poll_interval=0.1)).location

    def start(wanted: Body) -> str:
        job: Any = wanted["job"]
        jobs.append(f"{len(jobs):032x}")
        # As the operator: whoever runs is cancelled before.
        FlinkHook().cancel(jobs[-2], timeout=60, poll_interval=0.1)
        FlinkHook().run_jar(JarRun(jobs[-1], jar, job["entryClass"], job["args"], 2, job["initialSavepointPath"]))
        return jobs[-1]

    StandInOperator(kubernetes, stop, start, first.id)
    first.wait_for_checkpoints(1)
    name = str(cluster.get(f"/jobs/{first.id}")["name"])
    new_spec = {"job": {"args": ["--sink", str(sink), "--more", "1"]}}
    request = asked(tmp_path, flink_job=name, new_spec=new_spec)
    rehearsal = rehearsed(home, occasion.rehearsal(), request)
    decided(rehearsal)
    here = context(rehearsal, request, occasion)
    with kubernetes.serving() as url:
        monkeypatch.setattr(places, "api_server", lambda _: ApiServer(url))
        monkeypatch.setattr(FlinkTask, "show", lambda *_: None)
        place = places.place_of(request, here)
        place.check()
        order = SavepointOrder(task_key(here), name, str(request.savepoint_directory), stop=True)
        taken = place.stop(order)
        assert first.status == "FINISHED"
        assert taken.job_id == first.id
        run = Run.create(plan_for(request, occasion, str(home / "demo" / "legacy")), occasion.now)
        record_start(run, NewJob())
        # As the publication would be: here it is the old one, under the name that it has.
        started = place.start(run, taken.location, timeout=60)
        assert (started["job_id"], started["state"]) == (jobs[1], "RUNNING")
        assert place.new_job(run) == jobs[1]
        latest = cluster.get(f"/jobs/{jobs[1]}/checkpoints")["latest"]
        assert latest["restored"]["external_path"] == taken.location
        assert latest["completed"] is not None
        kubernetes.change_spec({"job": {"initialSavepointPath": "/as-if-of-another"}})
        back = place.start_old(taken.location)
        assert back["job_id"] == jobs[2]
        assert cluster.get(f"/jobs/{jobs[1]}/status")["status"] == "CANCELED"
        assert kubernetes.resource["spec"]["job"]["args"] == ["--sink", str(sink)]
    end(RemoteJob(cluster, jobs[2]))
