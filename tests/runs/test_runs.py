"""A run's folder: what is done stays done, for this plan alone, and what was cut off was never there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError, PlanError, RejectedError, StateferryError, UsageError
from flinkstate.files.storage import Location
from stateferry.cli.options import named_run
from stateferry.runs.checks.plan_check import planned
from stateferry.runs.control.cleaning import Retention, removable
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.run_folder import folder_name
from stateferry.runs.record.run_list import RunSummary, asked_for_before, find_run, runs_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import MigrateFacts, SnapshotFacts, StateSize
from stateferry.runs.record.steps import Step

NOW = 1_700_000_000_000
FACTS = SnapshotFacts(states={"main/mainState": StateSize(5, 100)}, notes=("a",), seconds=1.5)


def plan_at(home: Path, **more: Any) -> MigrationPlan:
    state = {"legacy": "mainState", "new": "newMainState"}
    values = {
        "job": "orders",
        "source": "/in",
        "target": "/out",
        "operators": [{"operator": "main", "states": [state]}],
        "home": str(home),
    }
    return plan_of({**values, **more})


def test_a_run_remembers_its_plan_and_how_far_it_came(tmp_path: Path) -> None:
    plan = plan_at(tmp_path, run_id="one")
    run = Run.create(plan, NOW)
    assert run.folder.path == f"{tmp_path}/runs/orders/one"
    run.enter(RunState.RUNNING, NOW + 1)
    assert run.facts(SnapshotFacts) is None
    run.keep(FACTS)
    again = Run.create(plan, NOW + 2)
    assert again.plan == plan
    assert again.facts(SnapshotFacts) == FACTS
    assert [step for step in Step if again.has_done(step)] == [Step.SNAPSHOT]
    assert [(change.state, change.at) for change in again.changes()] == [
        (RunState.PLANNED, NOW),
        (RunState.RUNNING, NOW + 1),
    ]
    again.forget(SnapshotFacts)
    assert again.facts(SnapshotFacts) is None
    again.forget(SnapshotFacts, MigrateFacts)


def test_facts_of_another_plan_are_none(tmp_path: Path) -> None:
    run = Run.create(plan_at(tmp_path, run_id="one"), NOW)
    run.keep(FACTS)
    other = Run(plan_at(tmp_path, run_id="one", keep_legacy=True), run.folder)
    assert other.facts(SnapshotFacts) is None
    assert not other.has_done(Step.SNAPSHOT)


def test_a_run_id_belongs_to_one_plan(tmp_path: Path) -> None:
    Run.create(plan_at(tmp_path, run_id="one", now=5), NOW)
    with pytest.raises(PlanError, match="run one of job orders exists already, with another plan"):
        Run.create(plan_at(tmp_path, run_id="one", now=6), NOW)


def test_what_a_kill_leaves_half_written_is_not_seen(tmp_path: Path) -> None:
    plan = plan_at(tmp_path, run_id="one")
    run = Run.create(plan, NOW)
    (Path(run.folder.path) / "steps").mkdir()
    (Path(run.folder.path) / "steps" / "snapshot.json.abc.draft").write_text('{"pl')
    (Path(run.folder.path) / "state.json.abc.draft").write_text("[")
    assert not Run.create(plan, NOW).has_done(Step.SNAPSHOT)
    # Killed between the plan and the first state:
    (Path(run.folder.path) / "state.json").unlink()
    assert Run.create(plan, NOW + 1).state is RunState.PLANNED


def test_states_follow_each_other(tmp_path: Path) -> None:
    run = Run.create(plan_at(tmp_path, run_id="one"), NOW)
    for state in (RunState.RUNNING, RunState.STAGED, RunState.VERIFIED, RunState.APPROVED, RunState.PUBLISHED):
        run.enter(state, NOW)
    with pytest.raises(RejectedError, match="a run that is published can't become running"):
        run.enter(RunState.RUNNING, NOW)
    run.enter(RunState.ROLLED_BACK, NOW, "the new job was slow")
    with pytest.raises(RejectedError, match="a run that is rolled back can't become published"):
        run.enter(RunState.PUBLISHED, NOW)
    # Nor does a driver that says so late.
    run.note(RunState.PUBLISHED, NOW)
    assert [change.reason for change in run.changes()][-1] == "the new job was slow"


def test_a_run_isn_t_published_before_it_is_verified(tmp_path: Path) -> None:
    run = Run.create(plan_at(tmp_path, run_id="one"), NOW)
    for state in (RunState.APPROVED, RunState.PUBLISHED, RunState.ROLLED_BACK):
        with pytest.raises(RejectedError, match="a run that is planned can't become"):
            run.enter(state, NOW)


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.REJECTED])
def test_what_stops_a_run_has_a_reason(tmp_path: Path, state: RunState) -> None:
    run = Run.create(plan_at(tmp_path, run_id="one"), NOW)
    with pytest.raises(UsageError, match="give a reason"):
        run.enter(state, NOW)
    run.enter(state, NOW, "no room")
    run.enter(state, NOW + 5, "no room")
    assert len(run.changes()) == 2
    if state is RunState.REJECTED:
        # A no stays a no.
        for later in set(RunState) - {state}:
            with pytest.raises(RejectedError, match=f"a run that is rejected can't become {later.value}"):
                run.enter(later, NOW + 6, "mended")
    else:
        run.enter(RunState.RUNNING, NOW + 6)
    assert run.state is (state if state is RunState.REJECTED else RunState.RUNNING)


def test_the_same_request_finds_its_run(tmp_path: Path) -> None:
    assert asked_for_before(plan_at(tmp_path)) is None
    earlier = Run.create(plan_at(tmp_path, run_id="b", now=5), NOW)
    Run.create(plan_at(tmp_path, run_id="c", now=6, keep_legacy=True), NOW + 2)
    found = asked_for_before(plan_at(tmp_path))
    assert found is not None
    assert found.plan == earlier.plan
    assert asked_for_before(plan_at(tmp_path, now=9)) is None
    assert asked_for_before(plan_at(tmp_path, run_id="x")) is None
    assert asked_for_before(plan_at(tmp_path, job="another job")) is None
    newer = Run.create(plan_at(tmp_path, run_id="a", now=7), NOW + 1)
    assert asked_for_before(plan_at(tmp_path)) == newer


def test_a_published_run_is_found_only_if_asked_for(tmp_path: Path) -> None:
    run = Run.create(plan_at(tmp_path, run_id="one"), NOW)
    for state in (RunState.RUNNING, RunState.VERIFIED, RunState.PUBLISHED):
        run.enter(state, NOW)
    assert asked_for_before(plan_at(tmp_path)) is None
    assert asked_for_before(plan_at(tmp_path), {RunState.PUBLISHED}) == run


def test_runs_are_listed_the_newest_first_and_the_unreadable_last(tmp_path: Path) -> None:
    assert runs_of(str(tmp_path)) == []
    for at, (job, run_id) in enumerate([("orders", "a"), ("Window(5 min) -> Sink: x", "b"), ("orders", "c")]):
        Run.create(plan_at(tmp_path, job=job, run_id=run_id), NOW + at).enter(RunState.FAILED, NOW + 10, "no room")
    (tmp_path / "runs" / "orders" / "broken").mkdir()
    (tmp_path / "runs" / "orders" / "broken" / "plan.json").write_text("{")
    (tmp_path / "runs" / "orders" / "empty").mkdir()
    listed = runs_of(str(tmp_path))
    assert [run.run_id for run in listed[:3]] == ["c", "b", "a"]
    assert {run.run_id for run in listed[3:]} == {"broken", "empty"}
    assert listed[1].job == "Window(5 min) -> Sink: x"
    assert (listed[0].state, listed[0].reason, listed[0].planned_at) == (RunState.FAILED, "no room", NOW + 2)
    assert all(run.state is None and run.plan is None and "expected" in run.reason for run in listed[3:])
    assert [run.run_id for run in runs_of(str(tmp_path), "Window(5 min) -> Sink: x")] == ["b"]
    assert runs_of(str(tmp_path), "nobody") == []


def test_damage_is_said_with_its_file(tmp_path: Path) -> None:
    run = Run.create(plan_at(tmp_path, run_id="one"), NOW)
    other = {"step": "snapshot", "plan": run.plan.fingerprint, "facts": {"states": {"main/a": {"entries": "many"}}}}
    damage = {
        "state.json": '[{"state": "asleep", "at": 5}]',
        "steps/snapshot.json": "{",
        "steps/../steps/snapshot.json": json.dumps(other),
    }
    run.keep(FACTS)
    for name, content in damage.items():
        (Path(run.folder.path) / name).write_text(content)
        with pytest.raises(StateferryError, match=f"{name.rpartition('../')[2]}: expected"):
            run.changes() if name == "state.json" else run.facts(SnapshotFacts)


def test_a_run_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    for run_id in ("20260101-a", "20260102-b", "20260102-bc"):
        Run.create(plan_at(tmp_path, run_id=run_id), NOW)
    assert find_run(str(tmp_path), "orders", "20260101").plan.run_id == "20260101-a"
    assert find_run(str(tmp_path), "orders", "20260102-b").plan.run_id == "20260102-b"
    with pytest.raises(UsageError, match="job orders has 2 runs '20260102'"):
        find_run(str(tmp_path), "orders", "20260102")
    with pytest.raises(UsageError, match=r"job orders has no run 'x'\. There are: "):
        find_run(str(tmp_path), "orders", "x")


def test_the_beginning_of_a_rehearsal_s_id_means_none_of_its_catch_ups(tmp_path: Path) -> None:
    for run_id in (
        "20260101-a",
        "20260101-a.catch_up_1",
        "20260101-a.catch_up_2",
        f"{'r' * 90}",
        f"{'r' * 80}.catch_up_1",
    ):
        Run.create(plan_at(tmp_path, run_id=run_id), NOW)
    Run.create(plan_at(tmp_path, run_id="20260101-a.catch_up_1-0123ab"), NOW)
    for name, found in (("2026", "20260101-a"), ("20260101-a.catch_up_2", "20260101-a.catch_up_2"), ("r", "r" * 90)):
        assert find_run(str(tmp_path), "orders", name).plan.run_id == found
        assert named_run(name, None, lambda: str(tmp_path)).plan.run_id == found
    with pytest.raises(UsageError, match=r"job orders has 3 runs '20260101-a\.catch'"):
        find_run(str(tmp_path), "orders", "20260101-a.catch")
    # Another job has a run of the same name.
    Run.create(plan_at(tmp_path, run_id="20260101-a", job="other"), NOW)
    with pytest.raises(UsageError, match=r"has 2 runs '2026': 20260101-a of job .*, 20260101-a of job .*"):
        named_run("2026", None, lambda: str(tmp_path))


def test_the_base_is_named_without_doubt_also_if_it_was_removed(tmp_path: Path) -> None:
    def since(name: str) -> str | None:
        asked = plan_at(tmp_path, output_format="native", since=name).model_dump(exclude={"now", "now_from"})
        return planned(asked).since

    for number, base in ((1, "20260101-a"), (2, "20260101-a.catch_up_1")):
        Run.create(
            plan_at(
                tmp_path, run_id=f"20260101-a.catch_up_{number}", output_format="native", since=base, rehearse=True
            ),
            NOW,
        )
    # The rehearsal was removed: its whole id still means it, and the beginning of the others' ids means none of them.
    assert since("20260101-a") == "20260101-a"
    with pytest.raises(UsageError, match="job orders has 2 runs '20260101'"):
        since("20260101")
    Run.create(plan_at(tmp_path, run_id="later", output_format="native", since="gone-1", rehearse=True), NOW)
    assert since("gone") == "gone-1"
    Run.create(plan_at(tmp_path, run_id="latest", output_format="native", since="gone-2", rehearse=True), NOW)
    with pytest.raises(UsageError, match=r"job orders has no run 'gone'.*if it was removed"):
        since("gone")
    assert since("later") == "later"


@given(st.lists(st.text(), unique=True, max_size=20))
def test_jobs_have_folders_of_their_own(jobs: list[str]) -> None:
    names = [folder_name(job) for job in jobs]
    assert len(set(names)) == len(names)
    for name in names:
        assert len(name.encode()) <= 100
        assert name not in (".", "..")
        assert "/" not in name
        assert name.isascii()


def test_a_plain_job_s_folder_is_called_like_it() -> None:
    assert folder_name("orders-2") == "orders-2"
    assert folder_name("..").startswith("job~")
    assert folder_name("Source: gate").startswith("Source-gate~")


DAY = 86_400_000


def summaries(tmp_path: Path, ages: list[int]) -> list[RunSummary]:
    for number, age in enumerate(ages):
        Run.create(plan_at(tmp_path, run_id=f"r{number}"), NOW - age * DAY)
    return runs_of(str(tmp_path), "orders")


def test_old_runs_may_go_but_never_what_is_published_or_stood_before(tmp_path: Path) -> None:
    runs = summaries(tmp_path, [50, 40, 30, 20, 10, 0])
    rule = Retention(newest=2, younger_than_ms=14 * DAY)
    assert [run.run_id for run in removable(runs, (), rule, NOW)] == ["r0", "r1", "r2", "r3"]
    assert [run.run_id for run in removable(runs, {"r0", "r2"}, rule, NOW)] == ["r1", "r3"]
    assert removable(runs, (), Retention(newest=6), NOW) == []
    assert [run.run_id for run in removable(runs, (), Retention(newest=0, younger_than_ms=45 * DAY), NOW)] == ["r0"]


def test_a_run_that_changed_lately_stays(tmp_path: Path) -> None:
    summaries(tmp_path, [50, 40, 0])
    find_run(str(tmp_path), "orders", "r0").enter(RunState.REJECTED, NOW - DAY, "not now")
    runs = runs_of(str(tmp_path), "orders")
    assert [run.run_id for run in removable(runs, (), Retention(newest=1), NOW)] == ["r1"]


def test_a_folder_that_never_became_a_run_may_go_unless_it_is_at_work(tmp_path: Path) -> None:
    summaries(tmp_path, [0])
    Location.of(str(tmp_path)).child("runs").child("orders").child("begun").make_folder()
    runs = runs_of(str(tmp_path), "orders")
    assert [run.run_id for run in removable(runs, (), Retention(newest=1), NOW)] == ["begun"]
    assert removable(runs, {"begun"}, Retention(newest=1), NOW) == []


def test_facts_are_plain_json(tmp_path: Path) -> None:
    run = Run.create(plan_at(tmp_path, run_id="one"), NOW)
    with pytest.raises(ValueError, match="Out of range float"):
        run.keep(SnapshotFacts(seconds=float("nan")))
    assert run.facts(SnapshotFacts) is None
    odd = SnapshotFacts(states={"main/日本\ud800": StateSize(5, 2**63)}, notes=("\ud800",), seconds=1.5)
    run.keep(odd)
    assert run.facts(SnapshotFacts) == odd
    file = Path(run.folder.path) / "steps" / "snapshot.json"
    content = json.loads(file.read_bytes())
    digest = content.pop("digest")
    assert content == {
        "step": "snapshot",
        "plan": run.plan.fingerprint,
        "facts": {
            "states": {"main/日本\ud800": {"entries": 5, "bytes": 2**63}},
            "met": {},
            "notes": ["\ud800"],
            "read": {},
            "seconds": 1.5,
        },
    }
    # What doesn't fit to its digest, or has none, is not believed.
    content["facts"]["seconds"] = 2.5
    for more in ({"digest": digest}, {}):
        file.write_text(json.dumps(content | more))
        with pytest.raises(DamagedError, match=r"steps/snapshot.json: expected facts of digest .* remove the file"):
            run.facts(SnapshotFacts)
    assert run.facts_if_sound(SnapshotFacts) is None
