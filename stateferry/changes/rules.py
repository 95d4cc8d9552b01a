"""How a legacy state is migrated: the rules that a plan gives, and the errors if it lacks one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flinkstate.errors import RefusedError, RejectedError, StateferryError
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.snapshots import SerializerSnapshot
from flinkstate.serializers.types import FlinkType, KryoType, MapType
from flinkstate.ttl import StateTtlConfig
from flinkstate.values.codecs import encode
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
    """How one legacy state is migrated: the names of its states in the savepoint, and options of the plan.

    `lazy_cut` says which are the keys that a lazy run moves; without it all keys are moved.

    In reverse the savepoint may lack the legacy state: then `legacy` is what the rows' state becomes. `planned_ttl` are
    all settings of its time to live, if the plan has them. `old_form` is there in reverse if the old job's maps aren't
    by Flink's map serializer.
    """

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
    # The rows of the new state become blobs of the legacy state again.
    reverse: bool = False
    drop_legacy_blobs: bool = False
    planned_ttl: StateTtlConfig | None = None
    rest: LegacyRest = LegacyRest.STOP
    old_form: OldForm | None = None
    # Whether the job that reads the result is one of Flink 2.
    for_flink_2: bool = False

    @property
    def keeps_rest(self) -> bool:
        """Whether the legacy state stays, as POJOs without the map."""
        return self.rest is LegacyRest.KEEP

    @property
    def made_name(self) -> str:
        """The name of the state that is made: the new state or, in reverse, the legacy state."""
        return self.legacy.name if self.reverse else self.new_name

    @property
    def names(self) -> set[str]:
        """The names of the states that take part."""
        return {name for name in (self.legacy.name, self.new_name, self.flag_name) if name is not None}

    @property
    def made(self) -> KeyedState:
        """The state that is made."""
        return self.legacy if self.reverse else self.new

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
        taken = self.new_name if self.reverse else self.legacy.name
        return (taken,) if self.flag_name is None else (taken, self.flag_name)

    @property
    def divided(self) -> tuple[str, ...]:
        """The names of states of which a part of the keys changes."""
        return () if self.lazy_cut is None else (self.legacy.name, self.lazy_cut.flag.name)

    @property
    def touched(self) -> set[str]:
        """The names of states that don't stay as they are."""
        rest = (self.legacy.name,) if self.keeps_rest else ()
        return {self.made_name, *self.left_behind, *self.divided, *rest}

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
