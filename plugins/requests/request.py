"""The request for a migration or a rollback, from the form or the nightly configuration.

Its fields are the fields of the form. Those that are options of a plan come from the plan; the others bear their own
`Option`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, StrictBool, create_model

from stateferry.airflow.requests.request_mode import Mode
from stateferry.airflow.requests.request_parts import (
    START,
    Approval,
    Arguments,
    Duration,
    Number,
    OldJob,
    OptionalDuration,
    ParallelismOfOperators,
    Program,
    Share,
    Text,
    checked,
    list_or_none,
)
from stateferry.airflow.requests.request_place import Place
from stateferry.airflow.requests.request_source import Source
from stateferry.airflow.requests.request_stop import WhenToStop
from stateferry.runs.plan.exclusions import ASK_WITHOUT_STATES, OPERATORS, STATE_EXCLUSIONS, broken, given_fields
from stateferry.runs.plan.option_marks import RUN, STATES, Kind, Option, OptionField
from stateferry.runs.plan.plan_from_options import (
    NAMES_OF_A_STATE,
    PLAN_OPTIONS,
    STATE_OPTIONS,
    in_words_of_options,
    name_of_option,
    plan_values_of,
)
from stateferry.runs.plan.plan_rules import given_in
from stateferry.runs.plan.planned_states import StatePlan
from stateferry.runs.plan.upgrade_options import SAME_FLINK

_FULL_EVERY = 7
DEMO_STATE = {"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState", "ttl_ms": "30d"}
DEMO_OPERATORS = [{"operator": "main", "states": [DEMO_STATE]}]


def _request_field(one: OptionField) -> Any:
    """The type and the default of a plan's option in a request."""
    types = {
        Kind.TEXT: Text,
        Kind.LINES: Text,
        Kind.NUMBER: Number,
        Kind.PARALLELISM: ParallelismOfOperators,
        Kind.SWITCH: StrictBool,
        Kind.CHOICE: Literal[one.choices],
        Kind.DURATION: OptionalDuration if one.default is None else Duration,
        Kind.SHARE: Share,
    }
    return Annotated[types[one.option.kind], one.option], one.default_shown


_OPTIONS = tuple(one for one in PLAN_OPTIONS if one.option.in_form)

if TYPE_CHECKING:

    class _PlanOptions(Source, Mode, Approval, Place, WhenToStop, OldJob): ...
else:
    _PlanOptions = create_model(
        "_PlanOptions",
        __base__=(Source, Mode, Approval, Place, WhenToStop, OldJob),
        **{one.name: _request_field(one) for one in _OPTIONS},
    )


