"""`stateferry run` and its kin as a user meets them: what they print, what they leave behind, and their exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.sql import SparkSession

from flinkstate.files.storage import Location
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar
from stateferry.changes.rules import Contradiction, Rules
from stateferry.cli import main
from stateferry.runs.catalog.publications import Control
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.record.facts import TimedFacts
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import FACTS_OF
from stateferry.runs.record.steps import Step
from stateferry.runs.report.report import Report
from stateferry.steps import cut_over, new_files
from stateferry.steps.run_at_work import RunAtWork
from tests.support.in_process import interrupted, step_done_by, without_spark
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

# With `--all` on Spark, else by this process itself, unless they are marked: what they look at is the same.
pytestmark = pytest.mark.slow
on_spark = pytest.mark.spark

DAY = 86_400_000
NOW = 100 * DAY
BEGUN = LegacyState(
    blobs={"cold": ({"a": 1, "b": 2}, 0), "empty": ({}, 0), "half": ({"a": 1, "b": 3}, 0)},
    rows={"hot": {"a": (5, 0), "c": (7, 0)}, "half": {"a": (9, 0)}},
    flags={"hot": 0},
)
CONTRADICTORY = BEGUN.with_changes(flags={"hot": 0, "half": 0})
MOVED_ROWS = {**BEGUN.rows, "other": {"a": (8, 0)}}
AGED = LegacyState(
    blobs={"old": ({"a": 1}, NOW - 31 * DAY), "young": ({"a": 2}, NOW - DAY)},
    rows={"rows": {"old": (3, NOW - 30 * DAY), "young": (4, NOW - 30 * DAY + 1)}},
    ttl=True,
)
NULLS = AGED.with_changes(blobs={"young": ({"a": 2, "b": None, "c": None}, NOW)})


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    error: str


@dataclass(frozen=True)
class Ferry:
    """The command line on places of one test's own."""

    folder: Path
    capture: pytest.CaptureFixture[str]

    @property
    def home(self) -> str:
        return str(self.folder / "home")

    def source(self, state: LegacyState, name: str = "source") -> str:
        path = str(self.folder / name)
        state.write(path)
        return path

    def target(self, name: str = "target") -> Path:
        return self.folder / name

    def __call__(self, *arguments: object) -> Said:
        self.capture.readouterr()
        code = main([str(argument) for argument in arguments])
        out, error = self.capture.readouterr()
        lines = [line for line in error.splitlines() if line.startswith("stateferry: ")]
        return Said(code, out, "\n".join(lines))

    def run(self, source: str, target: Path | str, *options: object) -> Said:
        return self("run", "--savepoint", source, "--target", target, *STATES, *options)

    def only_run(self) -> Run:
        (summary,) = runs_of(self.home)
        return Run.open(summary.folder)

    def entries(self, savepoint: str | Path, state: str = NEW) -> dict[tuple[str, str], tuple[object, int | None]]:
        said = self("dump", savepoint, "--operator", "main", "--state", state)
        assert said.code == 0, said.error
        lines = [json.loads(line) for line in said.out.splitlines()]
        return {(one["key"], one["user_key"]): (one["value"], one.get("timestamp")) for one in lines}


