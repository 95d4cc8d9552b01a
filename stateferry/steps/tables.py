"""Tables: compares the tables of a published run with the staged savepoint, as the validation has found it.

The validation of a rehearsal does this itself. In a cut-over the tables are written after the publication, so the
validation keeps the accounts of the staged savepoint for them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flinkstate.errors import RejectedError
from stateferry.proof.expected.check_result import Check
from stateferry.proof.expected.content import Account
from stateferry.proof.judgement import table_check
from stateferry.runs.checks.plan_check import ResolvedPlan
from stateferry.runs.record.facts import StagedAccount, StagedAccounts, Step
from stateferry.steps.workers import Workers
from stateferry.tables.account import account_of_chunk, table_accounts


class TablesPendingError(RejectedError):
    """The run is published, but its tables have not followed."""


def to_facts(accounts: Mapping[tuple[str, str], Account]) -> StagedAccounts:
    """The accounts of the staged savepoint as facts of the run, by operator and new state."""
    return StagedAccounts(
        tuple(
            StagedAccount(operator, state, tuple(account.counts.tolist()), tuple(account.sums.tolist()))
            for (operator, state), account in accounts.items()
        )
    )


def check(workers: Workers, resolved: ResolvedPlan, staged: StagedAccounts) -> tuple[Check, ...]:
    """The checks of the tables that the run has written."""
    # The catalog's library is slow to import, and the other functions are also called by a validation.
    from stateferry.steps import migrate

    labels = {one.operator.hex_id: one.operator.label for one in resolved.operators}
    found = {(one.operator, one.state): _account(one) for one in staged.states}
    made = table_accounts(workers.do(Step.TABLES, migrate.accounts(resolved), account_of_chunk))
    return tuple(table_check(labels[one.operator], one, found[one.operator, one.state]) for one in made)


def _account(one: StagedAccount) -> Account:
    return Account(np.array(one.counts, np.int64), np.array(one.sums, np.uint64))
