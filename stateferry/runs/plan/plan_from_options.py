"""Makes a plan of options that were given, and says what is wrong with it in the names of these options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from stateferry.runs.plan.option_marks import OptionField, option_fields
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.planned_states import OperatorPlan, StatePlan


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


_BY_FIELD = {one.field: one for one in PLAN_OPTIONS}


def name_of_option(field: str) -> str:
    """The name of a plan's option in the form and in a request."""
    return _BY_FIELD[field].name


def flag_of_option(field: str) -> str:
    """The name of a plan's option on the command line."""
    return _BY_FIELD[field].flag


def in_words_of_options(problems: str, shown: Callable[[str], str] = flag_of_option) -> str:
    """The problems of a plan that was made of options: they name the options as `shown`, and not the plan's fields."""
    problems = _PLACE.sub("", problems)
    for field in _BY_FIELD:
        problems = re.sub(rf"^{field}(?=: )", shown(field), problems, flags=re.MULTILINE)
        problems = problems.replace(f"({field})", f"({shown(field)})")
        if "_" in field:
            # This is no word of a sentence; in quotes or in a path it is the name of something else.
            problems = re.sub(rf"(?<![\w/'\"-]){field}(?![\w'\"-])", shown(field), problems)
    return problems
