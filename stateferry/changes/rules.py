"""How a legacy state is migrated, and back: the rules that a plan gives, and the errors if it lacks one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

from flinkstate.errors import RefusedError, RejectedError, StateferryError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import FlinkType, KryoType, MapType
from flinkstate.ttl import StateTtlConfig, StateVisibility
from flinkstate.values.codecs import encode
from stateferry.basics.quantities import noun
from stateferry.changes.counts import InventoryCounts
from stateferry.changes.lazy_cut import LazyCut


class Contradiction(Enum):
    """What to do with a key that is flagged as migrated and still has a blob."""

    STOP = "stop"
    BLOB = "blob"
    ROWS = "rows"


class LegacyRest(Enum):
    """What becomes of the other fields of a POJO whose map is migrated."""

    STOP = "stop"
    KEEP = "keep"
    DROP = "drop"


class Nulls(Enum):
    """What becomes of null values that the value's serializer can't write; with `STOP` the snapshot may refuse them."""

    STOP = "stop"
    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class OldForm:
    """How the old job stores its maps, for a run in reverse: by which serializer, and if by Kryo's, by Kryo 5 or 2."""

    serializer: SerializerSnapshot
    kryo_5: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """How blobs of one legacy state become rows: the names of its states in the savepoint, and options of the plan.

    `lazy_cut` says which are the keys that a lazy run moves; without it all keys are moved. `planned_ttl` are all
    settings of the time to live, if the plan has them.
    """

    # Whether blobs count, and whether the Iceberg tables follow a run.
    takes_blobs: ClassVar[bool] = True
    fills_tables: ClassVar[bool] = True
    # What comes of a flag that the plan doesn't name; why what has expired has to go, if it has.
    of_an_unnamed_flag: ClassVar[str] = (
        "Without the flag, a blob that the job left behind when it moved a key would be merged into the key's rows"
    )
    why_expired_go: ClassVar[str | None] = None

    legacy: KeyedState
    new_name: str
    flag_name: str | None
    ttl: int | None
    now: int
    keep_expired: bool = False
    nulls: Nulls = Nulls.STOP
    on_contradiction: Contradiction = Contradiction.STOP
    no_flag: bool = False
    lazy_cut: LazyCut | None = None
    # The legacy state and its flag stay beside the new state.
    keep_legacy: bool = False
    planned_ttl: StateTtlConfig | None = None
    rest: LegacyRest = LegacyRest.STOP
    # Whether the job that reads the result is one of Flink 2.
    for_flink_2: bool = False
    # The legacy state as the source has it, if it is written for another Flink before it becomes rows, and which of
    # the named states are written so.
    stored: KeyedState | None = None
    by_kryo: Mapping[str, KeyedState] = field(default_factory=dict)

    @property
    def in_source(self) -> KeyedState:
        """The legacy state as the source has it."""
        return self.stored or self.legacy

    @property
    def leaves_out_blobs(self) -> bool:
        """Whether blobs that are there don't count, and go."""
        return False

    def open_questions(self, operator: str, met: InventoryCounts) -> Iterator[RejectedError]:
        """Yields an error for each question that the snapshot asks and the plan doesn't answer."""
        if met.outlived:
            yield ContradictionsError(
                f"state {self.legacy.name} of operator {operator}: {met.outlived:,} living "
                f"{noun(met.outlived, 'entry', 'entries')} would give way to rows or flags that have expired and stay "
                "(--keep-expired, or a --state-ttl that doesn't drop them). A job doesn't see these, unless its "
                "visibility is ReturnExpiredIfNotCleanedUp: then say so in --state-ttl. Else let them go: leave "
                "--keep-expired out, or say drop in --state-ttl"
            )
        elif (flagged := met.contradictions) and self.on_contradiction is Contradiction.STOP:
            empty = met.empty_contradictions
            of_empty = (
                f"; {empty:,} of these maps {noun(empty, 'is', 'are')} empty, as some jobs clear a map: with blob, "
                f"{noun(empty, 'this key loses', 'these keys lose')} all rows"
            )
            yield ContradictionsError(
                f"state {self.legacy.name} of operator {operator}: {flagged:,} {noun(flagged, 'key is', 'keys are')} "
                f"flagged as migrated and still {noun(flagged, 'has', 'have')} a blob; say which of the two counts: "
                f"--on-contradiction blob or --on-contradiction rows{of_empty if empty else ''}"
            )

    @property
    def as_seen_by_the_job(self) -> Rules | None:
        """Rules by which nothing counts that has expired, if these keep what a job wouldn't see; else None."""
        told = self.planned_ttl
        ttl = self.ttl if told is None else told.time_to_live
        sees_expired = told is not None and told.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
        if sees_expired or ttl is None or not self.keep_expired:
            return None
        return replace(self, ttl=ttl, keep_expired=False)

    @property
    def keeps_rest(self) -> bool:
        """Whether the legacy state stays, as POJOs without the map."""
        return self.rest is LegacyRest.KEEP

    @property
    def made_name(self) -> str:
        """The name of the state that is made."""
        return self.new_name

    @property
    def names(self) -> set[str]:
        """The names of the states that take part."""
        return {name for name in (self.legacy.name, self.new_name, self.flag_name) if name is not None}

    @property
    def made(self) -> KeyedState:
        """The state that is made."""
        return self.new

    @property
    def taken(self) -> KeyedState:
        """The state whose entries it gets."""
        return self.legacy

    @property
    def new(self) -> KeyedState:
        """The map state of the rows."""
        key, namespace, map_ = self.legacy.key, self.legacy.namespace, self.map_type
        return KeyedState(self.new_name, StateKind.MAP, key, namespace, map_.key, map_.value, self.legacy.ttl, False)

    @property
    def left_behind(self) -> tuple[str, ...]:
        """The names of states that the new savepoint doesn't have."""
        if self.keep_legacy or self.lazy_cut is not None or self.keeps_rest:
            return ()
        return (self.taken.name,) if self.flag_name is None else (self.taken.name, self.flag_name)

    @property
    def touched(self) -> set[str]:
        """The names of states that don't stay as they are."""
        rest = (self.legacy.name,) if self.keeps_rest else ()
        divided = () if self.lazy_cut is None else (self.legacy.name, self.lazy_cut.flag.name)
        return {self.made_name, *self.left_behind, *divided, *rest}

    @property
    def map_type(self) -> MapType:
        """The type of the legacy state's map."""
        if (map_ := self.legacy.map_type) is None:
            raise RefusedError(f"state {self.legacy.name} can't be migrated: {self.legacy.why_not_migratable}")
        return map_

    @property
    def drops_expired(self) -> bool:
        """Whether expired entries are left out."""
        return self.ttl is not None and not self.keep_expired

    @property
    def writes_nulls(self) -> bool:
        """Whether the value's serializer can write null."""
        return null_under_ttl(self.map_type.value) is not None

    @property
    def leaves_out_nulls(self) -> bool:
        """Whether entries with a null that the value's serializer can't write become no rows.

        Without time to live the flag before the value says that it is null. With it the serializer must.
        """
        return (self.legacy.ttl or self.nulls is Nulls.DROP) and not self.writes_nulls


