"""The forms that Airflow shows when a DAG is triggered, made from the options of the requests."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param
from pydantic import BaseModel

from stateferry.airflow.requests.request import MigrationRequest
from stateferry.airflow.requests.request_parts import APPROVAL, BACK, JOB, PLACE, START, STOP
from stateferry.airflow.requests.rollback_request import RollbackRequest
from stateferry.runs.plan.option_marks import RUN, SOURCE, STATES, Kind, OptionField, option_fields
from stateferry.runs.plan.plan_fields import valid_parallelism

# As a request takes it: a number of up to three digits needs its unit.
_DURATION = r"^\s*([0-9]+(\.[0-9]{1,9})? ?(ms|s|m|h|d)|(0+|0*[1-9][0-9]{3,})(\.0{1,9})?)\s*$"
_OPTIONAL_DURATION = rf"({_DURATION})|^$"
_OPTIONAL_SHARE = r"^([0-9]+(\.[0-9]+)? ?%?)?$"
_PARALLELISM = r"^([1-9][0-9]*|.+=\s*[0-9]+\s*)?$"
_SECTIONS = (JOB, SOURCE, STATES, RUN, APPROVAL, PLACE, STOP, START, BACK)


def migration_params(request: MigrationRequest | None = None) -> dict[str, Param]:
    """The form of a migration, filled in with the values of the request if there is one."""
    return _form(MigrationRequest, request)


def rollback_params() -> dict[str, Param]:
    """The form of a rollback."""
    return _form(RollbackRequest, None)


def _form(model: type[BaseModel], given: BaseModel | None) -> dict[str, Param]:
    options = sorted(option_fields(model), key=lambda one: (_SECTIONS.index(one.option.section), one.option.row))
    shown = list(dict.fromkeys(one.option.section for one in options))
    filled_in = {} if given is None else given.model_dump()
    return {
        one.name: _param(
            one, f"{shown.index(one.option.section) + 1}. {one.option.section}", filled_in.get(one.name, one.default)
        )
        for one in options
    }


def _param(one: OptionField, section: str, value: object) -> Param:
    # The page keeps its button off as long as a text that can't be null is empty.
    default = None if one.default == "" else one.default
    if one.option.kind is Kind.PARALLELISM and value is not None:
        value = _shown_parallelism(one.name, value)
    # The form renders Markdown only in `description_md`, and only if there is no plain description.
    return Param(
        None if value == "" else value,
        title=one.option.title,
        section=section,
        description_md=_description(one),
        **_rules(one, default),
    )


def _shown_parallelism(name: str, value: object) -> int | str:
    """The parallelism as people write it into the form, which has no field for an object."""
    given = valid_parallelism(value)
    if isinstance(given, int):
        return given
    text = ",".join(f"{operator}={number}" for operator, number in given.items())
    if valid_parallelism(text) != given:
        raise ValueError(f"{name}: the form can't show {given}: name each operator by its id")
    return text


def _description(one: OptionField) -> str:
    text = f"{one.option.help[0].upper()}{one.option.help[1:]}."
    return f"{text} Empty: {one.option.if_empty}." if one.option.if_empty else text


def _rules(one: OptionField, default: object) -> dict[str, Any]:
    """The rules of JSON Schema that a value of the field must keep."""
    match one.option.kind:
        case Kind.SWITCH:
            return {"type": "boolean"}
        case Kind.CHOICE:
            return {"type": "string", "enum": list(one.choices)}
        case Kind.NUMBER:
            return {"type": ["null", "integer"], "minimum": 1, "maximum": 32768}
        case Kind.PARALLELISM:
            bounds = {"minimum": 1, "maximum": 32768}
            return {"type": ["null", "string", "integer"], "pattern": _PARALLELISM, **bounds}
        case Kind.SHARE:
            return {"type": ["null", "string", "number"], "pattern": _OPTIONAL_SHARE}
        case Kind.LINES:
            return {"type": ["null", "string"], "format": "multiline"}
        case Kind.LIST:
            return {"type": ["null", "array"], "items": {"type": "object"}}
        case Kind.DURATION if default is None:
            return {"type": ["null", "string"], "pattern": _OPTIONAL_DURATION}
        case Kind.DURATION:
            return {"type": "string", "pattern": _DURATION}
        case Kind.TEXT:
            return {"type": ["null", "string"]} if default is None else {"type": "string", "minLength": 1}
