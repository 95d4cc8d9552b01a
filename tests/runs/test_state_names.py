"""Names that the savepoint lacks: for what they may have been meant, and what shows that a state was migrated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.basics.did_you_mean import is_alike, is_slip
from flinkstate.classfiles.class_file import PUBLIC, ClassFile
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import PlanError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.reading.reader import operator_id
from flinkstate.serializers.built_snapshots import map_snapshot, simple_snapshot, ttl_snapshot
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import FlinkType, KryoType, MapType, NullableType, PojoField, PojoType, Scalar
from stateferry.basics.exit_codes import REJECTED, USAGE
from stateferry.cli import main
from stateferry.cli.commands.look_into import main as check
from stateferry.inventory.wrong_name_signs import may_hold
from stateferry.runs.checks.plan_check import resolve
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.guards.option_notes import nothing_to_do_lines
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.facts import NothingToDo
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.show.jobs_page import Job, jobs_page, verdict
from stateferry.show.outcome import outcome_line
from stateferry.show.run_rows import row_of
from stateferry.show.run_view import RunView
from tests.runs.test_name_guard import BEGUN, COLD, DAY, MOVED, NOW, OTHER, blobs, flags, resolved, rows
from tests.support.in_process import do_step
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

pytestmark = pytest.mark.usefixtures("home")

DONE = replace(BEGUN, blobs={}, lacks=frozenset({LEGACY}))
WITHOUT_FLAG = replace(DONE, flags={}, has_flag_state=False)
COLD_ALONE = LegacyState({"key": ({"a": 1}, 0)}, lacks=frozenset({NEW, FLAG}))
OTHER_MAP_STATE = replace(WITHOUT_FLAG, more_rows={OTHER: rows(*COLD)}, checkpoint_id=2)


def problem(folder: Path, state: LegacyState, *plans: dict[str, object], **options: object) -> str:
    with pytest.raises(PlanError) as caught:
        nothing_to_do_lines(resolved(folder, state, *plans, **options))
    return str(caught.value)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("newMainStat", "newMainState", True),
        ("new_main_state", "newMainState", True),
        ("newMainState", "NEWMAINSTATE", True),
        ("counts", "amounts", False),
    ],
)
def test_names_that_are_slips(one: str, other: str, alike: bool) -> None:
    assert is_alike(one, other) is alike


@pytest.mark.parametrize(
    ("one", "other", "slip"),
    [
        ("newMainStat", "newMainState", True),
        ("count", "counts", True),
        ("newMainState", "mainState", False),
        ("userEventsV1", "userEventsV2", False),
    ],
)
def test_names_that_differ_by_a_letter(one: str, other: str, slip: bool) -> None:
    assert is_slip(one, other) is slip


@pytest.mark.parametrize("kryo", [None, 2, 5])
@pytest.mark.parametrize("wrong", ["mainStat", "x"])
def test_a_wrong_legacy_state_is_not_nothing_to_do(wrong: str, kryo: int | None, tmp_path: Path) -> None:
    said = problem(tmp_path, replace(BEGUN, kryo=kryo), {"legacy": wrong})
    assert f"no keyed state '{wrong}', and nothing shows that it was migrated before: mainState may have" in said
    assert ("Did you mean mainState?" in said) is (wrong == "mainStat")
    assert "There are: mainState, newMainState, isMigratedState" in said


MAP = MapType(Scalar.STRING, Scalar.LONG)
OTHER_MAP = MapType(Scalar.STRING, Scalar.STRING)


@pytest.mark.parametrize(
    ("value", "may", "may_any"),
    [
        (MAP, True, True),
        (NullableType(MapType(NullableType(Scalar.STRING, 0), Scalar.LONG), 0), True, True),
        (OTHER_MAP, False, True),
        (KryoType("java.util.HashMap"), True, True),
        (KryoType("java.lang.Object"), True, True),
        (KryoType("java.util.UUID"), False, False),
        # By the job's classes, of which one extends HashMap.
        (KryoType("com.acme.Cache"), True, True),
        (KryoType("com.acme.Plain"), False, False),
        (PojoType("com.acme.Totals", (PojoField("counts", MAP),)), True, True),
        (PojoType("com.acme.Totals", (PojoField("counts", OTHER_MAP),)), False, True),
        (PojoType("com.acme.Totals", (PojoField("counts", KryoType("java.util.Map")),)), True, True),
        (PojoType("com.acme.Totals", (PojoField("count", Scalar.LONG),)), False, False),
        (Scalar.LONG, False, False),
    ],
)
def test_which_states_may_hold_the_maps(value: FlinkType, may: bool, may_any: bool) -> None:
    state = KeyedState("s", StateKind.VALUE, Scalar.STRING, Scalar.VOID_NAMESPACE, None, value, True, False)
    above = {"com.acme.Cache": "java.util.HashMap", "com.acme.Plain": "java.lang.Object"}
    job = JobClasses("job", {name: ClassFile(name, one, (), PUBLIC, (), None, False) for name, one in above.items()})
    assert (may_hold(state, job, MAP), may_hold(state, job)) == (may, may_any)
    assert not may_hold(replace(state, kind=StateKind.LIST), job)


@pytest.mark.parametrize("state", [DONE, WITHOUT_FLAG], ids=["all flags are set", "the flags are gone"])
def test_what_was_migrated_is_nothing_to_do(state: LegacyState, tmp_path: Path) -> None:
    assert nothing_to_do_lines(resolved(tmp_path, state))[0].startswith("nothing to do: mainState of main is already")


def test_a_flag_that_is_not_set(tmp_path: Path) -> None:
    said = problem(tmp_path, replace(DONE, false_flags=flags("waiting")))
    assert "it isn't migrated: isMigratedState is not set for 1 key. Name the state that has their maps" in said


def test_a_flag_that_has_expired_was_set(tmp_path: Path) -> None:
    """It was true, so the key was moved; a false one says that it wasn't, expired or not."""
    set_ = {key: NOW - (40 * DAY if key == MOVED[0] else DAY) for key in MOVED}
    state = replace(DONE, ttl=True, flags=set_)
    assert nothing_to_do_lines(resolved(tmp_path, state))[0].startswith("nothing to do: mainState of main is already")
    said = problem(tmp_path / "unset", replace(state, false_flags={"waiting": NOW - 40 * DAY}))
    assert "it isn't migrated: isMigratedState is not set for 1 key. Name the state" in said


