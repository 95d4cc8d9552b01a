"""Take a snapshot: read all of the source once, count what there is, and refuse what a later step would choke on."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark import SparkContext

from spark_jobs.tasks import Measure, run_tasks
from spark_jobs.watching import Watch
from stateferry.errors import StateferryError
from stateferry.migration.inventory import Inventory, InventoryTask, inventory_tasks, total
from stateferry.migration.rules import Contradiction, ContradictionsError, NullsCannotBeKeptError, Rules
from stateferry.runs.plan_check import ResolvedPlan

_BYTES: Measure[Inventory] = Measure("B", lambda inventory: inventory.sizes.total())


def run(spark: SparkContext, resolved: ResolvedPlan, watch: Watch = lambda _: None) -> Inventory:
    inventory = total(run_tasks(spark, "snapshot", _tasks(spark, resolved), InventoryTask.take, watch, _BYTES))
    for stopping in _stopping(resolved, inventory):
        raise stopping
    return inventory


def _tasks(spark: SparkContext, resolved: ResolvedPlan) -> list[InventoryTask]:
    rules = {one.operator.id: one.rules for one in resolved.operators}
    return [
        task
        for operator in resolved.source.keyed_operators()
        for task in inventory_tasks(
            resolved.source,
            operator,
            rules.get(operator.id, ()),
            target_bytes=resolved.plan.chunk_bytes,
            at_least=spark.defaultParallelism,
        )
    ]


def _stopping(resolved: ResolvedPlan, inventory: Inventory) -> list[StateferryError]:
    """What ends the run unless the plan says what to do about it."""
    return [
        error
        for one in resolved.operators
        for rules in one.rules
        for error in _errors(one.operator.label, rules, inventory.met.get((one.operator.hex_id, rules.legacy.name), {}))
    ]


def _errors(operator: str, rules: Rules, met: dict[str, int]) -> list[StateferryError]:
    errors: list[StateferryError] = []
    where = f"state {rules.legacy.name} of operator {operator}"
    if met.get("contradictions") and rules.on_contradiction is Contradiction.STOP:
        errors.append(
            ContradictionsError(
                f"{where}: {met['contradictions']:,} keys are flagged as migrated and still have a blob; say who wins "
                "with --on-contradiction blob or rows"
            )
        )
    if met.get("unrepresentable nulls") and not rules.drop_unrepresentable_nulls:
        errors.append(
            NullsCannotBeKeptError(
                f"{where}: {met['unrepresentable nulls']:,} entries have a null value, which a MapState with TTL can't "
                "hold; make the value nullable in both jobs, or leave these entries out with "
                "--drop-unrepresentable-nulls"
            )
        )
    return errors


def main(argv: Sequence[str] | None = None) -> int:
    from spark_jobs import step

    return step.main("snapshot", argv)


if __name__ == "__main__":
    sys.exit(main())
