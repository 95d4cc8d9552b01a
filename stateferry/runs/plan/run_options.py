"""What a plan says of its run, the states aside (`planned_states.py`), with what people need to know of each option."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from flinkstate.metadata.chunks import TARGET_BYTES
from stateferry.basics import catalog_address
from stateferry.basics.durations import MAX_MILLISECONDS, MILLISECONDS_PER_UNIT, now_ms
from stateferry.runs.plan.option_marks import RUN, SOURCE, Kind, Option
from stateferry.runs.plan.plan_fields import (
    Milliseconds,
    MovedShare,
    Name,
    Parallelism,
    ParallelismOfOperators,
    Place,
    Share,
    valid_jars,
    valid_milliseconds,
    valid_roots,
    valid_share,
)
from stateferry.runs.plan.planned_states import OperatorPlan
from stateferry.runs.plan.state_ttls import StateTtls
from stateferry.runs.plan.upgrade_options import UpgradeOptions

# What only a whole reading finds is found within so many nights.
_MOST_NIGHTS = 8
DEFAULT_CLOCK_TOLERANCE_MS = 10 * MILLISECONDS_PER_UNIT["m"]


def new_run_id() -> str:
    """A unique id that begins with the present time: `20260102T030405Z-1a2b3c`."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


class RunOptions(UpgradeOptions):
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
    operators: tuple[OperatorPlan, ...] = ()
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
    compression: Annotated[
        Literal["auto", "snappy", "stored", "none", "source"],
        Option(
            Kind.CHOICE,
            "Compression",
            "how keyed state is written: compressed by snappy; stored, which is blocks with checksums; none, which "
            "Flink restores several times slower from a local disk; source, which is as in the source; or auto, which "
            "is snappy for operators that have it in the source, and for all of a large state, and else stored",
            row=155,
            section=RUN,
        ),
    ] = "auto"
    output_format: Annotated[
        Literal["canonical", "native"],
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
    claimable: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Claimable",
            "also leave the new native savepoint as hard links, on S3 as copies, in TARGET-claimable, which the new "
            "job may claim: its first checkpoint then uploads only what has changed",
            row=166,
            section=RUN,
        ),
    ] = False
    since: Annotated[
        Name | None,
        Option(
            Kind.TEXT,
            "Since a rehearsal",
            "convert only what has changed since a green native rehearsal of the same plan, whose files stay below the "
            "newer ones; the rehearsal's savepoint must still be there",
            row=162,
            section=RUN,
            metavar="RUN",
            if_empty="convert everything",
            in_form=False,
        ),
    ] = None
    full_every: Annotated[
        Annotated[StrictInt, Field(ge=1, le=_MOST_NIGHTS)] | None,
        Option(
            Kind.NUMBER,
            "Everything every",
            "a rehearsal with native files converts only what has changed since the last green one of the same plan; "
            "one in so many converts everything, as does each that can't go on from the last one",
            row=161,
            section=RUN,
            metavar="N",
            if_empty="of nights 7; other rehearsals convert everything",
        ),
    ] = None
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
        Option(
            Kind.SWITCH,
            "Largest first",
            "a lazy run moves the keys with the largest maps first, instead of keys in the order of a hash",
            row=125,
        ),
    ] = False
    reverse: Annotated[
        StrictBool,
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
        Option(
            Kind.SWITCH,
            "Drop legacy blobs",
            "in reverse: the rows alone count, and blobs that the new job's savepoint still has are left out",
            row=128,
        ),
    ] = False
    like: Annotated[
        Place | None,
        Option(
            Kind.TEXT,
            "A savepoint of the old job",
            "in reverse: a savepoint of the old job, such as the one that was migrated, if that job declares the "
            "legacy states otherwise than by Types.MAP",
            row=129,
            metavar="SAVEPOINT",
            if_empty="the old job declares them by Types.MAP",
        ),
    ] = None
    nulls: Annotated[
        Literal["stop", "keep", "drop"],
        Option(
            Kind.CHOICE,
            "Null values",
            "what becomes of null values that the value's serializer cannot write, such as those of Long; with stop, "
            "the run stops and says what the new job could not do with them",
            row=130,
        ),
    ] = "stop"
    no_timers: Annotated[
        StrictBool,
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
            "what counts for a key that is flagged as moved and still has a blob; with stop, the run stops",
            row=80,
        ),
    ] = "stop"
    accept_vanished: Annotated[
        Share,
        BeforeValidator(valid_share),
        Option(
            Kind.SHARE,
            "Accept that vanishes",
            "the share of the last run's keys that may be gone, such as 90%",
            row=101,
            if_empty="half of them",
        ),
    ] = 0.5
    accept_expired: Annotated[
        Share | None,
        BeforeValidator(valid_share),
        Option(
            Kind.SHARE,
            "Accept that expires",
            "the share of a state's entries that may expire in this run, such as 60%",
            row=100,
            if_empty="a quarter, and not many more than in the last green run",
        ),
    ] = None
    accept_empty: Annotated[
        Share | None,
        BeforeValidator(valid_share),
        Option(
            Kind.SHARE,
            "Accept without rows",
            "the share of the keys flagged as moved that may have no rows, because the job has emptied their maps or "
            "the rows have expired, such as 10%; 100% says that the names of all states are right",
            row=102,
            if_empty="5%, if no other state has their rows",
        ),
    ] = None
    clock_tolerance_ms: Annotated[
        Milliseconds,
        BeforeValidator(valid_milliseconds),
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
    classes: Annotated[
        tuple[Place, ...],
        BeforeValidator(valid_jars),
        Option(
            Kind.LINES,
            "Classes of the job",
            "the job's jar, or a folder of class files, on this machine and on those that run the steps: needed for "
            "objects of the job's own classes by Kryo, and for the POJOs that declarations name",
            row=68,
            metavar="JAR",
            if_empty="such objects and POJOs are refused",
        ),
    ] = ()
    classes_digest: StrictStr | None = None
    # New beginnings, by the old ones, of absolute addresses in `_metadata`.
    files_from: Annotated[
        dict[Name, Name] | None,
        BeforeValidator(valid_roots),
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
    rest_catalog: Annotated[
        Name | None,
        Option(
            Kind.TEXT,
            "REST catalog of the tables",
            "the address of an Iceberg REST catalog that has the tables in place of the SQL catalog; leases and "
            "publications stay in SQL",
            row=205,
            section=RUN,
            metavar="URL",
            if_empty="$STATEFERRY_REST_CATALOG, else the tables are in the SQL catalog",
        ),
    ] = None
    # `now` is of a clock (or an option), the end of a backfilled day, or the time of the savepoint.
    now_from: Literal["clock", "backfill", "savepoint"] = "clock"
    # These three have defaults too (see `_with_home`): the catalog and the warehouse are in the home.
    home: Place
    catalog_uri: Name
    warehouse: Place
    chunk_bytes: Annotated[StrictInt, Field(ge=1 << 20, le=1 << 30)] = TARGET_BYTES

    @property
    def is_night(self) -> bool:
        """Whether the run may choose what it catches up with, and convert everything instead."""
        return self.rehearse and self.full_every is not None

    @property
    def rescales_only(self) -> bool:
        """Whether the plan migrates no state, so that there are no tables either."""
        return not self.operators

    @property
    def operator_names(self) -> tuple[str, ...]:
        """The operators that the plan names, by the names in the plan."""
        named = self.parallelism if isinstance(self.parallelism, dict) else ()
        return tuple(dict.fromkeys([*(one.operator for one in self.operators), *named]))

    @property
    def catalog_shown(self) -> str:
        """The catalog's address without a password."""
        return catalog_address.hidden(self.catalog_uri)
