"""Flink, Spark and Airflow on one S3 store or HDFS, without a common folder; the judge is Flink there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flinkstate.files.storage import Location
from local_airflow.server import Server, running
from local_airflow.settings import Settings, free_port
from stateferry.runs.record.catch_ups import CatchUps
from stateferry.runs.record.runs import Run
from tests.flink.cluster import FlinkCluster
from tests.flink.judge import raw_entries
from tests.flink.remote import LEGACY_JOB, NEW_JOB, RemoteJob
from tests.standalone.cut_over.ferry import DAG, PATIENCE, Ferry
from tests.standalone.cut_over.purchases import check_each_once, entries, expected_entries, shown
from tests.standalone.cut_over.test_caught_up import (
    SETTINGS,
    SLOW,
    WANTED,
    WITH_CHECKPOINT,
    catch_ups,
    check_that_it_was_caught_up_with,
)
from tests.standalone.cut_over.test_with_airflow import wait_for_state
from tests.standalone.migration import answer
from tests.support.facts import kept_facts
from tests.support.hdfs_server import HdfsServer
from tests.support.s3_server import S3Server

pytestmark = [pytest.mark.full, pytest.mark.flink, pytest.mark.spark, pytest.mark.timeout(1800)]


Store = S3Server | HdfsServer


@pytest.fixture(scope="module", params=[S3Server, HdfsServer])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with request.param(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture(scope="module")
def flink(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    with FlinkCluster("2.3.0", tmp_path_factory.mktemp("flink"), settings=SETTINGS, store=store) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def environment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.set_up(monkeypatch)


def test_flink_restores_from_the_store_what_was_made_from_its_savepoint_there(
    flink: FlinkCluster, store: Store, tmp_path: Path
) -> None:
    sink = tmp_path / "sink"
    sink.mkdir()
    arguments = ["--sink", sink, "--ttl-days", 30]
    jar = flink.upload_jobs()
    old = RemoteJob.start(flink, jar, LEGACY_JOB, *arguments)
    old.wait_for_checkpoints()
    stopped = old.stop_with_savepoint_at()
    assert stopped.startswith(store.uri("flink", "savepoints"))
    before = shown(sink)
    assert entries(stopped, "mainState") == expected_entries(before)
    native, imported = store.uri("migrated", "native"), store.uri("migrated", "canonical")
    run = ("--ttl", "30d", "--format", "native")
    stateferry_run(store, tmp_path / "native.db", "native", stopped, native, *run)
    # As a managed Flink does: each side has only its own copy.
    exported, made = store.uri("exports", "a1B2c3"), store.uri("imports", "orders-2")
    move(stopped, exported)
    stateferry_run(store, tmp_path / "canonical.db", "canonical", exported, made, "--ttl", "30d")
    move(exported, store.uri("exports", "over"))
    move(made, imported)
    for target in (native, imported):
        assert entries(target, "newMainState") == expected_entries(before)
    # The other one goes on in a sink of its own, from what the old job has shown.
    other = shutil.copytree(sink, tmp_path / "other")
    from_native = RemoteJob.start(flink, jar, NEW_JOB, "--sink", other, "--ttl-days", 30, savepoint=native)
    from_native.wait_for_checkpoints()
    end = from_native.stop_with_savepoint_at()
    check_each_once(shown(other))
    assert entries(end, "newMainState") == expected_entries(shown(other))
    check_that_it_goes_on(flink, jar, imported, sink, *arguments)


@pytest.mark.parametrize("store", [S3Server], indirect=True)
def test_what_changes_is_caught_up_with_on_the_store(flink: FlinkCluster, store: Store, tmp_path: Path) -> None:
    """A live job retains one incremental checkpoint, and completes two in a second; each is held by copies of S3."""
    sink, catalog = tmp_path / "sink", tmp_path / "catalog.db"
    sink.mkdir()
    jar = flink.upload_jobs()
    old = RemoteJob.start(flink, jar, LEGACY_JOB, "--sink", sink)
    old.wait_for_checkpoints()
    target, native = store.uri("caught-up", "target"), ("--format", "native", "--no-timers", "--claimable")
    now = ("--now", str(1_700_000_000_000))
    base = stateferry_run(store, catalog, "orders", old.savepoint_at("NATIVE"), target, *native, *now, "--rehearse")
    run_id = re.findall(r"run (\S+) of job", base)[0]
    old.wait_for_checkpoints()
    folder = store.uri("flink", "checkpoints", old.id)
    said = stateferry(store, catalog, "catch-up", run_id, "--job", "orders", "--checkpoints", folder, "--settle", "99s")
    (since,) = re.findall(r"caught up with \d+ changed keys in .* s, as run (\S+)", said)
    old.wait_for_checkpoints()
    stopped = old.stop_with_savepoint_at("NATIVE")
    claimable = Location.of(f"{target}-claimable")
    ahead = {one.name for one in claimable.entries()}
    assert ahead
    said = stateferry_run(store, catalog, "orders", stopped, target, *native, *now, "--since", since)
    assert f"or have it claim {target}-claimable" in said
    assert ahead & {one.name for one in claimable.entries()}
    stateferry_run(store, catalog, "whole", stopped, store.uri("caught-up", "whole"), *native, *now)
    before = shown(sink)
    assert entries(target, "newMainState") == expected_entries(before)
    assert raw_entries(target) == raw_entries(store.uri("caught-up", "whole"))
    # One job goes on from what it claims, another one from what was published.
    other = shutil.copytree(sink, tmp_path / "other")
    new = RemoteJob.start(flink, jar, NEW_JOB, "--sink", other, savepoint=f"{target}-claimable", claims=True)
    new.wait_for_checkpoints()
    completed = flink.get(f"/jobs/{new.id}/checkpoints")["latest"]["completed"]["external_path"]
    assert f"{target}-claimable/".encode() in Location.of(completed).child("_metadata").read()
    end = new.stop_with_savepoint_at()
    check_each_once(shown(other))
    assert entries(end, "newMainState") == expected_entries(shown(other))
    check_that_it_goes_on(flink, jar, target, sink, "--sink", sink)


def check_that_it_goes_on(flink: FlinkCluster, jar: str, target: str, sink: Path, *arguments: object) -> None:
    """The new job does, from what was published, on more subtasks."""
    before = shown(sink)
    new = RemoteJob.start(flink, jar, NEW_JOB, *arguments, savepoint=target, parallelism=3)
    new.wait_for_checkpoints()
    end = new.stop_with_savepoint_at()
    after = shown(sink)
    check_each_once(after)
    assert len(after) > len(before)
    assert entries(end, "newMainState") == expected_entries(after)


def move(folder: str, to: str) -> None:
    """Each file, by its own name."""
    source, copy = Location.of(folder), Location.of(to)
    copy.make_folder()
    files = source.entries()
    assert source.child("_metadata") in files
    for file in files:
        with copy.child(file.name).create() as made:
            made.write(file.read())
        file.remove()
    assert not source.entries()


def stateferry_run(store: Store, catalog: Path, job: str, source: str, target: str, *options: str) -> str:
    command = ["run", "--job", job, "--savepoint", source, "--target", target, "--operator", "main"]
    command += ["--legacy-state", "mainState", "--new-state", "newMainState", *options]
    return stateferry(store, catalog, *command)


def stateferry(store: Store, catalog: Path, *command: str) -> str:
    """Gives the command in a process of its own; returns what it said."""
    home = {"STATEFERRY_HOME": store.uri("home"), "STATEFERRY_CATALOG": f"sqlite:///{catalog}"}
    done = subprocess.run(
        [sys.executable, "-m", "stateferry.cli", *command],
        env={**os.environ, **home},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for secret in store.secrets:
        assert secret not in done.stdout + done.stderr
    return done.stdout


@contextmanager
def airflow_on(store: Store, folder: Path) -> Iterator[Server]:
    """An Airflow whose home is on the store; of `folder` it has only the catalog, in `stateferry`."""
    home = folder / "stateferry"
    home.mkdir()
    on_store = {
        **store.environment,
        "STATEFERRY_HOME": store.uri("airflow", "home"),
        "STATEFERRY_CATALOG": f"sqlite:///{home}/catalog.db",
    }
    with running(Settings(folder / "airflow", home, free_port(), extra=on_store)) as airflow:
        airflow.api.wait_for_dag(DAG, PATIENCE)
        yield airflow


@pytest.mark.airflow
@pytest.mark.parametrize("store", [S3Server], indirect=True)
def test_airflow_catches_up_on_the_store_before_it_stops_the_job(
    flink: FlinkCluster, store: Store, tmp_path: Path
) -> None:
    with airflow_on(store, tmp_path) as airflow:
        ferry = Ferry.ready(airflow, flink, "caught-up", tmp_path)
        old = ferry.start_old_job()
        run = ferry.cut_over(old, **WANTED, **WITH_CHECKPOINT, approval=True)
        wait_for_state(ferry, run, "decide", "awaiting_input")
        rehearsal = Run.open(Location.of(ferry.xcom(run, "plan")["rehearsal"]))
        found = kept_facts(rehearsal, CatchUps)
        copies = [rehearsal, *catch_ups(rehearsal, found)]
        assert len(copies) > 1, ferry.logs(run)
        assert [one.plan.source for one in copies] == [one.held.shown for one in copies]
        answer(ferry.airflow, DAG, run, "Approve", "decide")
        if found.why_not:
            # So small a state, of which all keys change, takes as long to convert whole.
            assert SLOW in found.why_not
            assert ferry.end_of(run) == "success", ferry.logs(run)
            assert not any(one.held.exists() for one in copies)
        else:
            check_that_it_was_caught_up_with(ferry, run)
        publication = ferry.published()
        assert publication is not None
        assert publication.record.source.startswith(store.uri("flink", "checkpoints"))
        assert publication.record.target.startswith(store.uri("airflow", "home", "savepoints"))
        ferry.check_that_nothing_was_lost("newMainState")


@pytest.mark.airflow
def test_airflow_cuts_a_live_job_over_on_the_store(flink: FlinkCluster, store: Store, tmp_path: Path) -> None:
    home = tmp_path / "stateferry"
    with airflow_on(store, tmp_path) as airflow:
        ferry = Ferry.ready(airflow, flink, "on-store", tmp_path, "--ttl-days", 30)
        old = ferry.start_old_job()
        run = ferry.cut_over(old, ttl="30d", job_parallelism=3, start_timeout="5m")
        assert ferry.end_of(run) == "success", ferry.logs(run)
        publication = ferry.published()
        assert publication is not None
        assert publication.record.source.startswith(store.uri("flink", "savepoints"))
        assert publication.record.target.startswith(store.uri("airflow", "home", "savepoints"))
        new = ferry.running()
        restored = flink.get(f"/jobs/{new.id}/checkpoints")["latest"]["restored"]
        assert restored["external_path"] == publication.record.target
        assert sorted(file.name for file in home.iterdir()) == ["catalog.db"]
        said = ferry.logs(run)
        for secret in store.secrets:
            assert secret not in said
        ferry.check_that_nothing_was_lost("newMainState")
