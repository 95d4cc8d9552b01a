"""A plan from values, or from its JSON; what is wrong with it is in one line for each problem."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from flinkstate.errors import PlanError
from stateferry.basics.formats import FIELD, FIRST, check_format
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_fields import repeated
from stateferry.runs.plan.plan_problems import problem_lines
from stateferry.runs.plan.planned_states import OperatorPlan, StatePlan
from stateferry.runs.plan.state_ttls import StateTtlPlan


def plan_of(values: Mapping[str, object], origin: str = "the plan") -> MigrationPlan:
    """The plan with these values; messages call the plan `origin`."""
    check_format(values.get(FIELD, FIRST), origin)
    try:
        return MigrationPlan.model_validate({name: value for name, value in values.items() if name != FIELD})
    except ValidationError as error:
        lines = problem_lines(error, (MigrationPlan, OperatorPlan, StatePlan), {"state_ttls": StateTtlPlan})
        raise PlanError("\n".join(f"{origin}: {line}" for line in lines)) from None


def plan_values(text: str | bytes, origin: str = "the plan") -> dict[str, object]:
    """The values in a plan's JSON, not validated."""
    try:
        values = json.loads(text, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{origin}: expected JSON, found something else: {error}") from None
    if not isinstance(values, dict):
        raise PlanError(f"{origin}: expected a JSON object, found {type(values).__name__}")
    return values


def plan_of_json(text: str | bytes, origin: str = "the plan") -> MigrationPlan:
    """The plan in this JSON text; messages call the plan `origin`."""
    return plan_of(plan_values(text, origin), origin)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name in repeated(name for name, _ in pairs):
        raise ValueError(f"{name!r} is there more than once in one object")
    return dict(pairs)
