"""The migration plan: the complete configuration of a run.

Options that are left out get their values when the run is planned, and keep them in every re-run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from flinkstate.errors import PlanError, UsageError
from flinkstate.metadata.chunks import TARGET_BYTES
from stateferry.basics import catalog_address
from stateferry.basics.durations import MAX_MILLISECONDS, MILLISECONDS_PER_UNIT, now_ms
from stateferry.basics.formats import FIELD, FIRST, FORMAT, check_format
from stateferry.runs.plan.options import RUN, SOURCE, Kind, Option, option_fields
from stateferry.runs.plan.plan_fields import (
    ADDED,
    Milliseconds,
    MovedShare,
    Name,
    Parallelism,
    ParallelismOfOperators,
    Place,
    PlanModel,
    Share,
    absolute_place,
    check_name_of_home,
    valid_map_type,
    valid_milliseconds,
    valid_roots,
    valid_share,
)
from stateferry.runs.plan.plan_problems import problem_lines
from stateferry.runs.plan.state_ttls import StateTtlPlan, StateTtls

HOME_VARIABLE, WAREHOUSE_VARIABLE = "STATEFERRY_HOME", "STATEFERRY_WAREHOUSE"
CATALOG_VARIABLE = catalog_address.VARIABLE
DEFAULT_HOME = "~/.stateferry"
DEFAULT_CLOCK_TOLERANCE_MS = 10 * MILLISECONDS_PER_UNIT["m"]
_RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}", re.ASCII)
_CATALOGS = ("sqlite:///", "postgresql://", "postgresql+")
# What the first plans had instead of `nulls`. Fingerprints still count it, so that runs of such plans go on.
_OF_FIRST_PLANS = {"drop_unrepresentable_nulls": False}
# Fields that may differ in another request for the same work.
_OF_THE_RUN = {"run_id", "now", "now_from"}


class StatePlan(PlanModel):
    """One legacy `ValueState<Map>` and the `MapState` that it becomes."""

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
        ADDED,
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
        ADDED,
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

    @model_validator(mode="after")
    def _names_differ(self) -> StatePlan:
        if self.new == self.legacy:
            raise ValueError(f"legacy and new state are both {self.new!r}: name the state of the new job's descriptor")
        if self.flag in (self.legacy, self.new):
            raise ValueError(f"flag {self.flag!r} is also the legacy or new state: name the flag's own state, or none")
        if self.flag is not None and self.no_flag:
            raise ValueError(f"flag {self.flag!r} is named, and no_flag says that there is none: leave one of them out")
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
    def _states_keep_apart(self) -> OperatorPlan:
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
        _raise(problems)
        return self


def new_run_id() -> str:
    """A unique id that begins with the present time: `20260102T030405Z-1a2b3c`."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def default_home() -> str:
    """The home that the environment names, or the default one."""
    return os.environ.get(HOME_VARIABLE) or DEFAULT_HOME


def default_catalog(home: str) -> str:
    """The catalog's address: from the environment, without a password, else a SQLite database in the home."""
    if named := os.environ.get(CATALOG_VARIABLE):
        return catalog_address.without_password(named)
    folder = str(absolute_place(home)).rstrip("/")
    if "://" in folder:
        raise UsageError(
            f"{folder} can't hold a catalog in SQLite: name a Postgres database in {CATALOG_VARIABLE}, such as "
            "postgresql://host/database"
        )
    return f"sqlite:///{folder}/catalog.db"


def default_warehouse(home: str) -> str:
    """The folder of the tables' files: from the environment, else in the home."""
    return os.environ.get(WAREHOUSE_VARIABLE) or f"{str(absolute_place(home)).rstrip('/')}/warehouse"


