"""Commands in the documentation: all are understood, and each prints what is shown, or is listed with a reason."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stateferry.basics.durations import now_ms
from stateferry.cli import _parser, main
from stateferry.runs.catalog.processes import Process
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from tests.support.console_blocks import PAGES, Console, Shown, commands
from tests.support.legacy_states import LegacyState
from tests.support.native_nights import NightlyDatabase

CHECKPOINT = NightlyDatabase.properties + b"org.apache.flink.runtime.checkpoint.CheckpointType"
SAVEPOINTS = Path(__file__).parents[1] / "savepoints"
WITH_FLINK = "tests/flink/test_console_blocks.py gives it, with real Flink"
DOCUMENTED = "tests/airflow/state_migration/test_documented.py has the DAG take what it gives"
CONTAINERS = "needs a container engine or a cluster: tests/docker reads the files that it names"
STORE = "needs the credentials of a store: tests/stores gives such commands to one"
SERVICE = "needs an account of the service: tests/test_managed_flink.py holds it against the service's API"
# What isn't run here, by page and beginning, and why.
NOT_RUN = {
    "README.md": {"make ": "takes minutes, and starts this test"},
    "ages.md": {
        "stateferry run … --state-ttl main/sessions": "is a part of a command, of states that are nowhere here"
    },
    "airflow.md": {
        "make up": "takes minutes: tests/standalone starts Airflow so",
        "airflow dags trigger": DOCUMENTED,
        "airflow variables set": DOCUMENTED,
        "airflow backfill create": "takes minutes: tests/standalone/test_backfill.py gives it",
    },
    "cut-over.md": {
        **dict.fromkeys(("curl ", "stateferry run ", "stateferry inspect ", "stateferry rollback "), WITH_FLINK),
        "airflow dags trigger": DOCUMENTED,
    },
    "deploy.md": {
        **dict.fromkeys(("docker ", "cp ", "kubectl ", "helm ", "curl ", "make sbom"), CONTAINERS),
        ".venv/bin/python -m tests.flink.demo_jar": CONTAINERS,
        "AIRFLOW_CONN_SPARK_DEFAULT=": "needs YARN",
    },
    "managed-flink.md": {"aws ": SERVICE, "stateferry ": STORE},
    "object-stores.md": {"export ": STORE, "stateferry ": STORE},
    "outage.md": {
        "airflow dags trigger": DOCUMENTED,
        "python -m benchmarks.restoring": "needs Flink and strace, and measures for minutes",
        "grep ": "reads what strace has written",
        "stateferry demo-savepoint /tmp/plain": "makes what is measured then",
    },
    "query-your-state.md": {"export ": "needs a catalog with a login: tests/tables/test_rest_catalog.py has one"},
    "reading.md": {
        "stateferry inspect /backup": "needs a checkpoint that was copied from a store: tests/rocksdb reads moved ones"
    },
    "rescale.md": {
        "airflow dags trigger": DOCUMENTED,
        "stateferry run --savepoint /tmp/orders --target /tmp/both": "has two operators",
    },
    "run.md": {
        "stateferry run --savepoint /sp --target /new": "needs POJOs: tests/steps/test_maps_in_pojos.py has such",
        "stateferry run --next-in": "waits for a job to stop: tests/cli/test_next_savepoint.py gives it",
    },
    "upgrade.md": {
        **dict.fromkeys((".venv/bin/python -m tests.flink.lost_entry", "stateferry check /tmp/lost"), WITH_FLINK),
        "stateferry run --savepoint /tmp/lost": WITH_FLINK,
    },
    "where-jobs-live.md": {"pip ": "installs a package", "AIRFLOW_CONN_": "needs Kubernetes: tests/airflow/operator"},
    "worth-it.md": {"stateferry worth-it /tmp/demo --measure": "measures real Flink: tests/cli/test_worth_it.py"},
}


def listed(shown: Shown) -> bool:
    return any(shown.command.startswith(one) for one in NOT_RUN.get(shown.page, ()))


def run_here(page: str) -> list[Shown]:
    return [shown for shown in commands(page) if not listed(shown)]


STATES = "--operator main --legacy-state mainState --new-state newMainState --flag-state isMigratedState"


def demo(at: Console) -> None:
    at.do("demo-savepoint /tmp/demo --ttl 30d")


def of_ages(at: Console) -> None:
    at.words["…"] = at.here(f"--savepoint /tmp/demo --target /tmp/new {STATES}")


def of_kryo(at: Console) -> None:
    shutil.copytree(SAVEPOINTS / "kryo-1.20-rocksdb", at.place("/savepoints/savepoint-1a2b3c"))


def of_lazy(at: Console) -> None:
    at.do("demo-savepoint /sp/monday --ttl 30d --keys 800")


def two_more_nights(at: Console) -> None:
    """The job goes on from each night's result, and has changed nothing."""
    for day, target in (("monday", "first"), ("first", "tuesday"), ("tuesday", "wednesday-new")):
        at.do(f"run --savepoint /sp/{day} --target /sp/{target} --job orders {STATES} --ttl 30d --lazy --share 15%")


