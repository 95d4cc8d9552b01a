"""Steps as applications of their own: the lease that spans them, and what they leave for the next one."""

from __future__ import annotations

import errno
import json
import os
import runpy
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flinkstate.errors import TransientError
from flinkstate.files.storage import Location
from flinkstate.reading.reader import Savepoint
from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED, MAY_PASS, REJECTED, TERMINATED, USAGE
from stateferry.cli import engine, main
from stateferry.runs.catalog import lease
from stateferry.runs.catalog.lease import BETWEEN_STEPS_MS, LeaseHeldError, LeaseLostError, LeaseRenewal
from stateferry.runs.catalog.publications import Control
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import MigrateFacts, RescaleFacts, TablesFacts
from stateferry.runs.report.decision import Answer, Decision
from stateferry.steps import snapshot
from stateferry.steps.workers import InProcess
from tests.support.facts import kept_facts
from tests.support.in_process import do_step, do_steps
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

STATE = LegacyState(blobs={"cold": ({"a": 1, "b": 2}, 0)}, rows={"hot": {"a": (5, 0)}}, flags={"hot": 0})

PlanOf = Callable[..., str]


@pytest.fixture
def plan_of(tmp_path: Path) -> PlanOf:
    """The file of a plan for job orders."""
    STATE.write(str(tmp_path / "source"))

    def made(run_id: str, **others: object) -> str:
        values = {
            "job": "orders",
            "run_id": run_id,
            "now": 0,
            "source": str(tmp_path / "source"),
            "target": str(tmp_path / run_id),
            "home": str(tmp_path / "home"),
            "operators": [{"operator": "main", "states": [{"legacy": LEGACY, "new": NEW, "flag": FLAG}]}],
        }
        file = tmp_path / f"{run_id}.json"
        file.write_text(json.dumps(values | others))
        return str(file)

    return made


def control_of(tmp_path: Path) -> Control:
    return Control(f"sqlite:///{tmp_path}/home/catalog.db")


def the_run(tmp_path: Path, run_id: str) -> Run:
    return Run.open(Location.of(str(tmp_path / "home" / "runs" / "orders" / run_id)))