def test_flags_of_keys_without_rows(tmp_path: Path) -> None:
    said = problem(tmp_path, replace(DONE, flags=flags(*MOVED, *COLD)))
    assert "100 keys are flagged as moved by isMigratedState, but newMainState has no rows of 60 of them" in said


def test_the_state_of_that_name_in_another_operator_may_be_meant(tmp_path: Path) -> None:
    source = DONE.write(str(tmp_path / "source"), enrich=BEGUN)
    states = [{"legacy": LEGACY, "new": NEW, "flag": FLAG}]
    values = {"source": str(tmp_path / "source"), "target": str(tmp_path / "target"), "home": str(tmp_path / "home")}

    def of(*operators: str) -> ResolvedPlan:
        named = [{"operator": operator, "states": states} for operator in operators]
        return resolve(plan_of({**values, "job": "orders", "operators": named}), source)

    with pytest.raises(
        PlanError, match="operator enrich has a state 'mainState' of maps: did you mean --operator enrich"
    ):
        of("main")
    assert [one.operator.label for one, _ in of("main", "enrich").migrated_before] == ["main"]


def test_another_state_in_the_plan_is_not_meant(tmp_path: Path) -> None:
    state = replace(WITHOUT_FLAG, more_blobs={OTHER: blobs(*COLD)})
    one: dict[str, object] = {"flag": None}
    other: dict[str, object] = {"legacy": OTHER, "new": "another", "flag": None}
    assert "otherState may have been meant" in problem(tmp_path / "one", state, one)
    assert resolved(tmp_path / "both", state, one, other).migrated_before


@pytest.mark.parametrize(
    ("given", "meant", "way_out"),
    [
        ({"new": "newMainStat"}, "--new-state newMainState", {"accept_empty": 1}),
        ({"flag": "isMigrated"}, "--flag-state isMigratedState", {}),
    ],
)
def test_a_slip_is_told_before_anything_is_read(
    given: dict[str, object], meant: str, way_out: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=f"did you mean {meant}"):
        resolved(tmp_path, BEGUN, given)
    if way_out:
        resolved(tmp_path / "meant", BEGUN, given, **way_out)


