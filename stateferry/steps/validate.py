"""Validate: reads the staged savepoint and the source anew, and compares them."""

from __future__ import annotations

from collections.abc import Sequence

from stateferry.runs.facts import Step
from stateferry.runs.plan_check import ResolvedPlan
from stateferry.savepoint.bytes_read import BytesRead
from stateferry.steps.workers import Measure, Workers
from stateferry.tables.account import AccountSpec, table_accounts, table_facts
from stateferry.validation.check_result import Check
from stateferry.validation.checks import CheckSpec, open_staged, run_check, validate
from stateferry.validation.keyed_check import READ, Facts
from stateferry.validation.promise import Promise

_BYTES: Measure[Facts] = Measure("B", lambda facts: int(facts.get("size", 0)))


def run(
    workers: Workers,
    resolved: ResolvedPlan,
    staged: str,
    tables: Sequence[AccountSpec] = (),
    read: BytesRead | None = None,
) -> list[Check]:
    """The checks of the staged savepoint.

    `tables` are pieces of work that find out what the tables hold. The bytes of the source that were read are added to
    `read`.
    """
    opened = open_staged(staged)
    if isinstance(opened, Check):
        return [opened]
    promise = Promise(
        resolved.layout, {one.operator.id: one.rules for one in resolved.operators}, resolved.plan.keep_legacy
    )

    def on_workers(specs: Sequence[CheckSpec]) -> list[Facts]:
        facts = workers.do(Step.VALIDATE, specs, run_check, _BYTES)
        for one in facts:
            if read is not None and one.get(READ) is not None:
                read.take(BytesRead.of_facts(one[READ]))
        return facts

    return validate(
        resolved.source,
        opened,
        promise,
        run=on_workers,
        tables=table_accounts(tables, workers.do(f"{Step.VALIDATE} tables", tables, table_facts)),
        target_bytes=resolved.plan.chunk_bytes,
    )