@pytest.mark.parametrize("step", ["snapshot", "migrate", "rescale"])
def test_no_other_run_comes_between_two_steps(
    tmp_path: Path, plan_of: PlanOf, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for before in ("snapshot", "migrate", "rescale"):
        assert do_step(before, "--plan", plan_of("one")) == 0
        if before == step:
            break
    with control_of(tmp_path) as control:
        held = control.lease_of("orders")
        assert held is not None
        assert held.run_id == "one"
        assert held.expires_at - held.since >= BETWEEN_STEPS_MS
        with pytest.raises(LeaseHeldError):
            control.acquire("orders", "two")
    assert do_step("snapshot", "--plan", plan_of("two")) == 1
    assert "is being worked on by run one" in capsys.readouterr().err
    # To wait is no failure.
    assert the_run(tmp_path, "two").state is RunState.PLANNED


@pytest.mark.slow
def test_the_jobs_for_spark_submit_do_one_step_each(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stateferry.spark_jobs.session.workers_prepared", nullcontext)
    monkeypatch.setattr("stateferry.spark_jobs.engine.submitted_workers", lambda *_: nullcontext(InProcess()))
    for step in ("snapshot", "migrate", "rescale", "validate", "cut_over"):
        job = Path(__file__).parents[2] / "spark_jobs" / f"{step}.py"
        monkeypatch.setattr("sys.argv", [str(job), "--plan", plan_of("one")])
        with pytest.raises(SystemExit, match=r"^0$"):
            runpy.run_path(str(job), run_name="__main__")
        assert f"{step} of run one is done" in capsys.readouterr().out
    assert the_run(tmp_path, "one").state is RunState.PUBLISHED


@pytest.mark.slow
def test_nobody_has_the_lease_while_people_think(tmp_path: Path, plan_of: PlanOf) -> None:
    do_steps(("snapshot", "migrate", "rescale", "validate"), "--plan", plan_of("one"))
    with control_of(tmp_path) as control:
        assert control.lease_of("orders") is None


@pytest.mark.slow
def test_nobody_comes_between_the_steps_of_a_cut_over_that_was_decided_on_its_rehearsal(
    tmp_path: Path, plan_of: PlanOf
) -> None:
    """Its job stands still, and nobody is asked after the validation."""
    assert do_step("snapshot", "--plan", plan_of("one")) == 0
    the_run(tmp_path, "one").keep(Decision("the rehearsal", Answer.APPROVED, "by ada"))
    do_steps(("migrate", "rescale", "validate"), "--plan", plan_of("one"))
    with control_of(tmp_path) as control:
        held = control.lease_of("orders")
        assert held is not None
        assert held.expires_at - held.since >= BETWEEN_STEPS_MS
    assert do_step("cut_over", "--plan", plan_of("one")) == 0
    with control_of(tmp_path) as control:
        assert control.lease_of("orders") is None


@pytest.mark.slow
def test_no_night_comes_between_two_tries_of_a_step_while_the_job_stands_still(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TransientError("the store is busy")

    def end(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def held_after(run_id: str, how: Callable[..., None] = fail, code: int = 75) -> str | None:
        with monkeypatch.context() as patched:
            patched.setattr("stateferry.steps.pipeline.Pipeline.carry_out", how)
            assert do_step("migrate", "--plan", plan_of(run_id)) == code
        with control_of(tmp_path) as control:
            held = control.lease_of("orders")
            return None if held is None else held.run_id

    assert do_step("snapshot", "--plan", plan_of("one")) == 0
    assert held_after("one") is None
    assert held_after("one", end, 143) is None
    the_run(tmp_path, "one").keep(Decision("the rehearsal", Answer.APPROVED, "by ada"))
    assert held_after("one") == "one"
    assert held_after("one", end, 143) == "one"
    assert do_step("migrate", "--plan", plan_of("one")) == 0


def test_a_step_that_fails_lets_the_lease_go(tmp_path: Path, plan_of: PlanOf) -> None:
    assert do_step("snapshot", "--plan", plan_of("one")) == 0
    assert do_step("validate", "--plan", plan_of("one")) == 1
    with control_of(tmp_path) as control:
        assert control.lease_of("orders") is None


def test_a_run_with_nothing_to_do_lets_the_lease_go(
    tmp_path: Path, plan_of: PlanOf, capsys: pytest.CaptureFixture[str]
) -> None:
    (operator,) = Savepoint.open(str(tmp_path / "source")).keyed_operators()
    as_it_is: dict[str, object] = {"operators": [], "max_parallelism": operator.max_parallelism}
    assert do_step("snapshot", "--plan", plan_of("one", **as_it_is)) == 0
    assert "nothing to do: the savepoint is as wanted already" in capsys.readouterr().out
    with control_of(tmp_path) as control:
        assert control.lease_of("orders") is None


def test_a_plan_that_contradicts_the_savepoint_fails_the_run_in_words(tmp_path: Path, plan_of: PlanOf) -> None:
    wrong = [{"operator": "main", "states": [{"legacy": "no such state", "new": "nor this"}]}]
    assert do_step("snapshot", "--plan", plan_of("one", operators=wrong)) == 2
    last = the_run(tmp_path, "one").changes()[-1]
    assert last.state is RunState.FAILED
    assert "has no keyed state 'no such state'" in last.reason
    with control_of(tmp_path) as control:
        assert control.lease_of("orders") is None


@pytest.mark.slow
def test_a_green_rehearsal_moves_the_tables_on_unless_it_looks_back(tmp_path: Path, plan_of: PlanOf) -> None:
    def rehearse(run_id: str, **others: object) -> Run:
        plan = plan_of(run_id, rehearse=True, **others)
        do_steps(("snapshot", "migrate", "rescale", "validate", "tables"), "--plan", plan)
        return the_run(tmp_path, run_id)

    def moved_and_rows(run: Run) -> tuple[bool, int]:
        facts = kept_facts(run, TablesFacts)
        return facts.moved, facts.rows

    for checkpoint in (1, 3):
        replace(STATE, checkpoint_id=checkpoint).write(str(tmp_path / f"night-{checkpoint}"))
    first = rehearse("first", source=str(tmp_path / "night-3"))
    assert moved_and_rows(first) == (True, 3)
    same = rehearse("same", source=str(tmp_path / "night-3"))
    assert moved_and_rows(same) == (True, 0)
    older = rehearse("older", source=str(tmp_path / "night-1"))
    assert not moved_and_rows(older)[0]
    assert older.state is RunState.VERIFIED


def test_what_may_pass_is_no_failure_of_the_run(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(error: Exception) -> Callable[..., None]:
        def step(*_: object) -> None:
            raise error

        return step

    for error in (OSError(errno.EIO, "Input/output error", "/data/x"), TransientError("/data/x is away")):
        with monkeypatch.context() as patch:
            patch.setattr(snapshot, "count", fails(error))
            assert do_step("snapshot", "--plan", plan_of("one")) == MAY_PASS
        said = capsys.readouterr().err
        assert said.startswith("stateferry: /data/x ")
        assert said.count("\n") == 1
        assert the_run(tmp_path, "one").state is RunState.RUNNING
        with control_of(tmp_path) as control:
            assert control.lease_of("orders") is None
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "count", fails(PermissionError(errno.EACCES, "Permission denied", "/data/x")))
        assert do_step("snapshot", "--plan", plan_of("one")) == DAMAGED_OR_REFUSED
    last = the_run(tmp_path, "one").changes()[-1]
    assert (last.state, last.reason) == (RunState.FAILED, "/data/x can't be reached: Permission denied")
    assert do_step("snapshot", "--plan", plan_of("one")) == 0


def test_what_goes_wrong_without_the_lease_is_its_loss(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def overtaken(*_: object) -> None:
        with control_of(tmp_path) as control:
            control.acquire("orders", "one", force=True)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/data/x.draft")

    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "count", overtaken)
        assert do_step("snapshot", "--plan", plan_of("one")) == MAY_PASS
    assert "run one has lost the lease of job orders" in capsys.readouterr().err
    assert the_run(tmp_path, "one").state is RunState.RUNNING


def test_who_ends_a_step_is_told_that_it_goes_on(
    plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(snapshot, "count", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    assert do_step("snapshot", "--plan", plan_of("one")) == TERMINATED
    assert signal.getsignal(signal.SIGTERM) == before
    said = capsys.readouterr().err
    assert said == "stateferry: ended by SIGTERM: run one continues where it stopped when snapshot is started again\n"


def test_a_renewal_that_does_not_come_through_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        TransientError("the catalog is away"),
        TransientError("it still is"),
        None,
        LeaseLostError("another has it"),
    ]
    asked: list[Exception | None] = []
    gone = threading.Event()

    def renew(_: object) -> None:
        asked.append(answers[len(asked)])
        if isinstance(asked[-1], LeaseLostError):
            gone.set()
        if asked[-1] is not None:
            raise asked[-1]

    monkeypatch.setattr(lease, "LEASE_MS", 15)
    leases: Any = SimpleNamespace(renew=renew)
    held: Any = None
    renewal = LeaseRenewal(leases, held)
    with renewal:
        assert gone.wait(30)
    assert asked == answers
    with pytest.raises(LeaseLostError, match="another has it"):
        renewal.check()


def test_verify_looks_for_the_result_before_spark_starts(
    tmp_path: Path, plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_of("one")

    def starts(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(engine, "local_workers", starts)
    states = ["--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG]
    nowhere = tmp_path / "nowhere"
    assert main(["verify", str(tmp_path / "source"), str(nowhere), *states]) == USAGE
    assert f"there is no savepoint at {nowhere}" in capsys.readouterr().err
    nowhere.mkdir()
    assert main(["verify", str(tmp_path / "source"), str(nowhere), *states]) == REJECTED
    assert "failed" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"parallelism": 3}, {"max_parallelism": 300}], ids=str)
def test_rescale_has_work_if_key_groups_change(
    tmp_path: Path, plan_of: PlanOf, changes: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    do_steps(("snapshot", "migrate"), "--plan", plan_of("one", **changes))
    run = the_run(tmp_path, "one")
    is_sent = "max_parallelism" in changes
    assert (run.state is RunState.STAGED, run.exchange.exists()) == (not is_sent, is_sent)
    capsys.readouterr()
    assert do_step("rescale", "--plan", plan_of("one", **changes)) == 0
    said = "rescale: nothing to do: migrate has written into the new ranges itself\n"
    assert (said in capsys.readouterr().out) == (not is_sent)
    migrated, rescaled = kept_facts(run, MigrateFacts), kept_facts(run, RescaleFacts)
    assert migrated.rows > 0
    assert (migrated.files > 0, rescaled.files > 0, bool(migrated.sent)) == (not is_sent, is_sent, is_sent)
    assert run.state is RunState.STAGED
    do_steps(("validate", "cut_over"), "--plan", plan_of("one", **changes))
    assert not run.exchange.exists()
