"""Leases and publications: one at a time, never by who lost the lease, and each can be rolled back."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from flinkstate.errors import RejectedError, TransientError, UsageError
from stateferry.runs.catalog.control_tables import rejection
from stateferry.runs.catalog.lease import LeaseHeldError, LeaseLostError
from stateferry.runs.catalog.processes import Process
from stateferry.runs.catalog.publications import (
    Control,
    OlderSourceError,
    Publication,
    PublicationConflictError,
    Record,
    RunEndedError,
)
from tests.standalone.topology.processes import postgres, postgres_programs

JOB = "orders"


@dataclass
class Clock:
    now: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    programs = postgres_programs()
    if programs is None:
        pytest.skip("leases and publications in Postgres are not tested: it is not installed")
    with postgres(programs) as address:
        yield address


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/home/catalog.db"
    server, name = request.getfixturevalue("server"), f"catalog_{uuid4().hex}"
    with psycopg.connect(f"postgresql://{server}/postgres", autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return f"postgresql://{server}/{name}"


@pytest.fixture
def control(uri: str, clock: Clock) -> Iterator[Control]:
    with Control(uri, clock) as opened:
        yield opened


def record(run_id: str, checkpoint_id: int = 1) -> Record:
    return Record(
        run_id=run_id,
        plan_fingerprint="ab" * 32,
        source=f"/in/{run_id}",
        checkpoint_id=checkpoint_id,
        target=f"/out/{run_id}",
        metadata_digest="cd" * 32,
        tables={"entries": 2**62, "keys": 5},
    )


def published(control: Control, run_id: str, replaces: int | None, checkpoint_id: int = 1) -> Publication:
    held = control.acquire(JOB, run_id)
    made = control.publish(held, record(run_id, checkpoint_id), replaces=replaces)
    control.release(held)
    return made


def test_a_job_has_one_run_at_a_time(control: Control, clock: Clock) -> None:
    held = control.acquire(JOB, "one", lease_ms=1000)
    assert control.lease_of(JOB) == held
    with pytest.raises(LeaseHeldError) as caught:
        control.acquire(JOB, "two")
    for part in ("run one", Process.this().shown, "since 2023-11-14 22:13:20 UTC", "ends at 2023-11-14 22:13:21 UTC"):
        assert part in str(caught.value)
    control.acquire("another job", "two")
    control.release(held)
    assert control.lease_of(JOB) is None
    assert control.acquire(JOB, "two").token > held.token
    assert control.jobs() == ("another job", JOB)


def test_a_lease_that_is_renewed_lasts_and_one_that_is_not_can_be_taken(control: Control, clock: Clock) -> None:
    held = control.acquire(JOB, "one", lease_ms=1000)
    clock.now += 999
    held = control.renew(held, lease_ms=1000)
    clock.now += 999
    with pytest.raises(LeaseHeldError):
        control.acquire(JOB, "two")
    clock.now += 1
    taken = control.acquire(JOB, "two")
    assert taken.token > held.token
    with pytest.raises(LeaseLostError, match=r"run one has lost the lease of job orders .* run two has it"):
        control.renew(held)


def test_a_lease_whose_time_has_ended_is_nobody_at_work(control: Control, clock: Clock) -> None:
    held = control.acquire(JOB, "one", lease_ms=1000)
    clock.now += 999
    assert control.at_work(JOB) == held
    clock.now += 1
    assert (control.at_work(JOB), control.lease_of(JOB)) == (None, held)
    assert control.at_work("another job") is None


def test_only_the_runs_own_lease_of_no_process_at_work_is_released_between_steps(
    control: Control, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    control.release_between_steps(JOB, "one")
    held = control.acquire(JOB, "one", lease_ms=1000)
    clock.now += 2000
    # Another run's lease has ended, and is still good as long as nobody takes it.
    control.release_between_steps(JOB, "two")
    assert control.renew(held).token == held.token
    with monkeypatch.context() as patch:
        patch.setattr(Process, "this", lambda: Process(1, "elsewhere", 0))
        patch.setattr(Process, "surely_runs", lambda _: True)
        control.release_between_steps(JOB, "one")
        assert control.lease_of(JOB) is not None
        patch.setattr(Process, "surely_runs", lambda _: False)
        control.release_between_steps(JOB, "one")
    assert control.lease_of(JOB) is None


def test_an_expired_lease_that_nobody_took_is_still_good(control: Control, clock: Clock) -> None:
    held = control.acquire(JOB, "one", lease_ms=1000)
    clock.now += 5000
    assert control.renew(held, lease_ms=1000).expires_at == clock.now + 1000
    clock.now += 5000
    assert control.publish(held, record("one"), replaces=None).sequence == 1


def test_a_driver_that_outlived_its_run_can_neither_publish_nor_roll_back_nor_let_go(
    control: Control, clock: Clock
) -> None:
    first = published(control, "zero", None)
    orphan = control.acquire(JOB, "one", lease_ms=1000)
    clock.now += 1000
    heir = control.acquire(JOB, "two")
    with pytest.raises(LeaseLostError):
        control.publish(orphan, record("one"), replaces=first.sequence)
    with pytest.raises(LeaseLostError):
        control.rollback(orphan, undo=first.sequence)
    control.release(orphan)
    assert control.lease_of(JOB) == heir
    assert control.standing(JOB) == first
    assert control.history(JOB) == (first,)


def test_a_process_of_the_same_run_that_was_replaced_can_t_publish_either(control: Control) -> None:
    orphan = control.acquire(JOB, "one")
    heir = control.acquire(JOB, "one")
    with pytest.raises(LeaseLostError, match=f"token {orphan.token}; the newest is {heir.token}"):
        control.publish(orphan, record("one"), replaces=None)
    with pytest.raises(LeaseLostError):
        control.renew(orphan)
    assert control.publish(heir, record("one"), replaces=None).sequence == 1


def test_a_lease_that_was_let_go_publishes_nothing(control: Control) -> None:
    held = control.acquire(JOB, "one")
    control.release(held)
    with pytest.raises(LeaseLostError, match="no run has it"):
        control.publish(held, record("one"), replaces=None)
    never = replace(held, job="unknown")
    with pytest.raises(LeaseLostError):
        control.publish(never, record("one"), replaces=None)
    assert control.jobs() == (JOB,)


@pytest.mark.slow
def test_a_run_comes_back_after_its_process_was_killed(uri: str, control: Control) -> None:
    code = (
        "import sys; from stateferry.runs.catalog.publications import Control\n"
        f"Control({uri!r}, lambda: 1_700_000_000_000).acquire({JOB!r}, 'one'); print('held', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(LeaseHeldError, match=f"by the same run: process {child.pid} on"):
            control.acquire(JOB, "one")
        child.kill()
        child.wait()
    # Of a run with several steps no process may be there just now: another run waits all the same.
    with pytest.raises(LeaseHeldError, match="by run one"):
        control.acquire(JOB, "two")
    assert control.acquire(JOB, "one").holder == str(Process.this())
    assert control.acquire(JOB, "two", force=True).run_id == "two"


def test_publications_follow_each_other(control: Control, clock: Clock) -> None:
    assert control.standing(JOB) is None
    one = published(control, "one", None)
    clock.now += 5
    two = published(control, "two", one.sequence)
    assert (one.previous, two.previous) == (None, one.sequence)
    assert two.published_at == one.published_at + 5
    assert two.record == record("two")
    assert control.standing(JOB) == two
    assert control.history(JOB) == (one, two)
    assert control.standing("another job") is None


def test_what_was_not_expected_to_stand_is_not_replaced(control: Control) -> None:
    one = published(control, "one", None)
    for replaces in (None, 7):
        with pytest.raises(PublicationConflictError, match=r"found publication 1 \(run one\)"):
            published(control, "two", replaces)
        control.release(control.acquire(JOB, "two"))
    assert control.history(JOB) == (one,)


def test_a_run_that_was_killed_after_its_commit_may_publish_again(control: Control) -> None:
    one = published(control, "one", None)
    assert published(control, "one", None) == one
    assert control.history(JOB) == (one,)
    held = control.acquire(JOB, "one")
    other = record("one").model_copy(update={"metadata_digest": "ef" * 32})
    with pytest.raises(PublicationConflictError):
        control.publish(held, other, replaces=None)


def test_an_older_source_is_refused(control: Control) -> None:
    one = published(control, "one", None, checkpoint_id=7)
    with pytest.raises(
        OlderSourceError, match=r"of checkpoint 6, older than checkpoint 7 of publication 1 \(run one\)"
    ):
        published(control, "two", one.sequence, checkpoint_id=6)
    control.release(control.acquire(JOB, "two"))
    assert published(control, "three", one.sequence, checkpoint_id=7).sequence == 2


def test_a_rejected_run_is_never_published(control: Control, clock: Clock) -> None:
    held = control.acquire(JOB, "one")
    assert control.rejection(JOB, "one") is None
    clock.now += 5
    said = control.reject(JOB, "one", "rejected by ada")
    assert control.rejection(JOB, "one") == said
    assert (said.at, said.reason) == (clock.now, "rejected by ada")
    with pytest.raises(RunEndedError, match=r"run one of job orders was rejected \(rejected by ada\)"):
        control.publish(held, record("one"), replaces=None)
    assert control.standing(JOB) is None
    # The last word of several is kept; other runs and jobs are not concerned.
    assert control.reject(JOB, "one", "rejected by bob").reason == "rejected by bob"
    assert control.rejection("another job", "one") is None
    control.release(held)
    assert published(control, "two", None).sequence == 1


def test_a_published_run_can_t_be_rejected_nor_one_that_was_rolled_back_published_again(control: Control) -> None:
    one = published(control, "one", None)
    with pytest.raises(RunEndedError, match=r"it is published already \(publication 1"):
        control.reject(JOB, "one", "too late")
    held = control.acquire(JOB, "back")
    control.rollback(held, undo=one.sequence)
    control.release(held)
    with pytest.raises(RunEndedError, match="it is published already"):
        control.reject(JOB, "one", "too late")
    with pytest.raises(RunEndedError, match=r"was rolled back \(publication 1"):
        published(control, "one", None)
    assert control.standing(JOB) is None


def test_a_catalog_of_a_version_without_rejections_goes_on(uri: str) -> None:
    with Control(uri) as control:
        one = published(control, "one", None)
        with control._engine.begin() as connection:
            rejection.drop(connection)
    with Control(uri) as control:
        assert control.standing(JOB) == one
        control.reject(JOB, "two", "rejected by ada")
        with pytest.raises(RunEndedError):
            published(control, "two", one.sequence)


def test_a_rollback_brings_back_what_stood_before_and_keeps_history(control: Control, clock: Clock) -> None:
    one = published(control, "one", None)
    two = published(control, "two", one.sequence)
    held = control.acquire(JOB, "back")
    back = control.rollback(held, undo=two.sequence)
    # The job of publication 1 has run since, until it was stopped with what the second run read.
    assert back.restore_from == "/in/two"
    assert (back.undone, back.standing) == (two, one)
    assert control.standing(JOB) == one
    assert [(past.sequence, past.rolled_back_at) for past in control.history(JOB)] == [(1, None), (2, clock.now)]
    # Once more, as after a kill: nothing further is undone.
    assert control.rollback(held, undo=two.sequence).standing == one
    three = control.publish(held, record("three"), replaces=one.sequence)
    assert (three.sequence, three.previous) == (3, one.sequence)
    with pytest.raises(
        PublicationConflictError, match=r"expected publication 2 \(run two\) to stand, found publication 3"
    ):
        control.rollback(held, undo=two.sequence)
    with pytest.raises(PublicationConflictError, match="no publication 9"):
        control.rollback(held, undo=9)


def test_before_the_first_publication_there_was_its_source(control: Control) -> None:
    one = published(control, "one", None, checkpoint_id=7)
    held = control.acquire(JOB, "back")
    back = control.rollback(held, undo=one.sequence)
    assert (back.standing, back.restore_from) == (None, "/in/one")
    assert control.standing(JOB) is None
    # What stands decides what is older, and nothing stands.
    again = control.publish(held, record("two", 3), replaces=None)
    assert (again.sequence, again.previous) == (2, None)


def test_what_stands_and_what_stood_before_are_protected(control: Control) -> None:
    assert control.protected_runs(JOB) == frozenset()
    one = published(control, "one", None)
    assert control.protected_runs(JOB) == {"one"}
    two = published(control, "two", one.sequence)
    three = published(control, "three", two.sequence)
    assert control.protected_runs(JOB) == {"two", "three"}
    held = control.acquire(JOB, "back")
    control.rollback(held, undo=three.sequence)
    assert control.protected_runs(JOB) == {"one", "two"}


def test_every_error_is_an_answer_of_no() -> None:
    for kind in (LeaseHeldError, OlderSourceError, PublicationConflictError):
        assert issubclass(kind, RejectedError)
    # Who has lost the lease may get it again, and goes on.
    assert issubclass(LeaseLostError, TransientError)


@pytest.mark.parametrize(
    "uri", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///catalog.db", "nonsense", "nosuch://host/db"]
)
def test_a_catalog_that_can_t_be_is_refused(uri: str) -> None:
    with pytest.raises(UsageError, match="expected a catalog"):
        Control(uri)


def _acquire(uri: str, run_id: str, barrier: Callable[[], object]) -> str:
    with Control(uri) as control:
        barrier()
        try:
            return f"{control.acquire(JOB, run_id).token}"
        except LeaseHeldError:
            return "held"


def _publish(uri: str, run_id: str, barrier: Callable[[], object]) -> str:
    """Many times, each by a lease that others take away by force."""
    made = lost = 0
    with Control(uri) as control:
        barrier()
        for number in range(25):
            try:
                held = control.acquire(JOB, run_id, force=True)
                before = control.standing(JOB)
                sequence = None if before is None else before.sequence
                control.publish(held, record(f"{run_id}-{number}"), replaces=sequence)
                made += 1
            except (LeaseLostError, PublicationConflictError):
                lost += 1
    return f"{made} {lost}"


def _worker(work: str, uri: str, run_id: str, barrier: object, answers: object) -> None:
    wait = barrier.wait  # type: ignore[attr-defined]
    answers.put({"acquire": _acquire, "publish": _publish}[work](uri, run_id, wait))  # type: ignore[attr-defined]


def race(work: str, uri: str, processes: int) -> list[str]:
    spawn = multiprocessing.get_context("spawn")
    barrier, answers = spawn.Barrier(processes), spawn.Queue()
    workers = [
        spawn.Process(target=_worker, args=(work, uri, f"run{number}", barrier, answers)) for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=280) for _ in workers]
    for worker in workers:
        worker.join()
        worker.close()
    answers.close()
    answers.join_thread()
    return found


@pytest.mark.matrix(most=1)
@pytest.mark.slow
def test_of_several_processes_one_gets_the_lease(uri: str) -> None:
    # The database itself doesn't exist yet.
    answers = race("acquire", uri, 4)
    assert sorted(answers) == ["1", "held", "held", "held"]


@pytest.mark.matrix(most=1)
@pytest.mark.slow
def test_publications_of_several_processes_form_one_chain(uri: str) -> None:
    answers = [tuple(int(number) for number in answer.split()) for answer in race("publish", uri, 3)]
    made = sum(answer[0] for answer in answers)
    assert made + sum(answer[1] for answer in answers) == 75
    with Control(uri) as control:
        history = control.history(JOB)
    assert len(history) == made > 0
    assert [one.sequence for one in history] == list(range(1, made + 1))
    assert [one.previous for one in history] == [None, *range(1, made)]
