"""The options of a plan, and the plan's values that given options make."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stateferry.runs.plan.options import OptionField, option_fields
from stateferry.runs.plan.plan import MigrationPlan, OperatorPlan, StatePlan


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


# Where the only state that options can name is in the plan.
_PLACE = re.compile(r"^the plan: (operators\[0\](\.states\[0\])?(\.|: ))?", re.MULTILINE)


def in_words_of_options(problems: str) -> str:
    """The problems of a plan that was made of options: they name the options, and not the plan's fields."""
    problems = _PLACE.sub("", problems)
    for one in PLAN_OPTIONS:
        problems = re.sub(rf"^{one.field}(?=: )", one.flag, problems, flags=re.MULTILINE)
        problems = problems.replace(f"({one.field})", f"({one.flag})")
        if "_" in one.field:
            # This is no word of a sentence; in quotes or in a path it is the name of something else.
            problems = re.sub(rf"(?<![\w/'\"-]){one.field}(?![\w'\"-])", one.flag, problems)
    return problems
