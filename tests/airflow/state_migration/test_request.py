"""What is asked for: refused in words before any work, whoever asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Param
from airflow.sdk.exceptions import ParamValidationError

from flinkstate.errors import PlanError
from stateferry.airflow.requests.form import migration_params, rollback_params
from stateferry.airflow.requests.jobs import configuration_of
from stateferry.airflow.requests.planning import Occasion, plan_for, requested_by_form
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.requests.rollback_request import RollbackRequest, rollback_request
from stateferry.runs.plan.option_marks import OptionField, option_fields
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_from_options import PLAN_OPTIONS
from stateferry.runs.plan.planned_states import OperatorPlan, StatePlan
from stateferry.runs.plan.state_ttls import StateTtlPlan

STATE = {"operator": "main", "legacy_state": "old", "new_state": "new"}
PATH = {"source": "path", "savepoint": "/in", **STATE}
CHECKPOINT = {"source": "checkpoint", **STATE}


def defaults() -> dict[str, Any]:
    return {name: param.value for name, param in migration_params().items()}


def test_the_form_has_every_field_and_asks_for_what_a_request_is_by_default() -> None:
    assert set(migration_params()) == set(MigrationRequest.model_fields)
    assert requested_by_form(defaults(), {}) == MigrationRequest()
    assert set(rollback_params()) == set(RollbackRequest.model_fields)
    asked = {name: param.value for name, param in rollback_params().items()} | {"job": "orders"}
    assert rollback_request(asked, "the form") == RollbackRequest(job="orders")


@pytest.mark.parametrize("params", [migration_params(), rollback_params()])
def test_every_field_has_words(params: dict[str, Any]) -> None:
    for name, param in params.items():
        assert param.schema["title"], name
        assert param.schema["section"], name
        assert param.schema["description_md"], name
        param.resolve()


@pytest.mark.parametrize("params", [migration_params(), rollback_params()], ids=["migration", "rollback"])
def test_a_form_as_it_is_can_be_sent(params: dict[str, Param]) -> None:
    """The page keeps its button off as long as a text that can't be null is empty."""
    for name, param in params.items():
        if param.value == "":
            assert "null" in param.schema["type"], name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source", "somewhere"),
        ("parallelism", 0),
        ("ttl", "soon"),
        ("approval", "yes"),
        ("approval_timeout", "later"),
        ("accept_expired", "most"),
        ("clock_tolerance", "a while"),
    ],
)
def test_the_form_itself_refuses_wrong_values(name: str, value: object) -> None:
    with pytest.raises(ParamValidationError):
        migration_params()[name].resolve(value)


@pytest.mark.parametrize("text", ["90s", "1.25 h", " 2 h ", "0", "0.001s", "01500", "1500.0", "030d"])
def test_the_form_takes_every_duration_that_a_request_does(text: str) -> None:
    for name in ("start_timeout", "ttl"):
        migration_params()[name].resolve(text)
    MigrationRequest(start_timeout=text)


@pytest.mark.parametrize("text", ["30", "0999", "1.5", "1.s", ".5s", "1w", "-1s", "1h30m", "1.0123456789s"])
def test_the_form_refuses_what_is_no_duration(text: str) -> None:
    for name in ("start_timeout", "ttl"):
        with pytest.raises(ParamValidationError):
            migration_params()[name].resolve(text)
    with pytest.raises(ValueError, match="expected a duration"):
        MigrationRequest(start_timeout=text)


