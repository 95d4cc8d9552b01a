"""Which states of which operators a plan migrates."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, StrictStr, model_validator

from stateferry.basics.durations import MAX_MILLISECONDS
from stateferry.runs.plan.exclusions import STATE_EXCLUSIONS, broken, given_fields
from stateferry.runs.plan.option_marks import Kind, Option
from stateferry.runs.plan.plan_fields import Name, PlanModel, raise_problems, valid_map_type, valid_milliseconds


class StatePlan(PlanModel):
    """One legacy `ValueState<Map>` and the `MapState` that it becomes; with `field` it is a POJO with a map in it."""

    legacy: Annotated[
        Name,
        Option(
            Kind.TEXT,
            "Legacy state",
            "the ValueState of a map that is migrated, by its name in the old job",
            row=20,
            name="legacy_state",
        ),
    ]
    new: Annotated[
        Name,
        Option(
            Kind.TEXT, "New state", "the MapState that it becomes, by its name in the new job", row=30, name="new_state"
        ),
    ]
    field: Annotated[
        Name | None,
        Option(
            Kind.TEXT,
            "Field of the legacy state",
            "the field with the map, if the legacy state is a ValueState of a POJO with a map in it",
            row=33,
        ),
    ] = None
    rest: Annotated[
        Literal["stop", "keep", "drop"],
        Option(
            Kind.CHOICE,
            "Rest of the POJO",
            "what becomes of the POJO's other fields: keep leaves the POJO as its own state, of the same name and "
            "types, with null in the field of the map; drop leaves it out of the new savepoint; stop refuses the run",
            row=35,
        ),
    ] = "stop"
    flag: Annotated[
        Name | None,
        Option(
            Kind.TEXT,
            "Flag state",
            "the Boolean state that the job sets for each key that it has moved itself, if there is one",
            row=40,
            name="flag_state",
        ),
    ] = None
    no_flag: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "No flag state",
            "the job has no flag state, although it has a Boolean state that looks like one",
            row=50,
            name="no_flag_state",
        ),
    ] = False
    flag_ttl: Annotated[
        Literal["as-legacy", "with", "without"],
        Option(
            Kind.CHOICE,
            "TTL of a new flag state",
            "whether a flag state that a lazy run makes, because the savepoint has none, has time to live in the job: "
            "with, without, or as the legacy state",
            row=55,
        ),
    ] = "as-legacy"
    ttl_ms: Annotated[
        Annotated[StrictInt, Field(ge=1, le=MAX_MILLISECONDS), BeforeValidator(valid_milliseconds)] | None,
        Option(
            Kind.DURATION,
            "Time to live",
            "the time to live of the states, if they have one, such as 90s, 15m, 12h or 30d; the savepoint does not "
            "contain it",
            row=60,
            name="ttl",
        ),
    ] = None

    map_type: Annotated[
        StrictStr | None,
        AfterValidator(valid_map_type),
        Option(
            Kind.TEXT,
            "Type of the map",
            "what the maps of a legacy state by Kryo are, such as Map<String, Long>, if their values don't show it",
            row=65,
            name="as",
            metavar="TYPE",
        ),
    ] = None

    widen: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Widen numbers",
            "numbers of narrower types than the type of the map says become numbers of that type: Byte, Short and "
            "Integer become Long, Byte and Short become Integer, Float becomes Double",
            row=66,
        ),
    ] = False

    @model_validator(mode="after")
    def _names_differ(self) -> StatePlan:
        if self.new == self.legacy:
            raise ValueError(f"legacy and new state are both {self.new!r}: name the state of the new job's descriptor")
        if self.flag in (self.legacy, self.new):
            raise ValueError(f"flag {self.flag!r} is also the legacy or new state: name the flag's own state, or none")
        raise_problems(row.why for row in broken(given_fields(dict(self), StatePlan), STATE_EXCLUSIONS))
        return self


class OperatorPlan(PlanModel):
    """The states to migrate of one operator, which is named by its id, uid or unique name."""

    operator: Annotated[
        Name,
        Option(
            Kind.TEXT,
            "Operator",
            "the operator that has the states: its uid, name or id. `stateferry inspect SAVEPOINT` lists the operators "
            "of a savepoint with their states",
            row=10,
        ),
    ]
    states: Annotated[tuple[StatePlan, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _states_are_separate(self) -> OperatorPlan:
        names = [name for state in self.states for name in (state.legacy, state.new)]
        problems = [
            f"state {name!r} is named {count} times in operator {self.operator!r}: "
            "each legacy and each new state can be there once"
            for name, count in Counter(names).items()
            if count > 1
        ]
        # Two legacy states may share a flag, because a job may move both at once.
        problems += [
            f"state {state.flag!r} of operator {self.operator!r} is a flag and a map: name another flag"
            for state in self.states
            if state.flag in names and state.flag not in (state.legacy, state.new)
        ]
        raise_problems(problems)
        return self