class MigrationPlan(PlanModel):
    """All options of a run; `now` and times to live are in milliseconds.

    Without `operators` no state is migrated: the savepoint is only rescaled. `parallelism` is one for the migrated
    operators (of all operators, if none is migrated), or one for each operator that it names. `max_parallelism` is for
    the whole savepoint. None leaves either as it is.
    """

    job: Annotated[
        Name,
        Option(
            Kind.TEXT,
            "Name of the job",
            "the name under which runs, tables and publications are kept",
            row=70,
            if_empty="the operator's name",
        ),
    ]
    run_id: StrictStr = Field(default_factory=new_run_id)
    source: Place
    target: Place
    now: Annotated[
        Milliseconds,
        Option(
            Kind.NUMBER,
            "Now",
            "the moment that counts as now for expiry, in milliseconds since 1970",
            row=115,
            metavar="MS",
            if_empty="this moment",
            in_form=False,
        ),
    ] = Field(default_factory=now_ms)
    operators: Annotated[tuple[OperatorPlan, ...], ADDED] = ()
    parallelism: Annotated[
        ParallelismOfOperators | None,
        Option(
            Kind.PARALLELISM,
            "Parallelism",
            "the parallelism in the new savepoint: a number is for the migrated operators, or for all operators if no "
            "state is migrated; main=4,enrich=8 is for the operators with these uids, names or ids",
            row=140,
            section=RUN,
            if_empty="as it is",
        ),
    ] = None
    max_parallelism: Annotated[
        Parallelism | None,
        Option(
            Kind.NUMBER,
            "Max parallelism",
            "the max parallelism of every operator in the new savepoint",
            row=150,
            section=RUN,
            if_empty="as it is",
        ),
    ] = None
    # The default for new plans is `auto` (`new_plan_values`). Earlier versions wrote what is now `source`.
    compression: Annotated[
        Literal["auto", "snappy", "stored", "none", "source"],
        ADDED,
        Option(
            Kind.CHOICE,
            "Compression",
            "how keyed state is written: compressed by snappy; stored, which is blocks with checksums; none, which "
            "Flink restores several times slower from a local disk; source, which is as in the source; or auto, which "
            "is snappy for operators that have it in the source, and for all of a large state, and else stored",
            row=155,
            section=RUN,
            new="auto",
        ),
    ] = "source"
    output_format: Annotated[
        Literal["canonical", "native"],
        ADDED,
        Option(
            Kind.CHOICE,
            "Format",
            "how keyed state is written: canonical, which every state backend restores, or native, as RocksDB's own "
            "files, which a job on RocksDB opens instead of reading each entry",
            row=160,
            section=RUN,
            name="format",
        ),
    ] = "canonical"
    rehearse: StrictBool = False
    keep_expired: Annotated[
        StrictBool, Option(Kind.SWITCH, "Keep expired entries", "carry expired entries over too", row=90)
    ] = False
    keep_legacy: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH, "Keep the legacy state", "keep the legacy state and the flag beside the new state", row=120
        ),
    ] = False
    lazy: Annotated[
        StrictBool,
        ADDED,
        Option(
            Kind.SWITCH,
            "Lazy",
            "move only some keys (share or budget says how many) and set their flags; the others keep their blobs, and "
            "the job or later runs move them",
            row=122,
        ),
    ] = False
    share: Annotated[
        MovedShare | None,
        BeforeValidator(valid_share),
        ADDED,
        Option(
            Kind.SHARE,
            "Share of the keys",
            "of a lazy run: how many keys it moves, as a share of all keys of the state, moved or not, such as 30%",
            row=123,
        ),
    ] = None
    budget_ms: Annotated[
        Annotated[StrictInt, Field(ge=1, le=MAX_MILLISECONDS)] | None,
        BeforeValidator(valid_milliseconds),
        ADDED,
        Option(
            Kind.DURATION,
            "Time budget",
            "of a lazy run: it moves as many keys as fit into this time, such as 60s, by the rates that earlier runs "
            "of the job have measured",
            row=124,
            name="budget",
        ),
    ] = None
    largest_first: Annotated[
        StrictBool,
        ADDED,
        Option(
            Kind.SWITCH,
            "Largest first",
            "a lazy run moves the keys with the largest maps first, instead of keys in the order of a hash",
            row=125,
        ),
    ] = False
    reverse: Annotated[
        StrictBool,
        ADDED,
        Option(
            Kind.SWITCH,
            "Reverse",
            "the way back: from a savepoint of the new job, rows of the new state become blobs of the legacy state "
            "again, for the old job",
            row=127,
        ),
    ] = False
    drop_legacy_blobs: Annotated[
        StrictBool,
        ADDED,
        Option(
            Kind.SWITCH,
            "Drop legacy blobs",
            "in reverse: the rows alone count, and blobs that the new job's savepoint still has are left out",
            row=128,
        ),
    ] = False
    nulls: Annotated[
        Literal["stop", "keep", "drop"],
        ADDED,
        Option(
            Kind.CHOICE,
            "Null values",
            "what becomes of null values that the value's serializer cannot write, such as those of Long: keep them, "
            "although the new job can do less with them than the old one; drop them; with stop, the run stops and says "
            "what the job could not do",
            row=130,
        ),
    ] = "stop"
    no_timers: Annotated[
        StrictBool,
        ADDED,
        Option(
            Kind.SWITCH,
            "No timers",
            "operators whose native savepoint has no timers have none; Flink leaves timers that are on the heap out of "
            "native savepoints",
            row=135,
        ),
    ] = False
    on_contradiction: Annotated[
        Literal["stop", "blob", "rows"],
        Option(
            Kind.CHOICE,
            "On contradiction",
            "what counts for a key that is flagged as moved and still has a blob: the blob or the rows; with stop, the "
            "run stops",
            row=80,
        ),
    ] = "stop"
    # The share of the last run's keys that may be missing. If more are missing, it is probably another savepoint.
    vanish_threshold: Share = 0.5
    # None allows the usual share, which `expiry_guard` describes.
    accept_expired: Annotated[
        Share | None,
        BeforeValidator(valid_share),
        ADDED,
        Option(
            Kind.SHARE,
            "Accept that expires",
            "the share of a state's entries that may expire in this run, such as 60%",
            row=100,
            if_empty="a quarter, and not many more than in the last green run",
        ),
    ] = None
    # None allows the usual share, which `name_guard` describes.
    accept_empty: Annotated[
        Share | None,
        BeforeValidator(valid_share),
        ADDED,
        Option(
            Kind.SHARE,
            "Accept without rows",
            "the share of the keys flagged as moved that may have no rows in the new state, because the job has "
            "emptied their maps or the rows have expired, such as 10%; 100% says that the names of all states are "
            "right",
            row=102,
            if_empty="5%, if no other state has their rows",
        ),
    ] = None
    clock_tolerance_ms: Annotated[
        Milliseconds,
        BeforeValidator(valid_milliseconds),
        ADDED,
        Option(
            Kind.DURATION,
            "Clocks may differ by",
            "how much later than now a timestamp may be, because clocks differ; a later one stops the run",
            row=110,
            name="clock_tolerance",
        ),
    ] = DEFAULT_CLOCK_TOLERANCE_MS
    state_ttls: Annotated[
        StateTtls,
        ADDED,
        Option(
            Kind.LINES,
            "Time to live of other states",
            "the time to live of a state that isn't migrated, so that its expired entries are counted, or left out as "
            "well: main/sessions=30d or main/sessions=30d:drop; or further settings of a migrated one: "
            "main/mainState=30d:ReturnExpiredIfNotCleanedUp",
            row=67,
            name="state_ttl",
            metavar="OPERATOR/STATE=DURATION",
            if_empty="other states stay as they are",
        ),
    ] = ()
    # New beginnings, by the old ones, of absolute addresses in `_metadata`.
    files_from: Annotated[
        dict[Name, Name] | None,
        BeforeValidator(valid_roots),
        ADDED,
        Option(
            Kind.LINES,
            "Where its files are",
            "the files that _metadata has below OLD are below NEW now (paths or URIs); also names a place on another "
            "store that _metadata may refer to: s3://other/=s3://other/",
            row=200,
            section=SOURCE,
            metavar="OLD=NEW",
            if_empty="where _metadata says, on the savepoint's own store",
        ),
    ] = None
    # Where `now` comes from: a clock (or an option), the end of a backfilled day, or the savepoint's newest timestamp.
    now_from: Annotated[Literal["clock", "backfill", "savepoint"], ADDED] = "clock"
    # These three have defaults too (see `_with_home`): the catalog and the warehouse are in the home.
    home: Place
    catalog_uri: Name
    warehouse: Place
    chunk_bytes: Annotated[StrictInt, Field(ge=1 << 20, le=1 << 30)] = TARGET_BYTES

    @model_validator(mode="before")
    @classmethod
    def _with_home(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        home = values.get("home", default_home())
        try:
            absolute_place(home)
        except UsageError as error:
            raise ValueError(f"home: {error}") from None
        defaults: dict[str, object] = {"home": home}
        if "catalog_uri" not in values:
            defaults["catalog_uri"] = default_catalog(str(home))
        values = {**defaults, "warehouse": default_warehouse(str(home)), **values}
        drops_nulls = [values.pop(name) for name in _OF_FIRST_PLANS if name in values]
        return {"nulls": "drop", **values} if drops_nulls == [True] else values

    @model_validator(mode="after")
    def _fits_together(self) -> MigrationPlan:
        _raise(list(self._problems()))
        return self

    def _problems(self) -> Iterator[str]:
        if not _RUN_ID.fullmatch(self.run_id):
            yield (
                f"run_id: expected up to 100 letters, digits, '.', '_' or '-', found {self.run_id!r}: "
                "give another one, or leave it out"
            )
        source, target = (folder_of(name) for name in (self.source, self.target))
        if f"{target}/".startswith(f"{source}/") or f"{source}/".startswith(f"{target}/"):
            yield f"target {self.target} and source {self.source} lie one in the other: give the target its own folder"
        for operator in _repeated([operator.operator for operator in self.operators]):
            yield f"operators: {operator!r} is there more than once: put its states into one list"
        for named in _repeated([f"{one.operator}/{one.state}" for one in self.state_ttls]):
            yield f"state_ttls: {named} is there more than once: give it one time to live"
        if not self.catalog_uri.startswith(_CATALOGS):
            yield (
                f"catalog_uri: expected sqlite:////absolute/path.db or postgresql://host/database, found "
                f"{self.catalog_shown!r}"
            )
        yield from self._place_problems()
        yield from self._layout_problems()
        if self.rescales_only:
            yield from self._rescale_problems()
            return
        states = [state for operator in self.operators for state in operator.states]
        if self.keep_expired and all(state.ttl_ms is None for state in states):
            yield "keep_expired: no state has a ttl_ms, so none can expire: give the ttl_ms, or leave keep_expired out"
        if self.on_contradiction != "stop" and all(state.flag is None for state in states):
            yield (
                f"on_contradiction is {self.on_contradiction!r}, but only a flag can contradict a blob: "
                "name the flag state (flag), or leave on_contradiction out"
            )
        yield from self._lazy_problems(states)
        yield from self._problems_in_reverse()

    def _place_problems(self) -> Iterator[str]:
        """What is wrong with the names of places, by themselves."""
        for what, name in (("home", self.home), ("warehouse", self.warehouse), ("catalog_uri", self.catalog_shown)):
            try:
                # In the address of a server such signs have their usual meaning.
                if what != "catalog_uri" or name.startswith("sqlite:"):
                    check_name_of_home(name, f"{what}:")
            except UsageError as error:
                yield str(error)
                break  # The others lie in the home, if they aren't told.
        for place in (self.files_from or {}).values():
            try:
                absolute_place(place)
            except UsageError as error:
                yield f"files_from: {error}"

    def _layout_problems(self) -> Iterator[str]:
        wanted = self.parallelism if isinstance(self.parallelism, dict) else {"": self.parallelism}
        for operator, parallelism in wanted.items():
            if parallelism and self.max_parallelism and parallelism > self.max_parallelism:
                of = f" of operator {operator!r}" if operator else ""
                yield (
                    f"parallelism {parallelism}{of} is above max_parallelism {self.max_parallelism}: "
                    "lower the one or raise the other"
                )

    def _rescale_problems(self) -> Iterator[str]:
        """Why a plan without states makes no sense."""
        as_it_is = self.parallelism is None and self.max_parallelism is None and self.output_format == "canonical"
        if as_it_is and not any(one.drops for one in self.state_ttls):
            yield (
                "operators: missing: name the operator with its legacy and new state; or, to rescale without a "
                "migration, give parallelism, max_parallelism or format native"
            )
        of_a_migration = {
            "keep_expired": self.keep_expired,
            "keep_legacy": self.keep_legacy,
            "nulls": self.nulls != "stop",
            "on_contradiction": self.on_contradiction != "stop",
            "accept_expired": self.accept_expired is not None and not self.state_ttls,
            "accept_empty": self.accept_empty is not None,
            "lazy": self.lazy,
            "share": self.share is not None,
            "budget": self.budget_ms is not None,
            "largest_first": self.largest_first,
            "reverse": self.reverse,
            "drop_legacy_blobs": self.drop_legacy_blobs,
        }
        for name, is_given in of_a_migration.items():
            if is_given:
                yield f"{name}: given, but no state is migrated: leave it out, or name the states to migrate"

    @property
    def rescales_only(self) -> bool:
        """Whether the plan migrates no state, so that there are no tables either."""
        return not self.operators

    @property
    def operator_names(self) -> tuple[str, ...]:
        """The operators that the plan names, by the names in the plan."""
        named = self.parallelism if isinstance(self.parallelism, dict) else ()
        return tuple(dict.fromkeys([*(one.operator for one in self.operators), *named]))

    def _lazy_problems(self, states: Sequence[StatePlan]) -> Iterator[str]:
        given = {"share": self.share is not None, "budget": self.budget_ms is not None}
        if not self.lazy:
            given["largest_first"] = self.largest_first
            for name in (name for name, is_given in given.items() if is_given):
                yield f"{name}: only a lazy run moves some of the keys: say lazy too, or leave {name} out"
            if any(state.flag_ttl != "as-legacy" for state in states):
                yield "flag_ttl: only a lazy run makes a flag state: say lazy too, or leave flag_ttl out"
            return
        if sum(given.values()) != 1:
            found = "both" if all(given.values()) else "neither"
            yield f"lazy: expected a share or a budget, found {found}: say how many keys the run may move"
        if self.keep_legacy:
            yield (
                "lazy and keep_legacy exclude each other: a lazy run keeps the blobs of the keys that it doesn't move, "
                "and needs the place of the others: leave one of them out"
            )
        for state in states:
            if state.flag is None:
                yield (
                    f"lazy: state {state.legacy!r} has no flag: the job knows by the flag which keys are moved: name "
                    "the job's flag state (flag)"
                )
        for flag in _repeated([state.flag for state in states if state.flag is not None]):
            if any(len([one for one in operator.states if one.flag == flag]) > 1 for operator in self.operators):
                yield (
                    f"lazy: flag {flag!r} is of several states: a lazy run may move a key in one of them alone. Give "
                    "each its own flag, or migrate them without lazy"
                )

    def _problems_in_reverse(self) -> Iterator[str]:
        if not self.reverse:
            if self.drop_legacy_blobs:
                yield "drop_legacy_blobs is for a run in reverse: leave it out, or add reverse"
            return
        if self.keep_expired:
            yield (
                "keep_expired and reverse: a blob has the timestamp of its newest entry, so its expired entries would "
                "live again: leave keep_expired out"
            )
        in_vain = {
            "lazy": (self.lazy, "moves all keys"),
            "keep_legacy": (self.keep_legacy, "makes the legacy state"),
            "on_contradiction": (self.on_contradiction != "stop", "never lets a blob count"),
            "nulls": (self.nulls != "stop", "keeps every null"),
        }
        yield from (
            f"{name} and reverse: a run in reverse {why}: leave {name} out"
            for name, (is_given, why) in in_vain.items()
            if is_given
        )

    @property
    def catalog_shown(self) -> str:
        """The catalog's address without a password."""
        return catalog_address.hidden(self.catalog_uri)

    @property
    def fingerprint(self) -> str:
        """A hash of all options; facts of a plan with another fingerprint don't count for this plan."""
        return _digest(self.model_dump(mode="json") | _OF_FIRST_PLANS)

    def is_asked_for_again_by(self, other: MigrationPlan) -> bool:
        """Whether the other plan asks for the same work: run id and `now` count only if the other plan gives them."""
        left_out = _OF_THE_RUN - other.model_fields_set
        other = other.like(self)
        return self.model_dump(exclude=left_out) == other.model_dump(exclude=left_out)

    def like(self, kept: MigrationPlan) -> MigrationPlan:
        """This plan, with what plans of earlier versions have otherwise: compression, and the catalog's password.

        So the command that began a run under an earlier version continues it under this one.
        """
        update: dict[str, str] = {}
        if (self.compression, kept.compression) == ("auto", "source"):
            update["compression"] = "source"
        if self.catalog_uri == catalog_address.without_password(kept.catalog_uri):
            update["catalog_uri"] = kept.catalog_uri
        return self.model_copy(update=update)

    def to_json(self) -> str:
        values = self.model_dump(mode="json")
        # Plans of format version 1 have no version field.
        marked = {FIELD: FORMAT, **values} if FORMAT > 1 else values
        return json.dumps(marked, indent=2, ensure_ascii=False) + "\n"


def new_plan_values(values: Mapping[str, object]) -> dict[str, object]:
    """The values of a plan for new work, with the defaults that plans of an earlier version don't have."""
    if catalog_address.has_password(str(values.get("catalog_uri", ""))):
        raise PlanError(
            f"catalog_uri: {catalog_address.hidden(str(values['catalog_uri']))} has a password, which would be in the "
            f"file of the plan: leave it out there, and give it by {CATALOG_VARIABLE}, PGPASSFILE or PGPASSWORD"
        )
    new = {one.field: one.option.new for one in option_fields(MigrationPlan) if one.option.new is not None}
    return {**new, **values}


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
    for name in _repeated([name for name, _ in pairs]):
        raise ValueError(f"{name!r} is there more than once in one object")
    return dict(pairs)


def _repeated(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def folder_of(name: str) -> str:
    """The savepoint's folder, without a slash at the end; `name` may also be the path of its `_metadata`."""
    return name.rstrip("/").removesuffix("/_metadata").rstrip("/")


def _digest(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _raise(problems: list[str]) -> None:
    if problems:
        raise ValueError("\n".join(problems))
