"""Mode *check only*: a savepoint is looked into, the answer is told, and there is no run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from flinkstate.errors import RefusedError
from stateferry.airflow.dag_runs.dag_run import REFUSED
from stateferry.airflow.dag_runs.task_names import not_needed
from stateferry.airflow.migration_dag import migration_dags
from stateferry.airflow.requests.jobs import configuration_of
from stateferry.airflow.requests.planning import Occasion, check_of
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.tasks.check_task import CheckSavepoint, answer_lines, note_of
from stateferry.airflow.tasks.conclusion import Conclude
from stateferry.runs.catalog.publications import Control
from stateferry.runs.record.step_facts import RescaleFacts, SnapshotFacts, StateSize, ValidateFacts
from tests.airflow.state_migration.test_conclusion import a_run
from tests.airflow.state_migration.test_steps import Submit, TaskInstance, run, submits  # noqa: F401

# Airflow's hook leaves it to the garbage collector to close what it has read spark-submit's output from.
pytestmark = pytest.mark.filterwarnings("ignore:.*FileIO.*:pytest.PytestUnraisableExceptionWarning")

WIDEST = 120


def state(name: str, reason: str | None = None, **others: object) -> dict[str, Any]:
    worth = {"blobs": 70, "entries": {"median": 20}, "worth_it": True, "condition": "if C", "reason": None}
    usual = {"name": name, "kind": "VALUE", "type": "Map<String,Long>", "ttl": True, "entries": 70, "bytes": 400}
    declaration = None if reason else f'new MapStateDescriptor<>("{name}", Types.STRING, Types.LONG)'
    known = {"migratable": reason is None, "reason": reason, "worth": None if reason else worth}
    return {**usual, **known, "kryo": None, "declaration": declaration, **others}


def found(*problems: str, **operator: object) -> dict[str, Any]:
    states = [state("mainState"), state("seen", "a ValueState<Boolean>, not of a map", type="Boolean", bytes=100)]
    usual = {"id": "ab", "uid": "main", "name": None, "parallelism": 4, "max_parallelism": 128}
    kept = [{"name": "offsets", "mode": "split", "elements": 3}]
    one = {**usual, "keyed": {"key_type": "String", "states": states}, "operator_states": kept, **operator}
    answer = {"path": "/savepoints/one", "format": "canonical", "checkpoint_id": 7, "operators": [one]}
    return answer | ({"problems": list(problems)} if problems else {})


def test_the_answer_is_told_in_short_lines() -> None:
    lines = list(answer_lines(found(), None, None))
    assert lines == [
        "/savepoints/one",
        "canonical, checkpoint 7, 1 operator, 500 B of keyed state",
        "operator main: parallelism 4, max parallelism 128, keyed by String",
        "- mainState: VALUE of Map<String,Long>, with time to live, 70 entries, 400 B",
        "  can be migrated",
        '  the new job declares new MapStateDescriptor<>("mainState", Types.STRING, Types.LONG)',
        "  70 maps of 20 entries (median); worth it, if C",
        "- seen: VALUE of Boolean, with time to live, 70 entries, 100 B",
        "  can't be migrated: a ValueState<Boolean>, not of a map",
        "- offsets: operator state (split), carried over",
        "how long a cut-over takes isn't known: give the job's name (the field job), if it has been rehearsed",
    ]
    assert max(map(len, lines)) <= WIDEST
    assert note_of(found(), None) == "check /savepoints/one: 2 keyed states; can be migrated: mainState of main"
    assert "it can be migrated as the form says" in list(answer_lines({**found(), "problems": []}, None, None))
    told = list(answer_lines(found("no such state"), None, None))
    assert told[-3:-1] == ["it can't be migrated as the form says:", "- no such state"]
    assert note_of(found("no such state"), None).endswith("but not as the form says: no such state")


def test_what_another_flink_does_with_it_is_told() -> None:
    states = [
        {"operator": "main", "state": "seen", "outcome": "restores", "reason": "the same serializer"},
        {"operator": "main", "state": "totals", "outcome": "wrong", "reason": "an entry less"},
    ]
    answer = {**found(), "verdict": {"for": "2.3", "counts": {"restores": 1, "wrong": 1}, "states": states}}
    lines = list(answer_lines(answer, None, None))
    summary = "in Flink 2.3, of its states: 1 restores, 1 restores and is wrong"
    assert lines[-3:-1] == [summary, "- main: totals: restores and is wrong: an entry less"]
    assert summary in note_of(answer, None)


def test_a_map_by_kryo_is_told_with_its_counts() -> None:
    line = "Map<String,Long> by Kryo 2, in all 70 maps"
    lines = list(
        answer_lines(found(keyed={"key_type": "String", "states": [state("a", kryo={"line": line})]}), None, None)
    )
    assert f"  {line}: can be migrated" in lines


def test_an_operator_without_keyed_state_or_names_is_told_too() -> None:
    lines = list(answer_lines(found(keyed=None, uid=None, operator_states=[]), None, None))
    assert lines[2:-1] == ["operator ab: parallelism 4, max parallelism 128"]
    assert "can be migrated: none" in note_of(found(keyed=None), None)


@pytest.mark.parametrize("source", ["path", "folder", "checkpoint"])
def test_no_name_is_needed(source: str) -> None:
    field = {"path": "savepoint", "folder": "savepoint_folder", "checkpoint": "checkpoint_folder"}[source]
    request = MigrationRequest.model_validate({"mode": "check only", "source": source, field: "/in"})
    assert request.rehearses
    assert not request.stops_job
    assert not request.names_states


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"source": "flink", "flink_job": "a", "savepoint_directory": "/in"}, "'check only' takes none: choose"),
        ({"source": "path", "savepoint": "/in", "operator": "main"}, "legacy_state: missing"),
        ({"start_job": True, "jar": "new.jar"}, "a rehearsal starts no job"),
        ({"before": "/old"}, "before: given, but not for which Flink the verdict is: give to"),
        ({"all_by_kryo_5": True}, "all_by_kryo_5: given, but not for which Flink"),
        ({"read_all": True}, "read_all: given, but not for which Flink"),
        ({"mode": "rehearse", "read_all": True}, "read_all: on, but a run reads every value"),
    ],
)
def test_what_a_check_cannot_do_is_refused(values: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MigrationRequest.model_validate({"mode": "check only", **values})


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: {"jobs": {"orders": {"request": one}}}])
def test_the_schedule_does_not_check(wrap: Any) -> None:
    read = configuration_of(json.dumps(wrap({"mode": "check only"})), "the file")
    assert read.jobs == ()
    assert "mode: 'check only' is for the form alone" in read.problems[0]


def test_all_other_tasks_are_left_out() -> None:
    (dag,) = migration_dags()
    left_out = set(not_needed(MigrationRequest(mode="check only")))
    assert set(dag.task_dict) - left_out == {"plan", "check", "conclude"}
    for mode in ("rehearse", "cut over"):
        assert "check" in set(not_needed(MigrationRequest.model_validate({"mode": mode})))


def checked(submits: Submit, request: MigrationRequest, occasion: Occasion, answer: dict[str, Any]) -> Any:  # noqa: F811
    asked = check_of(request, occasion)
    said = asdict(asked)
    Path(asked.report).parent.mkdir(parents=True, exist_ok=True)
    written = Path(asked.report).with_suffix(".new")
    written.write_text(json.dumps(answer))
    submits(f'for one in "$@"; do echo "$one"; done > {written}.said; mv {written} {asked.report}')
    operator = CheckSavepoint(task_id="check")
    context: Any = {"ti": TaskInstance({**said, "request": request.model_dump()}), "task": operator}
    operator.render_template_fields(context)
    return operator.execute(context), context, Path(f"{written}.said").read_text().splitlines()


def test_the_application_gets_the_savepoint_and_the_plan(
    home: Path,
    occasion: Occasion,
    submits: Submit,  # noqa: F811
) -> None:
    request = MigrationRequest(mode="check only")
    answer, context, arguments = checked(submits, request, occasion, {**found(), "problems": []})
    assert answer["migratable"] == ["main/mainState"]
    assert answer["problems"] == []
    assert answer["outage"] is None
    assert context["ti"].said["note"].startswith("check /savepoints/one: 2 keyed states")
    at = arguments.index("--savepoint")
    assert arguments[at + 1] == str(home / "demo" / "legacy")
    plan = json.loads(arguments[arguments.index("--wanted") + 1])
    assert plan["operators"][0]["states"][0]["legacy"] == "mainState"
    assert "catalog_uri" not in plan
    assert not (home / "runs").exists()
    assert not {"--files-from", "--for", "--classes"} & set(arguments)
    legacy = str(home / "demo" / "legacy")
    named = {"mode": "check only", "source": "path", "savepoint": legacy, "files_from": "/old=/new"}
    without = MigrationRequest.model_validate(named)
    _, _, arguments = checked(submits, without, occasion, found())
    assert "--wanted" not in arguments
    assert arguments[arguments.index("--files-from") + 1] == "/old=/new"


def test_it_is_asked_what_the_command_is_asked(home: Path, occasion: Occasion) -> None:
    savepoint = str(home / "demo" / "legacy")
    path = {"mode": "check only", "source": "path", "savepoint": savepoint, "to": "flink-2", "read_all": True}
    before = path | {"before": "/old", "state_ttl": "main/a=1d", "classes": "new.jar"}
    for given, asked in (
        (before, ["--for", "flink-2", "--classes", "new.jar", "--before", "/old", "--state-ttl", "main/a=1d", "--all"]),
        (path | {"all_by_kryo_5": True}, ["--for", "flink-2", "--all-by-kryo-5", "--all"]),
        (
            path | {"to": "flink-1.20", "read_all": False, "all_by_kryo_5": True},
            ["--for", "flink-1.20", "--all-by-kryo-5"],
        ),
        # A plan without a time to live to compare with.
        ({**path, "state_ttl": "main/a=1d", "read_all": False}, ["--for", "flink-2"]),
    ):
        arguments = check_of(MigrationRequest.model_validate(given), occasion).arguments
        assert arguments[4:] == asked
    named = {"operator": "main", "legacy_state": "mainState", "new_state": "newMainState", "ttl": "30d"}
    for to, of_plan, of_verdict in (("flink-2", False, True), ("flink-1.20", True, False)):
        given = path | named | {"to": to, "all_by_kryo_5": True}
        arguments = check_of(MigrationRequest.model_validate(given), occasion).arguments
        plan = json.loads(arguments[arguments.index("--wanted") + 1])
        assert (plan["all_by_kryo_5"], "--all-by-kryo-5" in arguments) == (of_plan, of_verdict)


def test_what_an_upgrade_lost_is_told() -> None:
    lost = {"operator": "main", "state": "totals", "summary": "of the entries from before the upgrade: 2 lost"}
    losses = {"before": "/old", "states": [lost], "not_compared": ["operator ab has keyed state by Kryo"]}
    answer = {**found(), "verdict": {"for": "2.3", "counts": {}, "states": [], "losses": losses}}
    assert list(answer_lines(answer, None, None))[-4:-1] == [
        "what the upgrade lost, by /old:",
        "- main: totals: of the entries from before the upgrade: 2 lost",
        "- not compared: operator ab has keyed state by Kryo",
    ]


@pytest.mark.usefixtures("home")
def test_earlier_runs_of_the_job_say_how_long_it_would_take(occasion: Occasion, submits: Submit) -> None:  # noqa: F811
    for number in range(3):
        one = a_run(Occasion(f"night {number}", occasion.as_of), MigrationRequest().rehearsal())
        one.keep(SnapshotFacts(states={"main/mainState": StateSize(70, 500)}, seconds=4.0, ended_at=0))
        one.keep(RescaleFacts(seconds=5.0, ended_at=0))
        one.keep(ValidateFacts(seconds=6.0, ended_at=0))
    answer, context, _ = checked(submits, MigrationRequest(mode="check only"), occasion, found())
    assert answer["outage"] == pytest.approx(18, abs=2)
    assert "outage about 18 s" in context["ti"].said["note"]
    assert any("a cut-over is likely to keep the job still for 18 s" in line for line in answer["answer"])
    assert any("rests on the last 3 runs of this job" in line for line in answer["answer"])


@pytest.mark.usefixtures("home")
def test_a_refusal_is_told_and_not_tried_again(occasion: Occasion, submits: Submit) -> None:  # noqa: F811
    submits("echo 'stateferry: the savepoint is damaged'; exit 3")
    asked = check_of(MigrationRequest(mode="check only"), occasion)
    operator = CheckSavepoint(task_id="check")
    ti = TaskInstance(asdict(asked))
    operator.render_template_fields({"ti": ti, "task": operator})  # type: ignore[typeddict-item]
    with pytest.raises(AirflowFailException, match="legacy: the savepoint is damaged"):
        operator.execute({"ti": ti, "task": operator})  # type: ignore[typeddict-item]
    assert ti.said[REFUSED] == "the savepoint is damaged"
    request = {"request": MigrationRequest(mode="check only").model_dump()}
    said = {("plan", "return_value"): request, ("check", REFUSED): "the savepoint is damaged"}
    concluding = SimpleNamespace(
        dag_id="x", run_id="x", xcom_pull=lambda task_ids, key="return_value": said.get((task_ids, key))
    )
    with pytest.raises(AirflowFailException, match="the savepoint was not checked: the savepoint is damaged"):
        Conclude(task_id="conclude").execute({"ti": concluding})  # type: ignore[typeddict-item]
    said["check", "return_value"] = {"migratable": [], "answer": ["nothing in it"]}
    assert Conclude(task_id="conclude").execute({"ti": concluding}) == {"migratable": []}  # type: ignore[typeddict-item]


def test_a_wrong_operator_is_refused_before_a_jvm_starts(home: Path, occasion: Occasion) -> None:
    request = MigrationRequest.model_validate(
        {
            "mode": "check only",
            "source": "path",
            "savepoint": str(home / "demo" / "legacy"),
            "operator": "mian",
            "legacy_state": "a",
            "new_state": "b",
        }
    )
    with pytest.raises(RefusedError, match=r"no operator 'mian'\. Did you mean main\? There are: main"):
        check_of(request, occasion)
    with Control(f"sqlite:///{home}/catalog.db") as control:
        assert control.jobs() == ()
