"""How evenly keyed state is spread over subtasks, before a run and after it: a part of the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stateferry.basics.quantities import noun, percent
from stateferry.runs.record.key_group_sizes import OperatorSizes, SourceSizes, StagedSizes


@dataclass(frozen=True, slots=True)
class Spread:
    """How bytes or rows are spread: in all, over key groups and over subtasks.

    Of more than 1,024 key groups or subtasks, a number is the sum of neighbouring key groups or the largest of
    neighbouring subtasks. `worst_over_mean` is the load of the fullest subtask over that of all on average.
    """

    total: int
    worst_over_mean: float
    by_key_group: tuple[int, ...]
    by_subtask: tuple[int, ...]

    @classmethod
    def of(cls, by_key_group: tuple[int, ...], by_subtask: tuple[int, ...], parallelism: int) -> Spread:
        total = sum(by_key_group)
        over = max(by_subtask, default=0) * parallelism / total if total else 1.0
        return cls(total, round(over, 4), by_key_group, by_subtask)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of an operator's subtasks. Rows are entries of all states; those of the result aren't counted."""

    parallelism: int
    max_parallelism: int
    bytes: Spread
    rows: Spread | None
    idle_subtasks: int
    empty_key_groups: int

    @classmethod
    def of(cls, sizes: OperatorSizes) -> Load:
        rows = Spread.of(sizes.entries, sizes.entries_by_subtask, sizes.parallelism) if sizes.entries else None
        return cls(
            sizes.parallelism,
            sizes.max_parallelism,
            Spread.of(sizes.bytes, sizes.by_subtask, sizes.parallelism),
            rows,
            sizes.idle,
            sizes.empty,
        )

    @property
    def text(self) -> str:
        idle = f"{self.idle_subtasks:,} of them idle" if self.idle_subtasks else "none idle"
        fullest = f"the fullest has {self.bytes.worst_over_mean:.2f} × the mean bytes"
        if self.rows is not None:
            fullest += f" and {self.rows.worst_over_mean:.2f} × the mean rows"
        return (
            f"{self.parallelism:,} {noun(self.parallelism, 'subtask')}, {idle}, {fullest}; "
            f"{self.empty_key_groups:,} of {self.max_parallelism:,} key groups empty"
        )


@dataclass(frozen=True, slots=True)
class TooHeavyKey:
    """A key with so many of the source's bytes that it exceeds a subtask's fair share, before or after the run."""

    key: str | None
    key_group: int
    share: float

    def line(self, subtasks: int) -> str:
        """In words; `subtasks` are those of the layout that it is held against."""
        name = "a key" if self.key is None else f"key {self.key}"
        return (
            f"{name} (key group {self.key_group}) alone has {percent(self.share)} of the bytes, "
            f"{self.share * subtasks:.2f} × the fair share of one of {subtasks:,} subtasks: no layout can spread it"
        )


@dataclass(frozen=True, slots=True)
class OperatorBalance:
    """One operator's balance in the source and in the result; None where that isn't known."""

    operator: str
    before: Load | None
    after: Load | None
    too_heavy_key: TooHeavyKey | None

    @property
    def lines(self) -> Iterator[str]:
        """The balance in words."""
        for when, load in (("before", self.before), ("after", self.after)):
            if load is not None:
                yield f"balance of {self.operator} {when}: {load.text}"
        if self.too_heavy_key is not None:
            yield f"balance of {self.operator}: {self.too_heavy_key.line(self.subtasks)}"

    @property
    def subtasks(self) -> int:
        """Of the two layouts that with more subtasks."""
        return max((load.parallelism for load in (self.before, self.after) if load is not None), default=1)


def balance_of(source: SourceSizes | None, staged: StagedSizes | None) -> tuple[OperatorBalance, ...]:
    """The balance of each operator with keyed state; none before the snapshot is done."""
    before = {one.operator: one for one in (source.operators if source else ())}
    after = {one.operator: one for one in (staged.operators if staged else ())}
    return tuple(_of(name, one, after.get(name)) for name, one in before.items())


def _of(operator: str, before: OperatorSizes, after: OperatorSizes | None) -> OperatorBalance:
    key, heavy = before.heavy_key, None
    most = max(before.parallelism, after.parallelism if after else 1)
    if key is not None and key.bytes * most > before.raw:
        heavy = TooHeavyKey(key.text, key.key_group, round(key.bytes / before.raw, 6))
    return OperatorBalance(operator, Load.of(before), Load.of(after) if after else None, heavy)
