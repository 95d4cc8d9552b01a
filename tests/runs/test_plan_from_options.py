"""The options of a plan: declared once, on the plan's fields, and the same on the command line."""

from __future__ import annotations

import argparse
import inspect
import re
from pathlib import Path
from zipfile import ZipFile

import pytest

from stateferry.cli.options import add_plan_options, plan_values_of_options
from stateferry.runs.checks import state_names
from stateferry.runs.checks.plan_check import planned
from stateferry.runs.guards import expiry_guard, name_guard, option_notes
from stateferry.runs.plan.option_marks import Kind, OptionField
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_from_options import PLAN_OPTIONS, STATE_OPTIONS
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.plan.planned_states import OperatorPlan, StatePlan
from stateferry.runs.plan.state_ttls import StateTtlPlan

# What a command asks for in its own way, what the program finds by itself, and what only a plan file can say.
NO_OPTIONS = {"source", "target", "rehearse", "operators", "states", "run_id", "now_from", "home", "catalog_uri"} | {
    "warehouse",
    "classes_digest",
    "chunk_bytes",
}
PLACES = ["--savepoint", "/in", "--target", "/out"]
STATE = ["--operator", "main", "--legacy-state", "old", "--new-state", "new"]
GIVEN = {
    Kind.NUMBER: ("3", 3),
    Kind.PARALLELISM: ("main=4,other=8", {"main": 4, "other": 8}),
    Kind.DURATION: ("2h", 7_200_000),
    Kind.SHARE: ("60%", 0.6),
    Kind.TEXT: ("some-name", "some-name"),
    Kind.LINES: (
        "main/some-name=2h:drop",
        (StateTtlPlan(operator="main", state="some-name", ttl_ms=7_200_000, expired="drop"),),
    ),
}
JAR = Path(__file__).parents[1] / "kryo" / "kept-classes.jar"
ROOT = "s3://old/env=prod/chk=/backup/chk"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    made.add_argument("--savepoint", dest="source")
    made.add_argument("--target")
    add_plan_options(made)
    return made


def test_each_field_of_a_plan_is_an_option_or_known_to_be_none() -> None:
    fields = {name for model in (MigrationPlan, OperatorPlan, StatePlan) for name in model.model_fields}
    assert fields == {one.field for one in PLAN_OPTIONS} | NO_OPTIONS
    assert not {one.field for one in PLAN_OPTIONS} & NO_OPTIONS


def test_names_and_places_are_there_once_and_words_are_as_the_form_needs_them() -> None:
    for found in ([one.name for one in PLAN_OPTIONS], [one.option.row for one in PLAN_OPTIONS]):
        assert len(set(found)) == len(PLAN_OPTIONS)
    for one in PLAN_OPTIONS:
        assert one.option.title
        assert not one.option.help.endswith(".")


def test_the_options_have_the_names_that_people_know() -> None:
    assert {one.flag for one in PLAN_OPTIONS} == {
        *("--operator", "--legacy-state", "--new-state", "--flag-state", "--no-flag-state", "--ttl", "--job"),
        *("--parallelism", "--max-parallelism", "--now", "--keep-expired", "--accept-expired", "--clock-tolerance"),
        "--accept-vanished",
        *("--keep-legacy", "--nulls", "--on-contradiction", "--no-timers", "--compression"),
        *(
            "--format",
            "--lazy",
            "--share",
            "--budget",
            "--largest-first",
            "--flag-ttl",
            "--state-ttl",
            "--reverse",
            "--rest-catalog",
        ),
        *("--drop-legacy-blobs", "--accept-empty", "--files-from", "--as", "--widen", "--like"),
        *("--field", "--rest", "--classes", "--to", "--declared", "--all-by-kryo-5"),
        *("--before", "--restore-lost", "--restore-keys", "--since", "--full-every", "--claimable"),
    }


_FLAGGED = ["--flag-state", "moved"]
_LAZY = [*_FLAGGED, "--lazy"]
# What another option needs.
NEEDED = {
    "keep_expired": ["--ttl", "1h"],
    "on_contradiction": _FLAGGED,
    "flag_ttl": [*_LAZY, "--share", "30%"],
    "share": _LAZY,
    "budget": _LAZY,
    "widen": ["--as", "Map<String, Long>"],
    "like": ["--reverse"],
    "largest_first": [*_LAZY, "--share", "30%"],
    "drop_legacy_blobs": ["--reverse"],
    "field": ["--rest", "keep"],
    "rest": ["--field", "counts"],
    "all_by_kryo_5": ["--to", "flink-1.20"],
    "before": ["--to", "flink-2"],
    "restore_lost": ["--to", "flink-2", "--before", "/savepoints/old"],
    "restore_keys": ["--to", "flink-2", "--before", "/savepoints/old", "--restore-lost"],
    "since": ["--format", "native"],
    "full_every": ["--format", "native"],
    "claimable": ["--format", "native"],
}