def goes_on(at: Console, number: int, kept: str) -> None:
    """The job of the page takes a checkpoint, of which there is a copy."""
    blobs = {f"key-{one}": ({"a": one, "b": number * (one % 9 == 0)}, 0) for one in range(400)}
    database = NightlyDatabase(at.place("/checkpoints/0f1c"), number=number * 100, properties=CHECKPOINT)
    database.flush(LegacyState(blobs=blobs, has_flag_state=False))
    shutil.copytree(database.checkpoint(number), at.place(kept))


def of_outage(at: Console) -> None:
    at.words |= {"/checkpoints/0f1c...": at.here("/checkpoints/0f1c"), " ...": f" {STATES}"}
    goes_on(at, 1, "/checkpoints/f0")


def a_night_later(at: Console) -> None:
    (rehearsal,) = runs_of(str(at.folder / "home"), "orders")
    at.words["20261126T2351"] = rehearsal.run_id
    goes_on(at, 2, "/savepoints/f2")


def nothing_published(at: Console) -> None:
    """As if the rehearsal were the newest run."""
    at.do("rollback --job orders")
    shutil.rmtree(at.place("/new/job"))


def of_report(at: Console) -> None:
    demo(at)
    at.do("run --savepoint /tmp/demo --target /tmp/new --job orders --ttl 30d --rehearse " + STATES)
    (run,) = runs_of(str(at.folder / "home"), "orders")
    at.words |= {"~/.stateferry/runs/orders/20261122T203809Z-3c7575": run.folder.shown, "report 2026": "report 2"}


def of_rescale(at: Console) -> None:
    at.do("demo-savepoint /tmp/orders --ttl 30d --keys 1000")


def of_upgrade(at: Console) -> None:
    old, now = (SAVEPOINTS / f"{name}-rocksdb" for name in ("hint-hash-map-1.20", "upgraded-hint-hash-map-2.3"))
    jar = str(SAVEPOINTS.parent / "kryo" / "pojo-classes.jar")
    at.words |= {" OLD": f" {old}", " NOW": f" {now}", " old-job.jar": f" {jar}", " new-job.jar": f" {jar}"}


def of_what_if(at: Console) -> None:
    """A rehearsal and a publication, a run that has only been planned, and what a killed process has left."""
    at.do("demo-savepoint /tmp/orders/legacy --ttl 30d")
    command = f"run --savepoint /tmp/orders/legacy --target /tmp/orders/migrated --job orders {STATES} --ttl 30d"
    at.do(f"{command} --rehearse")
    at.do(command)
    plan = Run.open(runs_of(str(at.folder / "home"), "orders")[0].folder).plan
    other = {"run_id": "20261121T062246Z-619693", "target": at.here("/tmp/orders/next"), "rehearse": False}
    Run.create(plan.model_copy(update=other), now_ms())


def left_behind(at: Console) -> None:
    """By a process that was killed."""
    folder = Path(tempfile.gettempdir(), f"stateferry-{secrets.token_hex(5)}")
    folder.mkdir(mode=0o700)
    at.words["/tmp/stateferry-8u85eplm8d"] = str(folder)
    run = runs_of(str(at.folder / "home"), "orders")[0]
    ended = replace(Process.this(), id=2**22 + 1)
    Run.open(run.folder).temporary_folders.write_atomically(
        json.dumps([{"folder": str(folder), "process": str(ended)}]).encode()
    )


# What is there before a page's first command, or before the one that begins so.
BEFORE: dict[str, dict[str, Callable[[Console], None]]] = {
    "ages.md": {"stateferry demo-savepoint": of_ages},
    "balance.md": {"stateferry where": demo},
    "kryo.md": {"": of_kryo},
    "lazy.md": {"stateferry run": of_lazy, "stateferry status": two_more_nights},
    "outage.md": {
        "stateferry run --rehearse": of_outage,
        "stateferry run --format native --since": a_night_later,
        "stateferry run --format native --claimable": nothing_published,
    },
    "report.md": {"stateferry report 2026  ": of_report},
    "rescale.md": {"stateferry run": of_rescale},
    "upgrade.md": {"stateferry check OLD": of_upgrade},
    "what-if.md": {"stateferry status": of_what_if, "stateferry clean": left_behind},
}


@pytest.mark.parametrize("page", [name for name in PAGES if any(commands(name))])
def test_every_command_is_understood(page: str) -> None:
    for shown in commands(page):
        if (arguments := shown.arguments) is not None:
            _parser().parse_args([word.replace("TTL", "30d") for word in arguments])


@pytest.mark.parametrize("page", [name for name in PAGES if run_here(name)])
def test_what_is_run_prints_what_is_shown(
    page: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def give(arguments: list[str]) -> tuple[int, str]:
        capsys.readouterr()
        code = main(arguments)
        out = capsys.readouterr()
        return code, out.out + out.err

    console, before = Console(tmp_path, give), dict(BEFORE.get(page, {}))
    for shown in run_here(page):
        for beginning in [one for one in before if shown.command.startswith(one)]:
            before.pop(beginning)(console)
        console.check(shown)
    assert before == {}


def test_what_is_not_run_is_there() -> None:
    """So that the list has no reason that is of nothing."""
    for page, reasons in NOT_RUN.items():
        for beginning in reasons:
            assert any(shown.command.startswith(beginning) for shown in commands(page)), f"{page}: {beginning}"
