"""Take a snapshot: read all of the source once, count what there is, and refuse what a later step would choke on."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Sequence

from pyspark import SparkContext

from spark_jobs.tasks import Done, Measure, run_tasks
from spark_jobs.watching import Watch
from stateferry.errors import StateferryError
from stateferry.migration.inventory import (
    CarriedTask,
    Inventory,
    InventoryTask,
    carried_tasks,
    inventory_tasks,
    take,
    total,
)
from stateferry.migration.rules import Contradiction, ContradictionsError, NullsCannotBeKeptError, Rules
from stateferry.migration.unnamed_flags import unnamed_flag
from stateferry.nouns import noun
from stateferry.runs.plan_check import ResolvedPlan
from stateferry.runs.state_ages import FoundAges, Holds, StateAges

_BYTES: Measure[Inventory] = Measure("B", lambda inventory: inventory.sizes.total())


class Ahead:
    """The part of the inventory that this process takes while Spark starts, which keeps one core busy at most."""

    def __init__(self, resolved: ResolvedPlan, at_least: int) -> None:
        self.tasks = _tasks(resolved, at_least)
        self._taken: dict[int, Inventory] = {}
        self._seconds = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._take, daemon=True, name="inventory ahead of Spark")

    def start(self) -> None:
        self._thread.start()

    def _take(self) -> None:
        began = time.monotonic()
        for number, task in enumerate(self.tasks):
            if self._ended.is_set():
                return
            # What goes wrong here goes wrong as a task of Spark's too, and is said there.
            with contextlib.suppress(Exception):
                self._taken[number] = take(task)
                self._seconds = time.monotonic() - began

    def end(self) -> Done[Inventory]:
        """Whatever has been taken by now; what is under way is Spark's."""
        self._ended.set()
        return Done(dict(self._taken), self._seconds)


def run(
    spark: SparkContext, resolved: ResolvedPlan, watch: Watch = lambda _: None, ahead: Ahead | None = None
) -> tuple[Inventory, float]:
    """The inventory, and how many seconds of it were ahead of Spark."""
    tasks = ahead.tasks if ahead else _tasks(resolved, spark.defaultParallelism)
    done = ahead.end() if ahead else None
    inventory = total(run_tasks(spark, "snapshot", tasks, take, watch, _BYTES, done))
    for stopping in _stopping(resolved, inventory):
        raise stopping
    return inventory, done.seconds if done else 0.0


def ages(resolved: ResolvedPlan, inventory: Inventory) -> FoundAges:
    labels = {one.operator.hex_id: one.operator.label for one in resolved.operators}
    rules = {(one.operator.hex_id, rule.legacy.name): rule for one in resolved.operators for rule in one.rules}
    states = tuple(
        StateAges(
            labels[operator],
            legacy,
            state,
            _holds(state, rules[operator, legacy]).value,
            rules[operator, legacy].ttl or 0,
            found.entries,
            found.expired,
            found.future,
            found.youngest,
            (found.quantile(0.25), found.quantile(0.5), found.quantile(0.75)),
            found.oldest,
            found.sharp_end(),
            found.suggested_ttl(),
        )
        for (operator, legacy, state), found in sorted(inventory.ages.items())
        if found.entries
    )
    return FoundAges(resolved.plan.now, resolved.plan.keep_expired, states)


def _holds(state: str, rules: Rules) -> Holds:
    if state == rules.legacy.name:
        return Holds.BLOBS
    return Holds.ROWS if state == rules.new_name else Holds.FLAGS


def _tasks(resolved: ResolvedPlan, at_least: int) -> list[InventoryTask | CarriedTask]:
    rules = {one.operator.id: one.rules for one in resolved.operators}
    keyed = [
        task
        for operator in resolved.source.keyed_operators()
        for task in inventory_tasks(
            resolved.source,
            operator,
            rules.get(operator.id, ()),
            target_bytes=resolved.plan.chunk_bytes,
            at_least=at_least,
        )
    ]
    return [*keyed, *carried_tasks(resolved.source)]


def _stopping(resolved: ResolvedPlan, inventory: Inventory) -> list[StateferryError]:
    """What ends the run unless the plan says what to do about it."""
    errors: list[StateferryError] = []
    for one in resolved.operators:
        for rules in one.rules:
            id_, legacy = one.operator.hex_id, rules.legacy.name
            signs = {flag: counts for (*of, flag), counts in inventory.flag_signs.items() if of == [id_, legacy]}
            if unnamed := unnamed_flag(rules, one.operator.label, signs):
                errors.append(unnamed)
            errors += _errors(one.operator.label, rules, inventory.met.get((id_, legacy), {}))
    return errors


def _errors(operator: str, rules: Rules, met: dict[str, int]) -> list[StateferryError]:
    errors: list[StateferryError] = []
    where = f"state {rules.legacy.name} of operator {operator}"
    if (flagged := met.get("contradictions", 0)) and rules.on_contradiction is Contradiction.STOP:
        errors.append(
            ContradictionsError(
                f"{where}: {flagged:,} {noun(flagged, 'key is', 'keys are')} flagged as migrated and still "
                f"{noun(flagged, 'has', 'have')} a blob; say who wins with --on-contradiction blob or rows"
            )
        )
    if (nulls := met.get("unrepresentable nulls", 0)) and not rules.drop_unrepresentable_nulls:
        errors.append(
            NullsCannotBeKeptError(
                f"{where}: {nulls:,} {noun(nulls, 'entry has', 'entries have')} a null value, which a MapState with "
                "TTL can't hold; make the value nullable in both jobs, or leave these entries out with "
                "--drop-unrepresentable-nulls"
            )
        )
    return errors


def main(argv: Sequence[str] | None = None) -> int:
    from spark_jobs import step

    return step.main("snapshot", argv)


if __name__ == "__main__":
    sys.exit(main())
