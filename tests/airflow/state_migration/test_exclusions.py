"""Which options exclude each other: a plan, the form and the command line refuse the same, for the same reason."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import pytest

from flinkstate.errors import PlanError
from stateferry.airflow.requests.planning import requested_by_form
from stateferry.runs.plan.exclusions import EXCLUSIONS, OPERATORS, STATE_EXCLUSIONS, Exclusion
from stateferry.runs.plan.option_marks import Kind
from stateferry.runs.plan.plan_from_options import PLAN_OPTIONS, in_words_of_options, name_of_option, plan_values_of
from stateferry.runs.plan.plan_json import plan_of
from tests.airflow.state_migration.test_request import GIVEN, NEEDED, defaults

# The form doesn't have all options.
_OF_THE_COMMAND_LINE = {one.field for one in PLAN_OPTIONS if not one.option.in_form}


def _rows(*, in_form: bool) -> pytest.MarkDecorator:
    rows = [row for row in (*EXCLUSIONS, *STATE_EXCLUSIONS) if (row.option not in _OF_THE_COMMAND_LINE) == in_form]
    return pytest.mark.parametrize("row", rows, ids=lambda row: f"{row.option}-{row.beside or row.needs[0]}")


ROWS = _rows(in_form=True)
Options = dict[str, Any]
# Typed where the kernels are, which Airflow's environment doesn't have.
COMMAND_LINE: Any = importlib.import_module("stateferry.cli.options")
STATE = {"operator": "main", "legacy_state": "old", "new_state": "new"}


def given(row: Exclusion, *, excluded: bool) -> Options:
    """Options that break the row, or that the row allows, by their names."""
    name = name_of_option(row.option)
    needed = NEEDED.get(name, {})
    asked: Options = {"parallelism": 3, "job": "orders"} if excluded and OPERATORS in row.needs else {**STATE}
    asked[name] = GIVEN[name][0]
    if not row.needs or not excluded:
        asked |= needed
    if row.beside and excluded:
        beside = name_of_option(row.beside)
        asked |= {**NEEDED.get(beside, {}), beside: GIVEN[beside][0]}
    return asked


def as_a_plan(options: Options) -> None:
    plan_of({"source": "/in", "target": "/out", "job": "orders", **plan_values_of(options)})


def in_the_form(options: Options) -> None:
    work = {"work": "migrate" if "operator" in options else "rescale only"}
    requested_by_form(defaults(), {"source": "path", "savepoint": "/in", **work, **options})


def on_the_command_line(options: Options) -> None:
    arguments = ["--job", "orders"]
    for one in PLAN_OPTIONS:
        if one.name in options:
            value = options[one.name]
            values = str(value).split("\n")[:1] if one.option.kind is Kind.LINES else [str(value)]
            arguments += [one.flag, *([] if one.option.kind is Kind.SWITCH else values)]
    parser = argparse.ArgumentParser()
    COMMAND_LINE.add_plan_options(parser)
    parsed = parser.parse_args(arguments, argparse.Namespace(source="/in", target="/out"))
    with COMMAND_LINE.named_by_options(parsed):
        plan_of(COMMAND_LINE.plan_values_of_options(parsed))


def refusal(ask: Callable[[Options], None], options: Options) -> str:
    try:
        ask(options)
    except PlanError as error:
        return str(error)
    return ""


@ROWS
def test_what_is_excluded_is_refused_by_all_three(row: Exclusion) -> None:
    options = given(row, excluded=True)
    assert row.why in refusal(as_a_plan, options)
    assert in_words_of_options(row.why) in refusal(on_the_command_line, options)
    name = name_of_option(row.option)
    said = f"{name}: given, but work is 'rescale only': choose 'migrate', or leave {name} empty"
    wanted = said if OPERATORS in row.needs else in_words_of_options(row.why, name_of_option)
    assert f"the form: {wanted}" in refusal(in_the_form, options)


@ROWS
def test_what_is_allowed_is_taken_by_all_three(row: Exclusion) -> None:
    options = given(row, excluded=False)
    for ask in (as_a_plan, in_the_form, on_the_command_line):
        assert refusal(ask, options) == ""


@_rows(in_form=False)
def test_what_the_form_does_not_have_is_refused_by_the_others(row: Exclusion) -> None:
    options: Options = {"parallelism": 3, "job": "orders"} if OPERATORS in row.needs else {**STATE, "format": "native"}
    if "output_format" in row.needs:
        options["format"] = "canonical"
    options["since"] = "a-run"
    if row.beside:
        beside = name_of_option(row.beside)
        options |= {**NEEDED.get(beside, {}), beside: GIVEN[beside][0]}
    assert row.why in refusal(as_a_plan, options)
    assert in_words_of_options(row.why) in refusal(on_the_command_line, options)


def test_that_much_expires_may_be_accepted_of_states_that_are_not_migrated() -> None:
    options = {"job": "orders", "accept_expired": "60%", "state_ttl": "main/other=30d:drop"}
    for ask in (as_a_plan, in_the_form, on_the_command_line):
        assert refusal(ask, options) == ""


def test_of_an_option_the_first_row_is_told() -> None:
    said = refusal(as_a_plan, {"job": "orders", "parallelism": 3, "share": "30%", "keep_expired": True}).splitlines()
    assert [line.split(": ")[1] for line in said] == ["keep_expired", "share"]
    assert all("no state is migrated" in line for line in said)
