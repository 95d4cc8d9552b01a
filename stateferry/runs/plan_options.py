"""The options of a plan, and the plan's values that given options make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stateferry.runs.options import OptionField, option_fields
from stateferry.runs.plan import MigrationPlan, OperatorPlan, StatePlan


def _by_row(*options: OptionField) -> tuple[OptionField, ...]:
    return tuple(sorted(options, key=lambda one: one.option.row))


# Options that name one state of one operator. A plan with several has a list of operators instead.
STATE_OPTIONS = _by_row(*option_fields(OperatorPlan), *option_fields(StatePlan))
PLAN_OPTIONS = _by_row(*STATE_OPTIONS, *option_fields(MigrationPlan))
# These three are given together.
NAMES_OF_A_STATE = tuple(one.name for one in STATE_OPTIONS if one.required)


def plan_values_of(given: Mapping[str, object]) -> dict[str, Any]:
    """The values that a plan has for options by their names; None counts as not given."""
    values, operator, state = (
        {one.field: given[one.name] for one in option_fields(model) if given.get(one.name) is not None}
        for model in (MigrationPlan, OperatorPlan, StatePlan)
    )
    if operator or state:
        values["operators"] = [{**operator, "states": [state]}]
    return values