def with_ttl(operators: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operators as a plan has them: people write `ttl`, as in the form, and a plan has `ttl_ms`."""

    def of_plan(state: object) -> object:
        if not isinstance(state, dict) or "ttl" not in state or "ttl_ms" in state:
            return state
        return {"ttl_ms" if name == "ttl" else name: value for name, value in state.items()}

    return [
        {**one, "states": [of_plan(state) for state in one["states"]]} if isinstance(one.get("states"), list) else one
        for one in operators
    ]


class MigrationRequest(_PlanOptions):
    """The request for a migration, or for a run that only rescales."""

    work: Annotated[
        Literal["migrate", "rescale only"],
        Option(
            Kind.CHOICE,
            "What to do",
            "`migrate`: make each map of a ValueState rows of a MapState. `rescale only`: write the whole savepoint in "
            "another parallelism or max parallelism, or in another format; no state is migrated, and there are no "
            "tables",
            section=STATES,
        ),
    ] = "migrate"

    operators: Annotated[
        list[dict[str, Any]] | None,
        BeforeValidator(list_or_none),
        Option(
            Kind.LIST,
            "Several at once",
            "for several operators or states, instead of the fields above: "
            '`[{"operator": "main", "states": [{"legacy": "a", "new": "b", "ttl": "30d"}]}]`',
            row=65,
            section=STATES,
        ),
    ] = None
    target: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Target",
            "the folder that becomes the new savepoint",
            row=160,
            section=RUN,
            if_empty="a new folder in Stateferry's home",
        ),
    ] = None

    start_job: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Start the new job",
            "start the new job from the new savepoint when it is published",
            section=START,
        ),
    ] = False
    new_flink_conn_id: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Flink connection of the new job",
            "the Airflow connection of the Flink that starts the new job, if it is another one, such as a Flink 2. The "
            "old job starts again where it ran",
            section=START,
            if_empty="the Flink where the old job ran",
        ),
    ] = None
    jar: Annotated[
        Text,
        Option(Kind.TEXT, "Jar", "file name or id of the jar that was uploaded to the new job's Flink", section=START),
    ] = None
    entry_class: Annotated[
        Text, Option(Kind.TEXT, "Entry class", "the class to start", section=START, if_empty="the jar's own")
    ] = None
    program_args: Annotated[
        Arguments, Option(Kind.TEXT, "Arguments", "the program's arguments, as on a command line", section=START)
    ] = ""
    job_parallelism: Annotated[
        Number,
        Option(
            Kind.NUMBER,
            "Parallelism of the job",
            "the parallelism with which the new job is started",
            section=START,
            if_empty="as the job or Flink says",
        ),
    ] = None
    start_timeout: Annotated[
        Duration,
        Option(
            Kind.DURATION,
            "Time to its first checkpoint",
            "a new job that has completed no checkpoint by then counts as failed, and the old job is started again",
            section=START,
        ),
    ] = "10m"

    @property
    def names_states(self) -> bool:
        """Whether the request says what is to be done, which a check alone need not know."""
        return self.work == "rescale only" or self.source == "demo" or bool(self.plan_values()["operators"])

    @property
    def stops_job(self) -> bool:
        """Whether the job is stopped with the savepoint."""
        return self.is_of_running_job and not self.rehearses

    @property
    def takes_savepoint(self) -> bool:
        """Whether Flink takes a savepoint for the run."""
        return self.source == "flink" or self.stops_job

    def rehearsal(self) -> MigrationRequest:
        """The same request as a rehearsal, without approval and without a job to start."""
        nobody = {"approval": False, "approvers": None, "four_eyes": False, "window": None, "on_sign": False}
        nothing = {"start_job": False, "jar": None, "new_spec": None, "new_flink_conn_id": None}
        nothing |= {"outage_limit": None, "outage_alert": None}
        # A cut-over's own rehearsal is the base of its catch-ups, and a night has its own number.
        stop = {"stop_with": "savepoint", "may_repeat": False, "full_every": None}
        return self.model_copy(update={"mode": "rehearse", **nothing, **nobody, **stop})

    def night(self) -> MigrationRequest:
        """The same request as a rehearsal of every night, which converts only what has changed where it can."""
        given = getattr(self, "full_every")  # noqa: B009  the fields of options aren't known to the type checker
        default = _FULL_EVERY if self.is_native and not self._why_no_since() else None
        # No job claims what a night has made.
        return self.rehearsal().model_copy(update={"full_every": given or default, "claimable": False})

    @property
    def keeps_base(self) -> bool:
        """Whether its rehearsal is caught up with later, so that Flink may drop its checkpoint meanwhile."""
        later = getattr(self, "full_every") if self.rehearses else None  # noqa: B009  as above
        return bool(later and later > 1) or not self.why_no_catch_up()

    @property
    def is_native(self) -> bool:
        """Whether the result has RocksDB's own files."""
        return self.given_options().get("format") == "native"

    def why_no_catch_up(self) -> str:
        """Why nothing is caught up with before the job is stopped; empty if it is."""
        if not self.stops_job:
            return "this run stops no job"
        if not self.is_native:
            return "the format isn't native, so everything is converted while the job stands still"
        if not self.catch_up:
            return "catch_up is off, so everything is converted while the job stands still"
        return self._why_no_since()

    def _why_no_since(self) -> str:
        """Why nothing like it can be caught up with, whatever the savepoint has; empty if it can, as far as it says."""
        if self.work == "rescale only" and self.given_options().get("to", SAME_FLINK) == SAME_FLINK:
            return "work is 'rescale only', and a catch-up is of a migration, or for another Flink (to)"
        values = {"operators": (), **self.plan_values(), "since": "the rehearsal"}
        why = [row.why for row in broken(given_in(values, self._states(values)))]
        return in_words_of_options(why[0], name_of_option) if why else ""

    @property
    def has_way_back(self) -> bool:
        """Whether the old job can be started again: a session cluster needs its program, the other places know it."""
        return self.old_jar is not None or self.runs_on != "session"

    @property
    def new_job_conn_id(self) -> str:
        """The connection of the Flink that starts the new job."""
        return self.new_flink_conn_id or self.flink_conn_id

    def new_program(self) -> Program:
        """The program of the new job."""
        return Program(str(self.jar), self.entry_class, shlex.split(self.program_args), self.job_parallelism)

    def given_options(self) -> dict[str, Any]:
        """The options of a plan, by name, that have another value than their default."""
        values = {one.name: (getattr(self, one.name), one.default_shown) for one in _OPTIONS}
        return {name: value for name, (value, default) in values.items() if value != default}

    def plan_values(self) -> dict[str, Any]:
        """What the request says of the plan, by the names of the plan's fields."""
        values = plan_values_of(self.given_options())
        if self.work == "rescale only":
            return {"job": "demo", **values, "rehearse": self.rehearses}
        of_demo = DEMO_OPERATORS if self.source == "demo" else []
        operators = with_ttl(self.operators) if self.operators else values.get("operators") or of_demo
        job = "demo" if self.source == "demo" or not operators else str(operators[0].get("operator"))
        return {"job": job, **values, "operators": operators, "rehearse": self.rehearses}

    def problems(self) -> Iterator[str]:
        yield from self.source_problems(rehearses=self.rehearses)
        yield from self.approval_problems()
        yield from self.stop_problems(stops_job=self.stops_job)
        yield from self.place_problems(stops_job=self.stops_job, starts_job=self.start_job)
        if self.stops_with_checkpoint and self.stops_job:
            yield from self._with_checkpoint_problems()
        if self.given_options().get("claimable") and self.runs_on == "kubernetes" and self.start_job:
            yield "claimable: given, but runs_on is 'kubernetes', where no job claims a savepoint: leave it off"
        yield from self._state_problems() if self.work == "migrate" else self._rescale_problems()
        yield from self._option_problems()
        if self.start_job and self.rehearses:
            yield "start_job: a rehearsal starts no job: choose mode 'cut over', or leave start_job off"
        yield from self.mode_problems(self.given_options())
        if self.checks_only and self.source == "flink":
            yield "source: 'flink' takes a savepoint, and mode 'check only' takes none: choose 'checkpoint' or 'path'"
        yield from self._program_problems()
        if self.stops_job:
            for name in ("outage_limit", "outage_alert"):
                if getattr(self, name) is not None and not self.start_job:
                    yield (
                        f"{name}: given, but start_job is off, and the outage ends with the first checkpoint of the "
                        f"job that this run starts: turn it on, or leave {name} empty"
                    )
            if self.outage_limit is not None and not self.has_way_back:
                yield "old_jar: missing, and outage_limit needs it: name the jar by which the old job is started again"

    def _program_problems(self) -> Iterator[str]:
        """What is wrong with the programs that a session cluster starts."""
        if self.runs_on != "session":
            for name in ("jar", "old_jar", "new_flink_conn_id"):
                if self.has(name):
                    yield f"{name}: given, but runs_on is '{self.runs_on}': leave {name} empty"
            return
        if self.start_job and self.jar is None:
            yield "jar: missing, and start_job needs it: name the jar that was uploaded to Flink"
        for name in ("jar", "new_flink_conn_id"):
            if not self.start_job and self.has(name):
                yield f"{name}: given, but start_job is off: turn it on, or leave {name} empty"

    def _rescale_problems(self) -> Iterator[str]:
        given = self.given_options()
        named = [one.name for one in STATE_OPTIONS if one.name in given]
        named += ["operators"] if self.operators is not None else []
        yield from map(_needs_a_migration, named)
        if not ASK_WITHOUT_STATES & plan_values_of(given).keys():
            yield (
                "parallelism: missing: work 'rescale only' needs parallelism or max_parallelism (or format 'native', "
                "state_ttl to drop what has expired, or to for another Flink): give one of them"
            )
        if "job" not in given and self.source != "demo":
            yield "job: missing: without an operator to migrate, nothing names the job: give it a name"

    def _option_problems(self) -> Iterator[str]:
        """Options that others exclude, in the words of the form."""
        if not self.names_states:
            return
        values = self.plan_values()
        operators = [] if self.work == "rescale only" else values["operators"]
        states = self._states({"operators": operators})
        for row in broken(given_in({**values, "operators": operators or ()}, states)):
            if not operators and OPERATORS in row.needs:
                yield _needs_a_migration(name_of_option(row.option))
            else:
                yield in_words_of_options(row.why, name_of_option)
        for state in states:
            for row in broken(given_fields(state, StatePlan), STATE_EXCLUSIONS):
                yield in_words_of_options(row.why, name_of_option)

    @staticmethod
    def _states(values: Mapping[str, Any]) -> list[dict[str, Any]]:
        lists = [one["states"] for one in values["operators"] if isinstance(one.get("states"), list)]
        return [state for of_operator in lists for state in of_operator if isinstance(state, dict)]

    def _with_checkpoint_problems(self) -> Iterator[str]:
        if self.runs_on == "own tasks":
            yield "stop_with: 'checkpoint', but runs_on is 'own tasks': only Flink and its operator are asked for one"
        if self.runs_on == "kubernetes" and str(self.resource).startswith("flinksessionjob/"):
            yield (
                "stop_with: 'checkpoint', but resource is a FlinkSessionJob, which its operator starts again as soon "
                "as it is cancelled: stop it with a savepoint"
            )
        if self.source != "checkpoint":
            yield (
                "stop_with: 'checkpoint', but source is 'flink': choose source 'checkpoint', so that the rehearsal "
                "shows that the job's checkpoints can be read"
            )

    def _state_problems(self) -> Iterator[str]:
        given = self.given_options()
        named = [one.name for one in STATE_OPTIONS if one.name in given]
        if self.operators is not None:
            yield from (f"{name}: given beside operators: give it in operators, or leave it empty" for name in named)
        elif named or not (self.checks_only or self.source == "demo"):
            together = f"{', '.join(NAMES_OF_A_STATE[:-1])} and {NAMES_OF_A_STATE[-1]} are named together"
            yield from (f"{name}: missing: {together}" for name in NAMES_OF_A_STATE if name not in given)


def _needs_a_migration(name: str) -> str:
    return f"{name}: given, but work is 'rescale only': choose 'migrate', or leave {name} empty"


def migration_request(values: Mapping[str, object], origin: str) -> MigrationRequest:
    """The request with these values; raises a `PlanError` with a line for each problem, which names `origin`."""
    return checked(MigrationRequest, values, origin)
