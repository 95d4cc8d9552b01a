"""Validate: reads the staged savepoint and the source anew, and compares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from flinkstate.metadata.bytes_read import BytesRead
from stateferry.proof.checks import CheckResult, CheckTask, StagedStates, do_check, open_staged, validate
from stateferry.proof.expected.check_result import Check
from stateferry.proof.expected.conversion import Conversion
from stateferry.proof.judgement import Derived
from stateferry.runs.checks.plan_check import ResolvedPlan
from stateferry.runs.record.facts import Step
from stateferry.steps.workers import Measure, Workers
from stateferry.tables.account import AccountTask, account_of_chunk, table_accounts

_BYTES: Measure[CheckResult] = Measure("B", lambda result: result.size)


def run(
    workers: Workers,
    resolved: ResolvedPlan,
    staged: str,
    tables: Sequence[AccountTask] = (),
    read: BytesRead | None = None,
    accounts: StagedStates | None = None,
    derived: Mapping[str, Derived] | None = None,
) -> list[Check]:
    """The checks of the staged savepoint.

    `tables` are tasks that find out what the tables hold. The bytes of the source that were read are added to
    `read`, the accounts of the new states in the staged savepoint to `accounts`. `derived` is what the snapshot didn't
    read, by operator and legacy state.
    """
    opened = open_staged(staged, (resolved.plan.target,))
    if isinstance(opened, Check):
        return [opened]
    conversion = Conversion(
        resolved.layout,
        {one.operator.id: one.rules for one in resolved.operators},
        resolved.plan.keep_legacy,
        resolved.dropping,
    )

    def on_workers(tasks: Sequence[CheckTask]) -> Iterator[CheckResult]:
        for one in workers.do(Step.VALIDATE, tasks, do_check, _BYTES):
            if read is not None and one.read is not None:
                read.take(one.read)
            yield one

    return validate(
        resolved.source,
        opened,
        conversion,
        do=on_workers,
        tables=table_accounts(workers.do(f"{Step.VALIDATE} tables", tables, account_of_chunk)),
        target_bytes=resolved.plan.chunk_bytes,
        accounts=accounts,
        derived=derived,
    )