@pytest.mark.parametrize("option", PLAN_OPTIONS, ids=lambda option: option.name)
def test_each_option_goes_from_the_command_line_into_the_plan(option: OptionField) -> None:
    needed = NEEDED.get(option.name, [])
    last_choice = option.choices[-1] if option.choices else ""
    chosen = {Kind.SWITCH: ("", True), Kind.CHOICE: (last_choice, last_choice)}
    text, expected = (GIVEN | chosen)[option.option.kind]
    if option.name == "files_from":
        text, expected = ROOT, {"s3://old/env=prod/chk": "/backup/chk"}
    if option.name == "as":
        text, expected = "java.util.HashMap<String, Long>", "Map<String,Long>"
    if option.name == "classes":
        text, expected = str(JAR), (str(JAR),)
    if option.name == "declared":
        text, expected = "main/tags=Map<String, Long>", {"main/tags": "Map<String, Long>"}
    if option.name in ("like", "before"):
        text, expected = "/savepoints/old", "/savepoints/old"
    if option.name == "rest_catalog":
        text, expected = "https://host/catalog", "https://host/catalog"
    given = [option.flag, *([text] if text else [])]
    if option.name == "lazy":
        given += [*_FLAGGED, "--share", "30%"]
    values = plan_values_of_options(parser().parse_args([*PLACES, "--job=j", *STATE, *needed, *given]))
    plan = plan_of(values)
    parts = (plan, plan.operators[0], plan.operators[0].states[0])
    found = [getattr(part, option.field) for part in parts if option.field in type(part).model_fields]
    assert expected in found
    assert option.default != expected
    without = plan_values_of_options(parser().parse_args([*PLACES, "--job=j", *STATE, *needed]))
    assert (without == values) is False


def test_other_classes_than_those_of_a_plan_have_a_digest_of_their_own(tmp_path: Path) -> None:
    values = plan_values_of_options(parser().parse_args([*PLACES, "--job=j", *STATE, "--classes", str(JAR)]))
    before, file, other = plan_of(values), tmp_path / "plan.json", tmp_path / "other.jar"
    file.write_text(before.to_json())
    with ZipFile(JAR) as jar, ZipFile(other, "w") as less:
        name = next(one for one in jar.namelist() if one.endswith(".class"))
        less.writestr(name, jar.read(name))
    for values in (
        plan_values_of_options(parser().parse_args(["--plan", str(file), "--classes", str(other)])),
        plan_values_of_options(parser().parse_args(["--classes", str(other)]), before.model_dump()),
    ):
        plan = plan_of(values)
        assert plan.classes == (str(other),)
        assert plan.classes_digest != before.classes_digest
        assert plan.job_classes is not None
    same = plan_of(plan_values_of_options(parser().parse_args(["--plan", str(file)])))
    assert same.classes_digest == before.classes_digest


def test_the_compression_is_found_out_unless_it_is_given() -> None:
    values = plan_values_of_options(parser().parse_args([*PLACES, "--job=j", *STATE]))
    assert planned(values).compression == "auto"
    assert planned({**values, "compression": "none"}).compression == "none"
    (help_,) = (one.if_not_given for one in PLAN_OPTIONS if one.name == "compression")
    assert help_ == "auto"


def test_what_is_not_given_is_left_to_the_plan() -> None:
    values = plan_values_of_options(parser().parse_args([*PLACES, *STATE]))
    assert values == {
        "source": "/in",
        "target": "/out",
        "operators": [{"operator": "main", "states": [{"legacy": "old", "new": "new"}]}],
    }


def test_the_options_of_a_state_come_first() -> None:
    assert PLAN_OPTIONS[: len(STATE_OPTIONS)] == STATE_OPTIONS


def test_messages_name_options_that_exist() -> None:
    for module in (expiry_guard, name_guard, option_notes, state_names):
        named = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", inspect.getsource(module)))
        assert named
        assert named <= {one.flag for one in PLAN_OPTIONS}