@dataclass(frozen=True, slots=True)
class RulesBack(Rules):
    """How rows of the new state become blobs of the legacy state again.

    The savepoint may lack the legacy state: then `legacy` is what the rows' state becomes. `old_form` is there if the
    old job's maps aren't by Flink's map serializer.
    """

    takes_blobs: ClassVar[bool] = False
    # The next rehearsal of the old job brings them to its state.
    fills_tables: ClassVar[bool] = False
    of_an_unnamed_flag: ClassVar[str] = (
        "The flag would stay, and say of keys that have a blob again that they are moved"
    )
    why_expired_go: ClassVar[str | None] = (
        "in reverse a blob has the timestamp of its newest entry, so its expired entries would live again"
    )
    drop_legacy_blobs: bool = False
    old_form: OldForm | None = None

    @property
    def made_name(self) -> str:
        return self.legacy.name

    @property
    def made(self) -> KeyedState:
        return self.legacy

    @property
    def taken(self) -> KeyedState:
        return self.new

    @property
    def leaves_out_blobs(self) -> bool:
        return self.drop_legacy_blobs

    def open_questions(self, operator: str, met: InventoryCounts) -> Iterator[RejectedError]:
        if met.blobs and not self.drop_legacy_blobs:
            yield LeftoverBlobsError(
                f"state {self.legacy.name} of operator {operator}: the savepoint still has {met.blobs:,} "
                f"{noun(met.blobs, 'blob')} beside the rows of {self.new_name}. If they are what the job hasn't moved "
                "yet, first make rows of them: run without --reverse, and go back from the savepoint that this makes. "
                "If the rows alone count, leave the blobs out with --drop-legacy-blobs"
            )


@dataclass(frozen=True, slots=True)
class PlannedTtl:
    """The time to live that a plan gives for a state that isn't migrated; with `drops` what has expired is left out."""

    state: KeyedState
    config: StateTtlConfig
    now: int
    drops: bool = False


def expiry_of_rest(rules: Rules) -> PlannedTtl | None:
    """Returns which of the POJOs that stay without their maps have expired; None without time to live."""
    if rules.ttl is None:
        return None
    return PlannedTtl(rules.legacy, StateTtlConfig(rules.ttl), rules.now, rules.drops_expired)


class ContradictionsError(RejectedError):
    """Keys are flagged as migrated and still have a blob, and the plan has no rule for them."""


class LeftoverBlobsError(RejectedError):
    """The new job's savepoint still has blobs, and the plan has no rule for them."""


class NullsCannotBeKeptError(RejectedError):
    """Entries have a null that the new state can't hold."""


class NullsNeedAWordError(RejectedError):
    """Entries have a null with which the new job can do less than the old one, and the plan has no rule for them."""


def null_under_ttl(value: FlinkType) -> bytes | None:
    """Returns what the value's serializer writes for null, or None if it can't: a MapState under TTL needs this."""
    if isinstance(value, KryoType):
        return b"\0"
    try:
        return encode(value, None)
    except (StateferryError, TypeError, AttributeError, ValueError):
        return None