STOPPED = CHECKPOINT | STATE | {"flink_job": "a", "savepoint_directory": "/s", "stop_with": "checkpoint"}


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"colour": "red"}, "colour: unknown field; there are:"),
        ({"paralelism": 4}, "paralelism: unknown field: did you mean parallelism?"),
        ({"source": "path"}, "savepoint: missing, and source 'path' needs it"),
        ({"savepoint": "/in"}, "savepoint: given, but source is 'demo': choose 'path', or leave savepoint empty"),
        (CHECKPOINT, "flink_job, checkpoint_folder: both missing, and source 'checkpoint' needs one of them"),
        (CHECKPOINT | {"flink_job": "a", "checkpoint_folder": "/in"}, "flink_job, checkpoint_folder: both given"),
        (CHECKPOINT | {"flink_job": "a"}, "savepoint_directory: missing: a cut-over stops the job with a savepoint"),
        (CHECKPOINT | {"checkpoint_folder": "/in"}, "job_stopped: off, and a cut-over from checkpoint_folder loses"),
        (PATH | {"job_stopped": True}, "job_stopped: on, and only checkpoint_folder needs it"),
        (PATH | {"checkpoint_folder": "/in"}, "checkpoint_folder: given, but source is 'path': choose 'checkpoint'"),
        (PATH | {"flink_job": "a"}, "flink_job: given, but source is 'path': choose 'flink', or leave flink_job empty"),
        (PATH | {"new_state": ""}, "new_state: missing: operator, legacy_state and new_state are named together"),
        (PATH | {"ttl": "soon"}, "ttl: expected a duration such as 90s"),
        (PATH | {"operators": [{"operator": "main"}]}, "legacy_state: given beside operators: give it in operators"),
        (PATH | {"flag_state": "f", "no_flag_state": True}, "no_flag_state: a flag is named, and no_flag_state says"),
        (PATH | {"operators": [{"operator": "main"}], "no_flag_state": True}, "no_flag_state: given beside operators"),
        ({"start_job": True}, "jar: missing, and start_job needs it"),
        ({"jar": "job.jar"}, "jar: given, but start_job is off"),
        ({"start_job": True, "jar": "a", "mode": "rehearse"}, "start_job: a rehearsal starts no job"),
        ({"parallelism": "four"}, "parallelism: expected a number for all operators, or operator=number"),
        ({"approval_timeout": "soon"}, "approval_timeout: expected a duration such as 90s"),
        ({"program_args": "--name 'no end"}, "program_args: expected arguments as a shell takes them"),
        ({"accept_expired": "60"}, "accept_expired: expected a share such as 60% or 0.6"),
        ({"accept_expired": True}, "accept_expired: expected a valid number, found True"),
        ({"clock_tolerance": "soon"}, "clock_tolerance: expected a duration such as 90s"),
        ({"source": "flink", **STATE}, "flink_job: missing, and source 'flink' needs it"),
        (
            STOPPED,
            "stop_with: 'checkpoint' has the next job process again what came between the checkpoint",
        ),
        (STOPPED | {"may_repeat": True, "source": "flink"}, "stop_with: 'checkpoint', but source is 'flink'"),
        (
            STOPPED | {"may_repeat": True, "runs_on": "own tasks"},
            "stop_with: 'checkpoint', but runs_on is 'own tasks': only Flink and its operator",
        ),
        (
            STOPPED | {"may_repeat": True, "runs_on": "kubernetes", "resource": "flinksessionjob/a"},
            "stop_with: 'checkpoint', but resource is a FlinkSessionJob, which its operator starts again",
        ),
        ({"may_repeat": True}, "may_repeat: on, and only stop_with 'checkpoint' needs it"),
        (STOPPED | {"may_repeat": True, "mode": "rehearse"}, "may_repeat: given, but this run stops no job"),
        ({"settle": "soon"}, "settle: expected a duration such as 90s"),
        ({"approval": False, "approvers": "ada"}, "approvers: given, but approval is off"),
        ({"approval": False, "four_eyes": True}, "four_eyes: on, but approval is off"),
    ],
)
def test_what_contradicts_itself_is_fail_if_refused(conf: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        requested_by_form(defaults(), conf)
    assert f"the form: {words}" in str(caught.value)


def requested_nightly(variable: str, conf: dict[str, Any]) -> MigrationRequest:
    found = configuration_of(variable, "the variable")
    assert not found.problems
    return found.jobs[0].by_schedule(conf, is_backfill=False)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        requested_by_form(defaults(), {"source": "flink", "savepoint": "/in", "start_job": True})
    assert len(str(caught.value).splitlines()) == 7


def test_a_night_rehearses_whatever_the_variable_says() -> None:
    variable = '{"source": "path", "savepoint": "/in", "operator": "main", "legacy_state": "a", "new_state": "b"}'
    request = requested_nightly(variable, {"start_job": True, "jar": "job.jar"})
    assert (request.mode, request.start_job, request.approval) == ("rehearse", False, False)
    # As tasks hand it on to each other.
    assert MigrationRequest.model_validate(request.model_dump()) == request


def test_that_there_is_no_flag_is_said_in_the_plan() -> None:
    cases: list[tuple[dict[str, object], dict[str, object]]] = [
        ({}, {}),
        ({"no_flag_state": True}, {"no_flag": True}),
        ({"flag_state": "f"}, {"flag": "f"}),
    ]
    for more, said in cases:
        (operator,) = requested_by_form(defaults(), PATH | more).plan_values()["operators"]
        assert operator["states"] == [{"legacy": "old", "new": "new"} | said]
    variable = '{"source": "path", "savepoint": "/in", "operator": "main", "legacy_state": "a", "new_state": "b", %s}'
    assert requested_nightly(variable % '"no_flag_state": true', {}).given_options()["no_flag_state"]


def test_what_may_expire_is_a_field_of_the_form_and_of_the_nightly_configuration() -> None:
    for told in ("60%", "0.6", 0.6):
        migration_params()["accept_expired"].resolve(told)
        assert requested_by_form(defaults(), PATH | {"accept_expired": told}).given_options()["accept_expired"] == 0.6
    for nothing in ("", None):
        migration_params()["accept_expired"].resolve(nothing)
        assert "accept_expired" not in requested_by_form(defaults(), PATH | {"accept_expired": nothing}).given_options()
    night = requested_nightly(json.dumps(PATH | {"accept_expired": "60%", "clock_tolerance": "2h"}), {})
    options = night.given_options()
    assert (options["accept_expired"], options["clock_tolerance"]) == (0.6, "2h")
    # As tasks hand it on to each other.
    assert MigrationRequest.model_validate(night.model_dump()) == night


def test_operators_may_be_written_as_json() -> None:
    text = '[{"operator": "main", "states": [{"legacy": "a", "new": "b", "ttl": "30d"}]}]'
    asked = {name: value for name, value in PATH.items() if name not in STATE}
    request = requested_by_form(defaults(), asked | {"operators": text})
    state = {"legacy": "a", "new": "b", "ttl_ms": "30d"}
    assert request.plan_values()["operators"] == [{"operator": "main", "states": [state]}]


JAR = Path(__file__).parents[2] / "kryo" / "kept-classes.jar"
# A value that each option of a plan can have and that isn't its default, and the value that the plan then has.
GIVEN: dict[str, tuple[object, object]] = {
    "rest_catalog": ("https://host/catalog", "https://host/catalog"),
    "operator": ("main", "main"),
    "legacy_state": ("old", "old"),
    "new_state": ("new", "new"),
    "field": ("counts", "counts"),
    "rest": ("keep", "keep"),
    "flag_state": ("moved", "moved"),
    "no_flag_state": (True, True),
    "ttl": ("30d", 2_592_000_000),
    "as": ("Map<String, Long>", "Map<String,Long>"),
    "widen": (True, True),
    "job": ("orders", "orders"),
    "full_every": (3, 3),
    "claimable": (True, True),
    "on_contradiction": ("rows", "rows"),
    "keep_expired": (True, True),
    "accept_expired": ("60%", 0.6),
    "accept_vanished": ("90%", 0.9),
    "accept_empty": ("10%", 0.1),
    "clock_tolerance": ("2h", 7_200_000),
    "keep_legacy": (True, True),
    "flag_ttl": ("with", "with"),
    "lazy": (True, True),
    "share": ("30%", 0.3),
    "budget": ("60s", 60_000),
    "largest_first": (True, True),
    "reverse": (True, True),
    "drop_legacy_blobs": (True, True),
    "like": ("/savepoints/old", "/savepoints/old"),
    "nulls": ("keep", "keep"),
    "no_timers": (True, True),
    "format": ("native", "native"),
    "to": ("flink-2", "flink-2"),
    "declared": ("main/tags=List<String>\n", {"main/tags": "List<String>"}),
    "all_by_kryo_5": (True, True),
    "before": ("/savepoints/old", "/savepoints/old"),
    "restore_lost": (True, True),
    "restore_keys": (True, True),
    "classes": (f"{JAR}\n", (str(JAR),)),
    "parallelism": (3, 3),
    "max_parallelism": (256, 256),
    "compression": ("snappy", "snappy"),
    "files_from": ("s3://other/=s3://other/\n\n /old=/new\n", {"s3://other/": "s3://other/", "/old": "/new"}),
    "state_ttl": (
        "main/other=30d:drop\n",
        (StateTtlPlan(operator="main", state="other", ttl_ms=2_592_000_000, expired="drop"),),
    ),
}


_LAZY = {"flag_state": "moved", "lazy": True}
# What another option needs.
NEEDED: dict[str, dict[str, object]] = {
    "full_every": {"format": "native"},
    "claimable": {"format": "native"},
    "keep_expired": {"ttl": "1h"},
    "on_contradiction": {"flag_state": "moved"},
    "flag_ttl": {**_LAZY, "share": "30%"},
    "lazy": {"flag_state": "moved", "share": "30%"},
    "share": _LAZY,
    "budget": _LAZY,
    "largest_first": {**_LAZY, "share": "30%"},
    "drop_legacy_blobs": {"reverse": True},
    "like": {"reverse": True},
    "widen": {"as": "Map<String, Long>"},
    "field": {"rest": "keep"},
    "rest": {"field": "counts"},
    "all_by_kryo_5": {"to": "flink-1.20"},
    "before": {"to": "flink-2"},
    "restore_lost": {"to": "flink-2", "before": "/savepoints/old"},
    "restore_keys": {"to": "flink-2", "before": "/savepoints/old", "restore_lost": True},
}


@pytest.mark.parametrize("option", PLAN_OPTIONS, ids=lambda option: option.name)
def test_each_option_of_a_plan_goes_from_the_form_into_the_plan(
    option: OptionField, home: Path, occasion: Occasion
) -> None:
    if not option.option.in_form:
        assert option.name not in migration_params()
        return
    given, planned = GIVEN[option.name]
    needed = NEEDED.get(option.name, {})
    conf = PATH | {"savepoint": str(home / "demo" / "legacy")} | needed | {option.name: given}
    migration_params()[option.name].resolve(given)
    plan = plan_for(requested_by_form(defaults(), conf), occasion, str(home / "demo" / "legacy"))
    operator = plan.operators[0]
    (found,) = (
        getattr(part, option.field)
        for part, model in ((plan, MigrationPlan), (operator, OperatorPlan), (operator.states[0], StatePlan))
        if option in option_fields(model)
    )
    assert found == planned
    assert option.default != planned


RESCALE = {"work": "rescale only", "source": "path", "savepoint": "/in", "job": "orders"}


def test_to_rescale_alone_names_no_state(home: Path, occasion: Occasion) -> None:
    legacy = str(home / "demo" / "legacy")
    asked = requested_by_form(defaults(), RESCALE | {"parallelism": "main=4,enrich=8", "max_parallelism": 256})
    plan = plan_for(asked, occasion, legacy)
    assert (plan.rescales_only, plan.job, plan.max_parallelism) == (True, "orders", 256)
    assert plan.parallelism == {"main": 4, "enrich": 8}
    demo = requested_by_form(defaults(), {"work": "rescale only", "parallelism": 8})
    assert (plan_for(demo, occasion, legacy).job, plan_for(demo, occasion, legacy).parallelism) == ("demo", 8)
    dropping = requested_by_form(defaults(), RESCALE | {"state_ttl": "main/sessions=30d:drop"})
    assert [one.drops for one in plan_for(dropping, occasion, legacy).state_ttls] == [True]
    nightly = requested_nightly(json.dumps(RESCALE | {"format": "native"}), {})
    assert plan_for(nightly, occasion, legacy).rehearse


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "parallelism: missing: work 'rescale only' needs parallelism or max_parallelism"),
        ({"parallelism": 4, "operator": "main"}, "operator: given, but work is 'rescale only': choose 'migrate', or"),
        ({"parallelism": 4, "operators": [{"operator": "main"}]}, "operators: given, but work is 'rescale only'"),
        ({"parallelism": 4, "keep_legacy": True}, "keep_legacy: given, but work is 'rescale only'"),
        ({"parallelism": 4, "job": ""}, "job: missing: without an operator to migrate, nothing names the job"),
        ({"parallelism": "main=0"}, "parallelism: expected a number from 1 to 32768 for operator 'main', found 0"),
    ],
)
def test_what_makes_no_sense_without_a_migration_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        requested_by_form(defaults(), RESCALE | more)
    assert f"the form: {words}" in str(caught.value)
