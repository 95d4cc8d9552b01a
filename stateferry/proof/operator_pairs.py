"""An operator in the source and in the staged savepoint, and the tasks that read both."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.metadata.chunks import plan_chunks
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint, has_keyed_state
from flinkstate.serializers.type_parts import kept_by_kryo
from stateferry.changes.operator_changes import Conversion
from stateferry.proof.above_base import AboveBaseTask, above_base_tasks
from stateferry.proof.catch_up import BaseOperator, ChangedTask
from stateferry.proof.changed_layout import Databases
from stateferry.proof.changed_rows import Snapshot
from stateferry.proof.expected.sampling import SampleSpec
from stateferry.proof.keyed_check import KeyedTask
from stateferry.proof.keyed_result import Side


@dataclass(frozen=True, slots=True)
class OperatorPair:
    """An operator in the source and in the staged savepoint."""

    source: Savepoint
    staged: Savepoint
    old: Operator
    new: Operator

    def keyed(
        self,
        conversion: Conversion,
        target_bytes: int,
        wanted: Container[int] | None = None,
        sides: Sequence[Side] = tuple(Side),
        seed: int | None = None,
        of_source: Container[int] | None = None,
    ) -> list[KeyedTask]:
        """The tasks for keyed state; `seed` chooses the keys of a sample.

        `wanted` chooses key groups of the new savepoint, `of_source` those of the source that have all of their keys.
        """
        if not (has_keyed_state(self.old) or has_keyed_state(self.new)):
            return []
        own = conversion.of(self.old)
        tasks: list[KeyedTask] = []
        for side, savepoint, operator in (
            (Side.SOURCE, self.source, self.old),
            (Side.STAGED, self.staged, self.new),
        ):
            if side not in sides:
                continue
            chosen = wanted
            if side is Side.SOURCE and own.changes_key_groups:
                # The keys of new key groups may come from any.
                chosen = of_source
            try:
                also = frozenset() if own.before is None or side is Side.STAGED else own.before.key_groups
                placed = savepoint.placed(operator)
                chunks = plan_chunks(operator, placed, chosen, target_bytes=target_bytes, also=also)
            except (DamagedError, RefusedError):
                if side is Side.SOURCE:
                    raise
                continue
            total = sum(chunk.size for chunk in chunks)
            tasks += [
                KeyedTask(
                    side,
                    savepoint.folder,
                    self.old.hex_id,
                    chunk,
                    own.of_key_groups(chunk.range),
                    self.checks_keys(conversion),
                    sample=SampleSpec(seed, chunk.size / total) if seed is not None else None,
                )
                for chunk in chunks
            ]
        return tasks

    def changed(
        self, conversion: Conversion, base: BaseOperator, whole: frozenset[int], seed: int
    ) -> Iterator[ChangedTask | AboveBaseTask]:
        """The tasks that read changed keys; there are none if a subtask can't be read in the staged savepoint."""
        own, checks = conversion.of(self.old), self.checks_keys(conversion)
        there = {one.index: one.native_keyed for one in self.new.subtasks if one.native_keyed is not None}
        if base.result.handles.keys() - there.keys():
            return
        results = Databases(self.staged.folder, there), base.result
        listed = {index: one.changed for index, one in base.subtasks.items()}
        yield from above_base_tasks(self.old.hex_id, own, *results, listed)
        for subtask in self.old.subtasks:
            if subtask.native_keyed is not None and (earlier := base.subtasks.get(subtask.index)) is not None:
                range_ = subtask.native_keyed.range
                staged, of_base = results if own.changes_key_groups else (one.of(range_) for one in results)
                yield ChangedTask(
                    self.old.hex_id, subtask.index, own.of_key_groups(range_), checks, seed,
                    Snapshot(self.source.folder, subtask.native_keyed), staged, earlier, of_base, whole,
                    len(base.subtasks), subtask.index == min(base.subtasks),
                )  # fmt: skip

    def checks_keys(self, conversion: Conversion) -> bool:
        """Whether to check that each key is in the key group of its hash.

        Without a migration or other key groups this isn't needed: equal content proves that each key is where it was.
        That has to do for keys by Kryo, too: of some classes no hash is known.
        """
        own = conversion.of(self.old)
        is_migrated = any(not kept_by_kryo(one.legacy.key) for one in own.rules)
        return has_keyed_state(self.old) and (own.changes_key_groups or is_migrated)

    def uncuttable(self) -> DamagedError | RefusedError | None:
        """Why the staged operator's keyed state can't be cut into chunks, or None."""
        try:
            plan_chunks(self.new, self.staged.placed(self.new))
        except (DamagedError, RefusedError) as error:
            return error
        return None


def operator_pairs(source: Savepoint, staged: Savepoint) -> list[OperatorPair]:
    new = {operator.id: operator for operator in staged.metadata.operators}
    return [
        OperatorPair(source, staged, operator, new[operator.id])
        for operator in source.metadata.operators
        if operator.id in new
    ]
