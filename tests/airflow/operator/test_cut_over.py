"""The operator's own process carries out the patches of a cut-over, with real Flink: exactly once by the sink's files.

Each test prints how long the job stood still.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from stateferry.airflow.kubernetes.api import KubernetesApi
from stateferry.airflow.kubernetes.spec import is_applied, option
from stateferry.airflow.requests.rollback_request import RollbackRequest
from stateferry.airflow.runs_on.operator_spec import plain
from stateferry.airflow.runs_on.places import operator_of
from tests.airflow.operator.conftest import CutOver
from tests.airflow.operator.control_plane import Body, until
from tests.airflow.operator.flink_operator import flink
from tests.airflow.operator.pods import MISSING_IMAGE
from tests.airflow.operator.resources import (
    FLINK_1,
    ROLLBACK,
    UPGRADED,
    application,
    flink_version,
    highly_available,
    native,
    of_flink_1,
    put_back,
    rolled_back_by_operator,
    session,
    skip_unless_fit,
)
from tests.flink.remote import FAILING_JOB, NEW_JOB
from tests.standalone.cut_over import purchases

Make = Callable[..., CutOver]

pytestmark = pytest.mark.flink


@pytest.mark.parametrize("resources", [application, native])
def test_the_operator_stops_the_job_and_starts_the_next_from_the_new_savepoint(
    cut_over: Make, resources: Callable[[Path, int], list[Body]], monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_fit(resources)
    made = cut_over(None, resources)
    # By itself the operator would remove each savepoint with its resource.
    made.change({"flinkConfiguration": {"kubernetes.operator.savepoint.dispose-on-delete": "true"}})
    made.wait_until_it_runs()
    assert (made.rehearse() / "_metadata").exists()
    taken = made.stop()
    assert made.read()["status"]["lifecycleState"] == "SUSPENDED"
    published = made.migrate()
    started = made.start()
    assert made.restored_from(started["job_id"]) == published
    assert made.read()["spec"]["image"] == "orders:2"
    assert taken["job_id"] != started["job_id"]
    made.delete_snapshots_of_stops()
    assert Path(plain(taken["savepoint"]), "_metadata").exists()
    made.change({"flinkConfiguration": {"kubernetes.operator.savepoint.dispose-on-delete": None}})
    made.check_that_nothing_was_lost("newMainState", monkeypatch)


@pytest.mark.parametrize(
    ("entry_class", "words"), [(NEW_JOB, None), (FAILING_JOB, "the price list cannot be found")], ids=["new", "failing"]
)
def test_a_job_of_flink_1_becomes_one_of_flink_2_or_runs_on_by_its_own(
    cut_over: Make, entry_class: str, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless_fit(of_flink_1)
    new = {"image": "orders:2", "flinkVersion": flink_version(flink()), "job": {"entryClass": entry_class}}
    made = cut_over(new, of_flink_1, **UPGRADED)
    made.check()
    before = made.read()["spec"]
    assert (before["flinkVersion"], made.flink("/config")["flink-version"]) == (flink_version(FLINK_1), FLINK_1)
    taken = made.stop()
    published = made.migrate()
    if words is None:
        runs, savepoint, state, version = made.start(), published, "newMainState", flink()
    else:
        with pytest.raises(AirflowFailException, match=words):
            made.start()
        runs, savepoint, state, version = made.go_back(), plain(taken["savepoint"]), "mainState", FLINK_1
        assert made.read()["spec"] == put_back(before, taken["savepoint"])
    assert made.restored_from(runs["job_id"]) == savepoint
    assert made.flink("/config")["flink-version"] == version
    assert made.read()["spec"]["flinkVersion"] == flink_version(version)
    began = made.flink(f"/jobs/{runs['job_id']}")["start-time"]
    end = made.check_that_nothing_was_lost(state, monkeypatch)
    assert min(purchases.times_due(end)) > began, "a timer that the old job had set has not fired"


def test_a_native_savepoint_is_taken_and_a_native_one_is_started_from(
    cut_over: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_over(source="checkpoint", format="native", no_timers=True)
    taken = made.stop()
    published = made.migrate()
    # Flink keeps small files of RocksDB in _metadata.
    assert any(one.read_bytes().startswith(b"# This is a RocksDB") for one in Path(plain(taken["savepoint"])).iterdir())
    assert any(Path(published).glob("*.sst"))
    started = made.start()
    assert made.restored_from(started["job_id"]) == published
    made.check_that_nothing_was_lost("newMainState", monkeypatch)


@pytest.mark.parametrize(
    ("entry_class", "resources", "words"),
    [
        (NEW_JOB, application, None),
        (NEW_JOB, native, None),
        (FAILING_JOB, highly_available, "the price list cannot be found"),
    ],
    ids=["new", "native", "failing, highly available"],
)
def test_the_operator_cancels_the_job_and_the_newest_checkpoint_counts(
    cut_over: Make,
    entry_class: str,
    resources: Callable[[Path, int], list[Body]],
    words: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_unless_fit(resources)
    fields = {"source": "checkpoint", "stop_with": "checkpoint", "may_repeat": True}
    fields |= {"format": "native", "no_timers": True}
    made = cut_over({"job": {"entryClass": entry_class}}, resources, **fields)
    old = made.read()["status"]["jobStatus"]["jobId"]
    taken = made.stop()
    there = [one.parent for one in (made.folder / "checkpoints" / old).glob("chk-*/_metadata")]
    assert Path(plain(taken["savepoint"])) == max(there, key=lambda one: int(one.name.removeprefix("chk-")))
    published = made.migrate()
    if words is None:
        runs, savepoint, state = made.start(), published, "newMainState"
    else:
        with pytest.raises(AirflowFailException, match=words):
            made.start()
        runs, savepoint, state = made.go_back(), plain(taken["savepoint"]), "mainState"
    assert made.restored_from(runs["job_id"]) == savepoint
    made.check_that_nothing_was_lost(state, monkeypatch)


@pytest.mark.parametrize(
    ("entry_class", "words"), [(NEW_JOB, None), (FAILING_JOB, "the price list cannot be found")], ids=["new", "failing"]
)
def test_flink_stops_a_job_of_a_session_cluster_and_the_operator_starts_the_next(
    cut_over: Make, entry_class: str, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_over({"job": {"entryClass": entry_class}}, session)
    assert (made.rehearse() / "_metadata").exists()
    taken = made.stop()
    published = made.migrate()
    if words is None:
        runs, savepoint, state = made.start(), published, "newMainState"
    else:
        with pytest.raises(AirflowFailException, match=words):
            made.start()
        runs, savepoint, state = made.go_back(), plain(taken["savepoint"]), "mainState"
    assert made.restored_from(runs["job_id"]) == savepoint
    made.check_that_nothing_was_lost(state, monkeypatch)


@pytest.mark.parametrize("resources", [application, native, rolled_back_by_operator, session])
def test_a_rollback_ends_the_new_job_and_starts_the_old_one_by_its_spec_as_it_was(
    cut_over: Make,
    resources: Callable[[Path, int], list[Body]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_unless_fit(resources)
    # What the new job has shown until then, the old one shows again: in another place.
    new_sink, until_then = tmp_path / "new-sink", tmp_path / "until-then"
    new_sink.mkdir()
    made = cut_over({"job": {"entryClass": NEW_JOB, "args": ["--sink", str(new_sink)]}}, resources)
    before = made.read()["spec"]
    taken = made.stop()
    shutil.copytree(tmp_path / "sink", until_then)
    published = made.migrate()
    new = made.start()
    assert made.restored_from(new["job_id"]) == published
    assert option(made.read()["spec"], ROLLBACK) == option(before, ROLLBACK)
    until("the new job shows something", lambda: list(new_sink.glob("[!.]*")))
    request = RollbackRequest.model_validate({"job": "main", "runs_on": "kubernetes", "restart_job": True})
    back = operator_of(made.run, request, made.task("start_old_job")).go_back(taken["savepoint"])
    assert made.restored_from(back["job_id"]) == plain(taken["savepoint"])
    assert back["job_id"] != new["job_id"]
    assert made.read()["spec"] == put_back(before, taken["savepoint"])
    running = [one["jid"] for one in made.flink("/jobs/overview")["jobs"] if one["state"] == "RUNNING"]
    assert running == [back["job_id"]]
    # The file that the old job was about to show both have, by the same name.
    shutil.copytree(new_sink, until_then, dirs_exist_ok=True)
    purchases.check_each_once(purchases.shown(until_then))
    made.check_that_nothing_was_lost("mainState", monkeypatch)


@pytest.mark.parametrize(
    ("entry_class", "words"), [(NEW_JOB, None), (FAILING_JOB, "the price list cannot be found")], ids=["new", "failing"]
)
def test_what_a_run_only_shows_somebody_else_applies(
    cut_over: Make, entry_class: str, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = KubernetesApi.patch

    def try_only(api: KubernetesApi, *where: Any, dry_run: bool = False) -> Any:
        assert dry_run, "the run itself has changed the resource"
        return good(api, *where, dry_run=True)

    monkeypatch.setattr(KubernetesApi, "patch", try_only)
    made = cut_over({"image": "orders:2", "job": {"entryClass": entry_class}}, patch="show")
    made.check()
    before = made.read()["spec"]
    taken = made.stop()
    published = made.migrate()
    if words is None:
        runs, savepoint, state = made.start(), published, "newMainState"
    else:
        with pytest.raises(AirflowFailException, match=words):
            made.start()
        runs, savepoint, state = made.go_back(), plain(taken["savepoint"]), "mainState"
    assert made.restored_from(runs["job_id"]) == savepoint
    # The last one, which lets the operator restart failed jobs again, isn't waited for.
    until("the last patch is applied", lambda: is_applied(made.read()["spec"], made.shown[-1]) or None)
    # Besides those of the stop, the start, and perhaps the way back.
    assert len(made.shown) == (3 if words is None else 4)
    if words is not None:
        assert made.read()["spec"] == put_back(before, taken["savepoint"])
    made.check_that_nothing_was_lost(state, monkeypatch)


@pytest.mark.parametrize(
    ("image", "entry_class", "words", "known", "resources"),
    [
        (MISSING_IMAGE, NEW_JOB, "Back-off pulling image", True, application),
        ("orders:2", FAILING_JOB, "the price list cannot be found", True, application),
        ("orders:2", FAILING_JOB, "the price list cannot be found", False, application),
        (MISSING_IMAGE, NEW_JOB, "Back-off pulling image", True, native),
        ("orders:2", FAILING_JOB, "the price list cannot be found", False, native),
        ("orders:2", FAILING_JOB, "the price list cannot be found", True, rolled_back_by_operator),
    ],
    ids=["image", "job", "job, and Flink says it first", "image, native", "job, native", "job, rolled back"],
)
def test_a_start_that_fails_brings_the_old_job_back_from_the_savepoint_of_its_stop(
    cut_over: Make,
    image: str,
    entry_class: str,
    words: str,
    known: bool,
    resources: Callable[[Path, int], list[Body]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_unless_fit(resources)
    made = cut_over({"image": image, "job": {"entryClass": entry_class}}, resources)
    before = made.read()["spec"]
    taken = made.stop()
    made.migrate()
    with pytest.raises(AirflowFailException, match=words):
        made.start()
    if known:
        until("the operator says so too", lambda: made.read()["status"].get("error"))
    back = made.go_back()
    assert made.restored_from(back["job_id"]) == plain(taken["savepoint"])
    assert made.read()["spec"] == put_back(before, taken["savepoint"])
    made.check_that_nothing_was_lost("mainState", monkeypatch)


def test_somebody_else_who_changes_the_resource_is_seen(
    cut_over: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_over()
    good, others = KubernetesApi.patch, [{"image": "orders:9"}]

    def patch_after_others(api: KubernetesApi, *where: Any, dry_run: bool = False) -> Any:
        if others and not dry_run:
            made.change(others.pop())
        return good(api, *where, dry_run=dry_run)

    monkeypatch.setattr(KubernetesApi, "patch", patch_after_others)
    with pytest.raises(AirflowFailException, match="in this moment: image is orders:9, not orders:1"):
        made.stop()
    made.wait_until_it_runs()
    # As long as the operator is down, the job runs on; somebody else has it run again.
    made.world.operator.kill()
    threading.Timer(5, made.change, [{"job": {"state": "running"}}]).start()
    with pytest.raises(AirflowFailException, match=r"job.state is running, not suspended"):
        made.stop()
    made.world.operator.start()
    with pytest.raises(AirflowSkipException):
        made.go_back()
    made.wait_until_it_runs()
    # The operator has stopped the job and started it again, as somebody else has changed more than its state.
    found = [one.parent for folder in ("theirs", "savepoints") for one in (tmp_path / folder).rglob("_metadata")]
    newest = max(found, key=lambda one: (one / "_metadata").stat().st_mtime)
    assert made.restored_from(made.read()["status"]["jobStatus"]["jobId"]) == str(newest)
    made.check_that_nothing_was_lost("mainState", monkeypatch)


def test_an_operator_that_is_started_again_in_the_outage_goes_on(
    cut_over: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cut_over()
    operator = made.world.operator
    operator.kill()
    threading.Timer(10, operator.run).start()
    taken = made.stop()
    operator.kill()
    published = made.migrate()
    threading.Timer(10, operator.run).start()
    started = made.start()
    assert made.restored_from(started["job_id"]) == published
    assert started["job_id"] != taken["job_id"]
    made.check_that_nothing_was_lost("newMainState", monkeypatch)