_TEXT, _LONG = simple_snapshot(Scalar.STRING), simple_snapshot(Scalar.LONG)


@pytest.mark.parametrize(
    ("given", "serializers", "meant"),
    [
        ({"new": "newMainStat"}, {NEW: map_snapshot(_TEXT, _TEXT)}, "MAP state of Map<String,String> without TTL"),
        ({"new": "newMainStat"}, {NEW: map_snapshot(_TEXT, ttl_snapshot(_LONG))}, "Map<String,Long> with TTL"),
        ({"flag": "isMigratedStat"}, {FLAG: _LONG}, "VALUE state of Long without TTL"),
    ],
)
def test_a_slip_of_a_state_that_would_be_refused_under_its_right_name(
    given: dict[str, object], serializers: dict[str, SerializerSnapshot], meant: str, tmp_path: Path
) -> None:
    state = LegacyState(blobs(*COLD), serializers=serializers)
    with pytest.raises(PlanError, match=f"{meant}: did you mean"):
        resolved(tmp_path, state, given)
    resolved(tmp_path / "another", state, dict.fromkeys(given, "another"))


def test_a_slip_of_the_legacy_state_in_reverse(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="did you mean --legacy-state mainState"):
        resolved(tmp_path, replace(BEGUN, blobs={}), {"legacy": "mainStat"}, reverse=True)


@pytest.mark.parametrize(("state", "options"), [(BEGUN, {}), (replace(BEGUN, blobs={}), {"reverse": True})])
def test_a_state_that_is_not_boolean_is_no_flag(state: LegacyState, options: dict[str, object], tmp_path: Path) -> None:
    """A run would leave out all that it holds."""
    state = replace(state, more_blobs={OTHER: blobs(*MOVED)})
    with pytest.raises(PlanError, match=r"otherState of operator main is a ValueState<Map<String,Long>>: a flag is a"):
        resolved(tmp_path, state, {"flag": OTHER}, **options)
    resolved(tmp_path / "meant", state, {"flag": OTHER}, accept_empty=1, **options)


