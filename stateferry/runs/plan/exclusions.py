"""Which options exclude each other, and which need another one: one table for plan, form and command line.

Options are named by their fields in a plan. An option counts as given if it has another value than its default; `flag`,
`flag_ttl` and `ttl_ms` if any state has them, and `operators` if a state is migrated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

OPERATORS = "operators"
# With one of these, a plan needs no state to migrate.
ASK_WITHOUT_STATES = frozenset({"parallelism", "max_parallelism", "output_format", "state_ttls", "to"})


@dataclass(frozen=True, slots=True)
class Exclusion:
    """An option that needs one of some others, or that isn't given beside another; `why` is the problem in words."""

    option: str
    why: str
    needs: tuple[str, ...] = ()
    beside: str = ""

    def excludes(self, given: Collection[str]) -> bool:
        """Whether the option is given, and what else is given excludes it."""
        if self.option not in given:
            return False
        return self.beside in given if self.beside else not any(one in given for one in self.needs)


def _of_a_migration(option: str, *others: str) -> Exclusion:
    why = f"{option}: given, but no state is migrated: leave it out, or name the states to migrate"
    return Exclusion(option, why, needs=(OPERATORS, *others))


def _of_a_lazy_run(option: str, what: str) -> Exclusion:
    why = f"{option}: only a lazy run {what}: give lazy as well, or leave {option} out"
    return Exclusion(option, why, needs=("lazy",))


def _not_in_reverse(option: str, why: str) -> Exclusion:
    return Exclusion(option, f"{option} and reverse: {why}: leave {option} out", beside="reverse")


def _not_since(option: str) -> Exclusion:
    why = f"since and {option}: a catch-up isn't tried with {option}: leave since out, which converts everything"
    return Exclusion("since", why, beside=option)


# The rows of an option stand in the order in which they count: of each option, the first problem is reported.
EXCLUSIONS: tuple[Exclusion, ...] = (
    *map(
        _of_a_migration,
        ("keep_expired", "keep_legacy", "nulls", "on_contradiction", "accept_empty", "lazy", "share", "budget_ms"),
    ),
    *map(_of_a_migration, ("largest_first", "reverse", "drop_legacy_blobs")),
    _of_a_migration("accept_expired", "state_ttls"),
    _of_a_migration("accept_vanished"),
    Exclusion(
        "keep_expired",
        "keep_expired: no state has a ttl_ms, so none can expire: give the ttl_ms, or leave keep_expired out",
        needs=("ttl_ms",),
    ),
    Exclusion(
        "on_contradiction",
        "on_contradiction: only a flag can contradict a blob: name the flag state (flag), or leave on_contradiction "
        "out",
        needs=("flag",),
    ),
    _of_a_lazy_run("share", "moves some of the keys"),
    _of_a_lazy_run("budget_ms", "moves some of the keys"),
    _of_a_lazy_run("largest_first", "moves some of the keys"),
    _of_a_lazy_run("flag_ttl", "makes a flag state"),
    Exclusion(
        "drop_legacy_blobs",
        "drop_legacy_blobs: only a run in reverse has it: leave it out, or give reverse as well",
        needs=("reverse",),
    ),
    Exclusion(
        "like", "like: only a run in reverse needs it: leave it out, or give reverse as well", needs=("reverse",)
    ),
    _not_in_reverse(
        "keep_expired", "a blob has the timestamp of its newest entry, so its expired entries would live again"
    ),
    _not_in_reverse("lazy", "a run in reverse moves all keys"),
    _not_in_reverse("keep_legacy", "a run in reverse makes the legacy state"),
    _not_in_reverse("on_contradiction", "a run in reverse never lets a blob count"),
    _not_in_reverse("nulls", "a run in reverse keeps every null"),
    _not_in_reverse("map_type", "the rows say of which type they are"),
    _not_in_reverse("widen", "the blobs get the rows' type"),
    _not_in_reverse("to", "the way back is to the Flink that wrote the savepoint"),
    Exclusion(
        "all_by_kryo_5",
        "all_by_kryo_5: only a run for another Flink writes what is by Kryo anew: give to flink-1.20, or leave "
        "all_by_kryo_5 out",
        needs=("to",),
    ),
    Exclusion(
        "before",
        "before: only a run for Flink 2 looks for what an upgrade lost: give to flink-2, or leave before out",
        needs=("to",),
    ),
    Exclusion(
        "restore_lost",
        "restore_lost: it isn't known what the upgrade lost: give the savepoint from before it (before), or leave "
        "restore_lost out",
        needs=("before",),
    ),
    Exclusion(
        "restore_keys",
        "restore_keys: only a run with restore_lost puts anything back: give it as well, or leave restore_keys out",
        needs=("restore_lost",),
    ),
    _not_in_reverse("field", "rows don't say what the other fields of a POJO are"),
    Exclusion(
        "field",
        "field: the legacy state has other fields too, and it isn't said what becomes of them: give rest keep to leave "
        "the POJO as a state of its own, with null in this field, or rest drop to leave it out of the new savepoint",
        needs=("rest", "keep_legacy"),
    ),
    Exclusion(
        "rest",
        "rest and keep_legacy: keep_legacy keeps the POJO as it is, with its map: leave one of them out",
        beside="keep_legacy",
    ),
    _of_a_migration("since", "to"),
    Exclusion(
        "since",
        "since: a catch-up writes RocksDB's own files: give format native as well, or leave since out, which converts "
        "everything",
        needs=("output_format",),
    ),
    *map(_not_since, ("reverse", "before", "files_from")),
    Exclusion(
        "claimable",
        "claimable: only RocksDB's own files can be claimed: give format native as well, or leave claimable out",
        needs=("output_format",),
    ),
    _of_a_migration("full_every", "to"),
    Exclusion(
        "full_every",
        "full_every: only a rehearsal with RocksDB's own files can be gone on from: give format native as well, or "
        "leave full_every out",
        needs=("output_format",),
    ),
    Exclusion(
        "keep_legacy",
        "lazy and keep_legacy exclude each other: a lazy run keeps the blobs of the keys that it doesn't move, and "
        "needs the place of the others: leave one of them out",
        beside="lazy",
    ),
)
# These are of one state: another state of the plan may have the other option.
STATE_EXCLUSIONS: tuple[Exclusion, ...] = (
    Exclusion(
        "no_flag", "no_flag: a flag is named, and no_flag says that there is none: leave one of them out", beside="flag"
    ),
    Exclusion(
        "rest",
        "rest: only a POJO with a map in a field has a rest: name the field (field), or leave rest out",
        needs=("field",),
    ),
    Exclusion(
        "field",
        "field and flag: a job that has moved the map of a key still has the key's POJO, so the flag doesn't say which "
        "of the two counts: leave the flag out, and have the job move no maps itself",
        beside="flag",
    ),
    Exclusion(
        "widen",
        "widen: it isn't said to which type: give the type of the map (as), or leave widen out",
        needs=("map_type",),
    ),
)


def broken(given: Collection[str], table: Sequence[Exclusion] = EXCLUSIONS) -> Iterator[Exclusion]:
    """Yields the first row of each option that is excluded by what is given."""
    seen = set[str]()
    for row in table:
        if row.option not in seen and row.excludes(given):
            seen.add(row.option)
            yield row


def given_fields(values: Mapping[str, object], model: type[BaseModel]) -> set[str]:
    """The fields of the model that have another value than their default."""
    fields = model.model_fields
    return {name for name, value in values.items() if name in fields and value != fields[name].default}