STATES = ("--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW, "--flag-state", FLAG)
TTL = ("--ttl", "30d", "--now", NOW)


@pytest.fixture
def ferry(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Ferry:
    """On Spark every command of the test finds the tests' session and uses it."""
    if request.node.get_closest_marker(on_spark.name) or request.config.getoption("--all"):
        session = request.getfixturevalue("spark")
        assert SparkSession.getActiveSession() is session
    else:
        without_spark(monkeypatch)
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    return Ferry(tmp_path, capsys)


def expected(state: LegacyState, source: str, **settings: object) -> dict[tuple[str, str], tuple[object, int | None]]:
    savepoint = Savepoint.open(source)
    legacy = savepoint.state(savepoint.operator("main"), LEGACY)
    rules = Rules(legacy, NEW, FLAG, 30 * DAY if state.ttl else None, NOW)
    return state.migrated(replace(rules, **settings))  # type: ignore[arg-type]


def state_names(savepoint: Path) -> set[str]:
    opened = Savepoint.open(str(savepoint))
    return {state.name for state in opened.keyed_states(opened.operator("main"))}


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@on_spark
def test_a_run_ends_in_a_whole_savepoint_and_the_same_command_again_does_nothing(ferry: Ferry) -> None:
    source, target = ferry.source(BEGUN), ferry.target()
    said = ferry.run(source, target)
    assert (said.code, said.error) == (0, "")
    assert "green: " in said.out
    assert "main/mainState: 3 entries" in said.out
    assert f"published: restore the new job from {target}" in said.out
    assert re.search(r"took: snapshot [\d.]+ s, .*, cut_over [\d.]+ s, tables [\d.]+ s\n", said.out)
    assert ferry.entries(target) == expected(BEGUN, source)
    assert state_names(target) == {NEW}
    before, runs = content(target), content(Path(ferry.home) / "runs")
    again = ferry.run(source, target)
    assert (again.code, again.out.startswith("nothing to do")) == (0, True)
    assert content(target) == before
    assert content(Path(ferry.home) / "runs") == runs


def test_a_target_that_holds_something_else_is_refused(ferry: Ferry) -> None:
    source, target = ferry.source(BEGUN), ferry.target()
    other = ferry.source(BEGUN.with_changes(checkpoint_id=2), "other")
    target.mkdir()
    (target / "note").write_text("mine")
    assert ferry.run(source, target).code == 2
    for taken in (other, str(Path(other) / "_metadata")):
        said = ferry.run(source, taken)
        assert said.code == 2
        assert "choose another target" in said.error
    assert content(target) == {"note": b"mine"}
    assert runs_of(ferry.home) == []


def test_a_rehearsal_publishes_nothing_and_says_where_the_savepoint_lies(ferry: Ferry) -> None:
    source, target = ferry.source(BEGUN), ferry.target()
    said = ferry.run(source, target, "--rehearse")
    run = ferry.only_run()
    assert said.code == 0
    assert f"the staged savepoint is {run.staged.shown}; nothing is published" in said.out
    assert not target.exists()
    assert ferry.entries(run.staged.path) == expected(BEGUN, source)
    status = json.loads(ferry("status", "--json").out)
    assert status["main"]["published"] is None
    # And then for good: the rehearsal is no reason to have nothing to do.
    assert ferry.run(source, target).code == 0
    assert (target / "_metadata").exists()


def test_named_states_that_the_savepoint_lacks_are_normal(ferry: Ferry, tmp_path: Path) -> None:
    """The job hasn't begun: it has neither rows nor flags, nor a description of them."""
    untouched = tmp_path / "untouched"
    made = ferry("demo-savepoint", untouched, "--keys", 50, "--entries", 3, "--migrated", 0)
    assert made.code == 0
    options = ("--new-state", "neverSeen", "--flag-state", "neitherThis")
    command = ("run", "--savepoint", untouched, "--target", ferry.target(), "--operator", "main")
    said = ferry(*command, "--legacy-state", LEGACY, *options)
    # The job declares a state that may be the one that is meant.
    assert said.code == 1
    assert "Did you mean --new-state newMainState?" in said.error
    assert ferry(*command, "--legacy-state", LEGACY, *options, "--accept-empty", "100%").code == 0
    assert len(ferry.entries(ferry.target(), "neverSeen")) == 150


@pytest.mark.full
def test_what_is_migrated_already_is_left_alone(ferry: Ferry) -> None:
    source, target = ferry.source(BEGUN), ferry.target()
    assert ferry.run(source, target).code == 0
    said = ferry.run(str(target), ferry.target("next"))
    assert said.code == 0
    assert f"{LEGACY} of main is already migrated" in said.out
    assert not ferry.target("next").exists()
    assert f"note: --flag-state had no effect: {LEGACY} of main is already migrated" in said.out
    # Another layout is something to do.
    assert ferry.run(str(target), ferry.target("next"), "--max-parallelism", 300).code == 0
    assert ferry.entries(ferry.target("next")) == ferry.entries(target)


def test_options_without_effect_are_said_and_in_the_report(ferry: Ferry) -> None:
    source = ferry.source(AGED.with_changes(blobs={"young": ({"a": 2}, NOW)}, rows={}))
    in_vain = ("--keep-expired", "--parallelism", 1)
    said = ferry.run(source, ferry.target(), *TTL, *in_vain)
    assert (said.code, said.error) == (0, "")
    notes = [
        f"--flag-state {FLAG} had no effect: this state of main has no entry, so no key is flagged",
        "--parallelism 1 had no effect: it is that of main already",
        "--keep-expired had no effect: nothing has expired",
    ]
    run = ferry.only_run()
    assert json.loads(run.report.read())["facts"]["snapshot"]["notes"] == notes
    assert list(Report.read(run.report).notes) == notes
    told = [line for line in said.out.splitlines() if line.startswith("note: ")]
    # As soon as it is known, and where the report says how it ended.
    assert told == [f"note: {note}" for note in notes] * 2
    verified = ferry("verify", source, ferry.target(), *STATES, *TTL, *in_vain)
    assert verified.code == 0
    # What is counted by a snapshot isn't known to who takes none.
    assert [line for line in verified.out.splitlines() if line.startswith("note: ")] == [f"note: {notes[1]}"]


@pytest.mark.full
@on_spark
def test_contradictions_stop_it_until_somebody_wins(ferry: Ferry) -> None:
    source = ferry.source(CONTRADICTORY)
    said = ferry.run(source, ferry.target())
    assert said.code == 1
    assert "1 key is flagged as migrated and still has a blob" in said.error
    assert not ferry.target().exists()
    assert ferry.only_run().state.value == "failed"
    for winner in ("blob", "rows"):
        target = ferry.target(winner)
        assert ferry.run(source, target, "--on-contradiction", winner).code == 0
        entries = expected(CONTRADICTORY, source, on_contradiction=Contradiction(winner))
        assert ferry.entries(target) == entries
    assert ferry.entries(ferry.target("blob")) != ferry.entries(ferry.target("rows"))


@pytest.mark.full
def test_a_flag_that_nobody_has_named_stops_it_until_somebody_says_what_it_is(ferry: Ferry) -> None:
    source = ferry.source(CONTRADICTORY.with_changes(flags={"hot": 0, "half": 0, "other": 0}, rows=MOVED_ROWS))
    named = ("run", "--savepoint", source, "--operator", "main", "--legacy-state", LEGACY, "--new-state", NEW)
    said = ferry(*named, "--target", ferry.target(), "--flag-state", "isMigrated")
    assert said.code == 2
    assert "did you mean --flag-state isMigratedState?" in said.error
    for options in ((), ("--flag-state", "other")):
        said = ferry(*named, "--target", ferry.target(), *options)
        assert said.code == 1
        assert "isMigratedState (ValueState<Boolean>) is true for 3 keys: 2 have rows" in said.error
        assert "Plan again with --flag-state isMigratedState if this state marks the moved keys" in said.error
        assert not ferry.target().exists()
        assert not (Path(ferry.home) / "warehouse").exists()
    assert {one.state for one in runs_of(ferry.home)} == {RunState.FAILED}
    said = ferry(*named, "--target", ferry.target(), "--flag-state", FLAG, "--no-flag-state")
    assert said.code == 2
    assert "a flag is named, and --no-flag-state says that there is none" in said.error
    assert ferry(*named, "--target", ferry.target("rows"), "--flag-state", FLAG, "--on-contradiction", "rows").code == 0
    assert state_names(ferry.target("rows")) == {NEW}
    assert ferry(*named, "--target", ferry.target("merged"), "--no-flag-state").code == 0
    assert state_names(ferry.target("merged")) == {NEW, FLAG}
    assert ferry.entries(ferry.target("rows")).keys() < ferry.entries(ferry.target("merged")).keys()


def test_nulls_that_cannot_be_kept_stop_it_until_they_may_be_dropped(ferry: Ferry) -> None:
    source, target = ferry.source(NULLS), ferry.target()
    said = ferry.run(source, target, *TTL)
    assert said.code == 1
    assert "2 entries have a null value, which a MapState with TTL can't hold" in said.error
    assert not target.exists()
    assert ferry.run(source, target, *TTL, "--nulls", "drop").code == 0
    kept = {place: found for place, found in expected(NULLS, source).items() if found[0] is not None}
    assert ferry.entries(target) == kept
    assert len(kept) == 2


@pytest.mark.full
def test_nulls_with_which_the_new_job_can_do_less_stop_it_until_a_word_is_said(ferry: Ferry) -> None:
    state = BEGUN.with_changes(blobs={**BEGUN.blobs, "null": ({"a": 1, "b": None}, 0)})
    source, target = ferry.source(state), ferry.target()
    said = ferry.run(source, target)
    assert said.code == 1
    assert "1 entry has a null value, which the serializer of Long can't write" in said.error
    assert "a job on the HashMap backend can't take a canonical savepoint any more" in said.error
    assert not target.exists()
    said = ferry.run(source, target, "--nulls", "keep")
    assert said.code == 0
    assert "note: 1 null value of mainState of main becomes a row, which the serializer of Long can't write" in said.out
    assert ferry.entries(target) == expected(state, source)
    assert ferry.entries(target)["null", "b"] == (None, None)
    assert ferry.run(source, ferry.target("dropped"), "--nulls", "drop", "--job", "other").code == 0
    dropped = ferry.entries(ferry.target("dropped"))
    assert dropped == {place: found for place, found in expected(state, source).items() if place != ("null", "b")}


@pytest.mark.full
@on_spark
def test_now_decides_what_has_expired(ferry: Ferry) -> None:
    source = ferry.source(AGED)
    assert ferry.run(source, ferry.target("cleaned"), *TTL).code == 0
    cleaned = {("young", "a"): (2, NOW - DAY), ("rows", "young"): (4, NOW - 30 * DAY + 1)}
    assert ferry.entries(ferry.target("cleaned")) == expected(AGED, source) == cleaned
    assert ferry.run(source, ferry.target("kept"), *TTL, "--keep-expired").code == 0
    assert len(ferry.entries(ferry.target("kept"))) == 4
    later = ("--ttl", "30d", "--now", NOW + 1)
    assert ferry.run(source, ferry.target("later"), *later).code == 0
    assert ferry.entries(ferry.target("later")) == {("young", "a"): (2, NOW - DAY)}


def test_a_ttl_on_one_side_only_is_a_wrong_plan(ferry: Ferry) -> None:
    assert ferry.run(ferry.source(AGED), ferry.target()).code == 2
    assert ferry.run(ferry.source(BEGUN, "without"), ferry.target(), *TTL).code == 2
    assert not ferry.target().exists()


def test_the_legacy_state_may_stay(ferry: Ferry) -> None:
    source, target = ferry.source(BEGUN), ferry.target()
    assert ferry.run(source, target, "--keep-legacy").code == 0
    assert state_names(target) == {LEGACY, NEW, FLAG}
    assert ferry.entries(target) == expected(BEGUN, source)


@pytest.mark.full
@on_spark
def test_layouts_are_as_wanted_and_the_rescale_plan_is_said_and_kept(ferry: Ferry) -> None:
    source, target = ferry.source(BEGUN), ferry.target()
    said = ferry.run(source, target, "--parallelism", 5, "--max-parallelism", 300)
    assert said.code == 0
    assert "rescale plan: main: 1 -> 5 subtasks, max parallelism 128 -> 300" in said.out
    operator = Savepoint.open(str(target)).operator("main")
    assert (operator.parallelism, operator.max_parallelism) == (5, 300)
    other = ferry.run(source, ferry.target("other"), "--parallelism", 2)
    assert "main: 1 -> 2 subtasks" in other.out
    plans = [json.loads(one.folder.child("rescale-plan.json").read()) for one in runs_of(ferry.home, "main")]
    reads = next(plan[0]["reads"] for plan in plans if plan[0]["reads"] is not None)
    assert {read["subtask"] for read in reads} <= {0, 1}
    assert {read["from_subtask"] for read in reads} == {0}
    assert ferry.entries(ferry.target("other")) == ferry.entries(target) == expected(BEGUN, source)


def test_a_plan_file_says_it_all_and_options_override_it(ferry: Ferry, tmp_path: Path) -> None:
    source, target = ferry.source(AGED), ferry.target()
    state = {"legacy": LEGACY, "new": NEW, "flag": FLAG, "ttl_ms": 30 * DAY}
    plan = {
        "job": "orders",
        "source": source,
        "target": str(ferry.target("unwanted")),
        "now": NOW,
        "operators": [{"operator": "main", "states": [state]}],
    }
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    assert ferry("run", "--plan", file, "--target", target).code == 0
    assert ferry.entries(target) == expected(AGED, source)
    assert not ferry.target("unwanted").exists()
    assert [one.job for one in runs_of(ferry.home)] == ["orders"]
    file.write_text(json.dumps(plan | {"colour": "red"}))
    said = ferry("run", "--plan", file)
    assert (said.code, "colour" in said.error) == (2, True)


@pytest.mark.full
def test_a_held_lease_excludes_another_run(ferry: Ferry) -> None:
    source, target = ferry.source(BEGUN), ferry.target()
    assert ferry.run(source, target, "--rehearse").code == 0
    with Control(f"sqlite:///{ferry.home}/catalog.db") as control:
        lease = control.acquire("main", "another-run")
        said = ferry.run(source, target)
        assert said.code == 1
        assert "job main is being worked on by run another-run" in said.error
        assert not target.exists()
        control.release(lease)
    assert ferry.run(source, target).code == 0


def test_who_lost_the_lease_commits_nothing(ferry: Ferry, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = ferry.source(BEGUN), ferry.target()

    def robbed(do: Callable[[RunAtWork], TimedFacts], work: RunAtWork) -> TimedFacts:
        with Control(f"sqlite:///{ferry.home}/catalog.db") as control:
            control.acquire("main", "another-run", force=True)
        return do(work)

    step_done_by(monkeypatch, Step.VALIDATE, robbed)
    said = ferry.run(source, target)
    assert said.code == 75
    assert "has lost the lease of job main" in said.error
    assert not (target / "_metadata").exists()
    assert json.loads(ferry("status", "--json").out)["main"]["published"] is None


def test_an_older_source_than_the_published_one_is_refused(ferry: Ferry) -> None:
    newer = ferry.source(BEGUN.with_changes(checkpoint_id=7), "newer")
    older = ferry.source(BEGUN.with_changes(checkpoint_id=6), "older")
    assert ferry.run(newer, ferry.target("new")).code == 0
    said = ferry.run(older, ferry.target("old"))
    assert said.code == 1
    assert "checkpoint 6, older than checkpoint 7" in said.error
    assert not ferry.target("old").exists()
    assert len(runs_of(ferry.home)) == 1


def test_a_rollback_brings_back_what_stood_before(ferry: Ferry) -> None:
    first = ferry.source(BEGUN, "first")
    second = ferry.source(BEGUN.with_changes(checkpoint_id=2), "second")
    assert ferry.run(first, ferry.target("one")).code == 0
    assert ferry.run(second, ferry.target("two")).code == 0
    shown = ferry("status").out
    assert str(ferry.target("two")) in shown
    assert f"a rollback brings back: {second} (the source), and publication 1 stands again\n" in shown
    # The run before it had shown what each part takes.
    assert re.search(r"took: snapshot [\d.]+ s \(predicted [\d.]+\), .*tables [\d.]+ s \(predicted [\d.]+\)\n", shown)
    said = ferry("rollback", "--job", "main")
    assert (said.code, f"restore the job from {second}" in said.out) == (0, True)
    status = json.loads(ferry("status", "--json").out)["main"]
    assert status["published"]["target"] == str(ferry.target("one"))
    said = ferry("rollback", "--job", "main")
    assert f"restore the job from {first}" in said.out
    assert "published: nothing" in ferry("status").out
    said = ferry("rollback", "--job", "main")
    assert (said.code, "nothing to roll back" in said.error) == (1, True)
    listed = json.loads(ferry("runs", "--json").out)
    assert [one["state"] for one in listed] == ["rolled back", "rolled back"]
    assert (ferry.target("one") / "_metadata").exists()


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("step", [Step.MIGRATE, Step.RESCALE, Step.VALIDATE, Step.TABLES])
def test_a_run_that_was_stopped_goes_on_where_it_was(step: Step, ferry: Ferry, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = ferry.source(BEGUN), ferry.target()

    def stopped(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        step_done_by(patch, step, stopped)
        assert ferry.run(source, target).code == 130
    # The tables come after the publication.
    assert (target / "_metadata").exists() == (step is Step.TABLES)
    run = ferry.only_run()
    before = {step: run.stored(FACTS_OF[step]) for step in Step if run.has_done(step)}
    assert "snapshot" in before
    assert step not in before
    assert ferry.run(source, target).code == 0
    assert ferry.only_run().folder == run.folder
    assert {step: run.stored(FACTS_OF[step]) for step in before} == before
    assert ferry.entries(target) == expected(BEGUN, source)


def test_a_kill_after_the_commit_point_is_made_good(ferry: Ferry, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = ferry.source(BEGUN), ferry.target()

    with monkeypatch.context() as patch:
        patch.setattr(TargetMetadata, "roll_forward", interrupted)
        assert ferry.run(source, target).code == 130
    assert not (target / "_metadata").exists()
    assert ferry.run(source, target).code == 0
    assert ferry.entries(target) == expected(BEGUN, source)
    assert ferry.only_run().state.value == "published"


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    # The last byte before the end mark of the last key group: part of a value, in a chunk with a checksum.
    data[-3] ^= 1
    file.write_bytes(data)


def flipping(run: Callable[..., object], folder: Path) -> Callable[..., object]:
    def sabotaged(*arguments: object, **settings: object) -> object:
        answer = run(*arguments, **settings)
        flip(next(folder.glob("*-keyed-*")))
        return answer

    return sabotaged


@pytest.mark.full
@on_spark
def test_red_validation_publishes_nothing(ferry: Ferry, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = ferry.source(BEGUN), ferry.target()
    with monkeypatch.context() as patch:
        patch.setattr(new_files, "copy", flipping(new_files.copy, target))
        said = ferry.run(source, target)
    assert said.code == 1
    assert "the staged savepoint failed its checks, so nothing is published: main: readable" in said.error
    assert "nothing may be published" in said.out
    assert not (target / "_metadata").exists()
    run = ferry.only_run()
    assert not Report.read(run.report).is_green
    # Once nobody is at it any more, the same command mends it.
    assert ferry.run(source, target).code == 0
    assert ferry.entries(target) == expected(BEGUN, source)


def test_bytes_that_changed_after_the_validation_are_not_published(
    ferry: Ferry, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = ferry.source(BEGUN), ferry.target()
    publish: Callable[..., object] = cut_over.publish

    def sabotaged(*arguments: object) -> object:
        flip(next(target.glob("*-keyed-*")))
        return publish(*arguments)

    monkeypatch.setattr(cut_over, "publish", sabotaged)
    said = ferry.run(source, target)
    assert (said.code, "are not those that were validated" in said.error) == (1, True)
    assert not (target / "_metadata").exists()


@pytest.mark.full
@on_spark
def test_verify_tells_a_damaged_target_from_a_damaged_source(ferry: Ferry) -> None:
    source, target = ferry.source(BEGUN), ferry.target()
    assert ferry.run(source, target).code == 0
    assert ferry("verify", source, target, *STATES).code == 0
    # The same content is not the same promise.
    assert ferry("verify", source, target, *STATES, "--keep-legacy").code == 1
    data = next(file for file in target.iterdir() if file.name != "_metadata")
    whole = data.read_bytes()
    for damage in (whole[:-10], whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:], b""):
        data.write_bytes(damage)
        said = ferry("verify", source, target, *STATES)
        assert said.code == 1
        assert "failed" in said.out
    data.unlink()
    assert ferry("verify", source, target, *STATES).code == 1
    data.write_bytes(whole)
    assert ferry("verify", source, target, *STATES).code == 0
    (target / "_metadata").write_bytes(b"\0\1")
    assert ferry("verify", source, target, *STATES).code == 1
    cut = next(file for file in Path(source).iterdir() if file.name != "_metadata")
    cut.write_bytes(cut.read_bytes()[:-10])
    assert ferry("verify", source, target, *STATES).code == 3


@on_spark
def test_a_damaged_source_is_damage_and_nothing_is_written(ferry: Ferry) -> None:
    source, target = ferry.source(BEGUN), ferry.target()
    data = next(file for file in Path(source).iterdir() if file.name != "_metadata")
    whole = data.read_bytes()
    data.write_bytes(whole[:-10])
    said = ferry.run(source, target)
    assert said.code == 3
    assert "expected" in said.error
    assert data.name in said.error
    assert not target.exists()
    (Path(source) / "_metadata").unlink()
    assert ferry.run(source, target).code == 3
    assert ferry("run", "--savepoint", source).code == 2


def test_no_room_is_said_before_anything_is_written(ferry: Ferry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateferry.runs.checks.space.free_bytes", lambda _: 10)
    said = ferry.run(ferry.source(BEGUN), ferry.target())
    assert (said.code, "bytes free" in said.error) == (2, True)
    assert not ferry.target().exists()


def test_a_state_of_texts_keeps_its_nulls_under_ttl(ferry: Ferry) -> None:
    texts = LegacyState(blobs={"k": ({"a": "x", "b": None}, NOW)}, ttl=True, value=Scalar.STRING)
    source = ferry.source(texts)
    assert ferry.run(source, ferry.target(), *TTL).code == 0
    assert ferry.entries(ferry.target()) == {("k", "a"): ("x", NOW), ("k", "b"): (None, NOW)}


def test_the_report_says_what_was_found(ferry: Ferry) -> None:
    said = ferry.run(ferry.source(AGED), ferry.target(), *TTL)
    report = Report.read(Location.of(said.out.split("report: ")[1].splitlines()[0]))
    assert report.is_green
    assert report.facts["snapshot"]["states"]["main/mainState"]["entries"] == 2
    assert report.facts["snapshot"]["met"]["main/mainState"]["blobs expired"] == 1
    assert report.facts["tables"]["counts"]["main/newMainState"]["keys walked"] == 3
    assert "1 blobs expired" in said.out