def run(folder: Path, *options: str, source: str = "source", target: str = "target") -> int:
    names = {"--legacy-state": LEGACY, "--new-state": NEW, "--flag-state": FLAG}
    switches = [word for word in options if word in ("--reverse", "--rehearse")]
    words = [word for word in options if word not in switches]
    names |= dict(zip(words[::2], words[1::2], strict=True))
    if "--reverse" in options:
        del names["--flag-state"]
    given = [part for pair in names.items() for part in pair] + switches
    places = ["--savepoint", str(folder / source), "--target", str(folder / target), "--operator", "main"]
    return main(["run", *places, *given])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--new-state", "newMainStat"), USAGE),
        (("--new-state", "x"), REJECTED),
        (("--legacy-state", "mainStat"), USAGE),
        (("--legacy-state", "x"), USAGE),
    ],
)
def test_a_wrong_name_ends_the_command_and_nothing_is_published(
    options: tuple[str, ...], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    BEGUN.write(str(tmp_path / "source"))
    assert run(tmp_path, *options) == code
    said = capsys.readouterr()
    assert (NEW if "--new-state" in options else LEGACY) in said.err
    assert "nothing to do" not in said.out
    assert not (tmp_path / "target" / "_metadata").exists()


def test_what_an_earlier_run_has_published_was_migrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = replace(BEGUN, more_blobs={OTHER: blobs(*COLD)})
    state.write(str(tmp_path / "source"))
    assert run(tmp_path) == 0
    after = replace(state, blobs={}, flags={}, lacks=frozenset({LEGACY}), has_flag_state=False, checkpoint_id=2)
    after.write(str(tmp_path / "later"))
    later = {"source": "later", "target": "again"}
    assert run(tmp_path, **later) == 0
    assert "nothing to do: mainState of main is already migrated" in capsys.readouterr().out
    # Of a state of another name no run has published anything.
    assert run(tmp_path, "--legacy-state", "x", **later) == USAGE


def test_a_new_state_is_called_as_in_the_runs_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The job has moved nothing yet, and the savepoint shows no name."""
    LegacyState(blobs(*COLD), lacks=frozenset({NEW, FLAG})).write(str(tmp_path / "source"))
    assert run(tmp_path, "--rehearse") == 0
    assert run(tmp_path, "--new-state", "newMainSate") == USAGE
    said = capsys.readouterr().err
    assert "has made newMainState of mainState, and this one would make newMainSate, which the savepoint" in said
    assert "did you mean --new-state newMainState?" in said
    assert not (tmp_path / "target").exists()
    assert run(tmp_path, "--new-state", "newMainSate", "--rehearse", "--accept-empty", "100%") == 0
    assert "--accept-empty had no effect" not in capsys.readouterr().out
    assert run(tmp_path, "--new-state", "newMainSate") == 0


def test_a_state_that_an_earlier_run_has_kept_is_not_migrated_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Entries that the new job has removed since would come back."""
    old_job = LegacyState(blobs(*COLD), lacks=frozenset({NEW, FLAG}))
    old_job.write(str(tmp_path / "source"))
    keeps = ("run", "--savepoint", f"{tmp_path / 'source'}", "--target", f"{tmp_path / 'target'}", "--operator", "main")
    assert main([*keeps, "--legacy-state", LEGACY, "--new-state", NEW, "--keep-legacy"]) == 0
    # The same command again, and the old job that has gone on.
    assert main([*keeps, "--legacy-state", LEGACY, "--new-state", NEW, "--keep-legacy"]) == 0
    replace(old_job, checkpoint_id=2).write(str(tmp_path / "old job"))
    assert run(tmp_path, "--rehearse", source="old job", target="again") == 0
    later = replace(old_job, rows=rows(*COLD[:9]), lacks=frozenset({FLAG}), checkpoint_id=3)
    later.write(str(tmp_path / "later"))
    capsys.readouterr()
    assert run(tmp_path, source="later", target="next") == USAGE
    assert "has made newMainState of mainState and kept mainState beside it" in capsys.readouterr().err
    assert not (tmp_path / "next").exists()
    assert run(tmp_path, "--accept-empty", "100%", source="later", target="next") == 0
    assert "--accept-empty had no effect" not in capsys.readouterr().out


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("back", [(), ("--reverse",)])
def test_an_operator_under_another_of_its_names_is_not_another_job(
    back: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Airflow calls the job what the form calls the operator, a command what the savepoint calls it."""
    BEGUN.write(str(tmp_path / "source"))
    assert run(tmp_path) == 0
    by_id = ("--job", operator_id("main").hex())
    places = {"source": "target" if back else "source", "target": "other"}
    assert run(tmp_path, *by_id, *back, **places) == USAGE
    assert "has read the same operator: did you mean --job main?" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    assert run(tmp_path, "--job", "main", *back, **places) == 0
    assert run(tmp_path, "--job", "named", *back, **(places | {"target": "named"})) == 0


def test_in_reverse_the_old_name_is_held_against_earlier_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    BEGUN.write(str(tmp_path / "source"))
    assert run(tmp_path) == 0
    back = {"source": "target", "target": "back"}
    capsys.readouterr()
    assert run(tmp_path, "--reverse", "--legacy-state", "mainSate", **back) == USAGE
    assert "newMainState was made of mainState, as published runs of the job say" in (said := capsys.readouterr().err)
    assert "did you mean --legacy-state mainState?" in said
    assert not (tmp_path / "back").exists()
    renamed = ("--legacy-state", "mainSate", "--accept-empty", "100%")
    assert run(tmp_path, "--reverse", *renamed, **(back | {"target": "renamed"})) == 0
    assert "--accept-empty had no effect" not in capsys.readouterr().out
    OTHER_MAP_STATE.write(str(tmp_path / "with another"))
    other = ("--new-state", OTHER)
    assert run(tmp_path, "--reverse", *other, source="with another", target="other") == USAGE
    assert "mainState became newMainState, as published runs of the job say" in (said := capsys.readouterr().err)
    assert "did you mean --new-state newMainState?" in said
    assert run(tmp_path, "--reverse", **back) == 0
    assert "nothing here shows" not in capsys.readouterr().out
    # Of another job no run is known.
    assert run(tmp_path, "--reverse", "--job", "other", **(back | {"target": "other"})) == 0
    assert "note: nothing here shows that the old job calls this state of main mainState" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"new": "newMainStat"}, "did you mean --new-state newMainState?"),
        ({"new": "x"}, "did you mean --new-state newMainState?"),
        ({"legacy": "x"}, "nothing shows that it was migrated before: mainState may have been meant"),
        ({}, None),
    ],
)
def test_a_check_finds_it(given: dict[str, object], said: str | None, tmp_path: Path) -> None:
    plan = resolved(tmp_path, BEGUN).plan
    values: dict[str, Any] = json.loads(plan.to_json())
    values["operators"][0]["states"][0].update(given)
    del values["catalog_uri"]
    answer = tmp_path / "answer.json"
    assert check(["--savepoint", plan.source, "--into", str(answer), "--wanted", json.dumps(values)]) == 0
    problems = json.loads(answer.read_text())["problems"]
    assert problems == [] if said is None else said in problems[0]


def test_a_step_that_has_nothing_to_do_says_so_in_its_run(tmp_path: Path) -> None:
    plan = resolved(tmp_path, WITHOUT_FLAG, {"flag": None}, rehearse=True).plan
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    assert do_step("snapshot", "--plan", str(file)) == 0
    assert do_step("snapshot", "--plan", str(file)) == 0
    (found,) = runs_of(plan.home, plan.job)
    run = Run.open(found.folder)
    assert run.facts(NothingToDo) == NothingToDo(
        "nothing to do: mainState of main is already migrated: the savepoint has newMainState alone"
    )
    assert outcome_line(RunView.of(run)) == (
        "rehearse orders: nothing to do: mainState of main is already migrated: the savepoint has newMainState alone"
    )
    row = row_of(run)
    assert verdict(row) == (
        "warn",
        "nothing to do: mainState of main is already migrated: the savepoint has newMainState alone",
    )
    page = jobs_page([Job("orders", "/jobs/orders", (row,))], [], top=None)
    assert "nothing to do: mainState of main is already migrated" in page


def test_a_step_of_a_run_with_unset_flags_fails_with_the_reason(tmp_path: Path) -> None:
    plan = resolved(tmp_path, replace(DONE, false_flags=flags("waiting"))).plan
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    assert do_step("snapshot", "--plan", str(file)) == USAGE
    (found,) = runs_of(plan.home, plan.job)
    assert found.state is RunState.FAILED


def test_what_can_be_migrated_is_named_whoever_wrote_its_maps(tmp_path: Path) -> None:
    for kryo in (None, 5):
        said = problem(tmp_path / f"{kryo}", replace(BEGUN, kryo=kryo), {"legacy": FLAG, "flag": None})
        assert said.endswith("it is a ValueState<Boolean>, not of a map. Can be migrated: mainState")


@pytest.mark.parametrize("format_", ["canonical", "native"])
def test_a_name_that_rocksdb_has_itself_is_refused(format_: str, tmp_path: Path) -> None:
    """Stock Flink starts no job on RocksDB with it: "The chosen state name 'default' collides with..."."""
    said = problem(tmp_path / "new", COLD_ALONE, {"legacy": LEGACY, "new": "default"}, output_format=format_)
    assert "operator main: Flink refuses a state 'default' on RocksDB" in said
    assert "give the new job's state another name" in said
    flag: dict[str, object] = {"legacy": LEGACY, "new": NEW, "flag": "default"}
    assert "'default' on RocksDB" in problem(tmp_path / "flag", COLD_ALONE, flag, lazy=True, share=0.5)


def test_a_state_of_that_name_stays_out_of_native_files_alone(tmp_path: Path) -> None:
    """A job on the HashMap backend may have it."""
    state = COLD_ALONE.with_changes(names={LEGACY: "default"})
    plan: dict[str, object] = {"legacy": "default", "new": NEW}
    assert list(resolved(tmp_path / "canonical", state, plan).migrations)
    assert "leave --format native out" in problem(tmp_path / "native", state, plan, output_format="native")


def test_a_name_that_flink_cannot_write_is_refused(tmp_path: Path) -> None:
    """Its length in modified UTF-8, in which a zero has two bytes, is written as 16 bits."""
    said = problem(tmp_path / "long", COLD_ALONE, {"legacy": LEGACY, "new": "\0" * 32768})
    assert "a state's name has 65535 bytes at most" in said
    assert list(resolved(tmp_path / "longest", COLD_ALONE, {"legacy": LEGACY, "new": "\0" * 32767}).migrations)
