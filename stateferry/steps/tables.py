"""Tables: brings the tables to the savepoint's content, compares them with the new savepoint, and moves their `main`.

After a catch-up it first reads all files that were published, and does no more than that if no state is migrated.

Only the rows of new and changed keys are written. The step comes last, as no job waits for the tables. The accounts of
the new savepoint, with which they are compared, are those that the validation has kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flinkstate.errors import (
    DamagedError,
    MissingHereError,
    RefusedError,
    RejectedError,
    StateferryError,
    TransientError,
)
from flinkstate.files.stores import reaching
from flinkstate.reading.reader import Savepoint
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.expected.content import Account
from stateferry.proof.judgement import table_check
from stateferry.proof.tally import TableAccount
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.predict.earlier_night import EarlierNight, earlier_night
from stateferry.runs.record.facts import StagedAccount, StagedAccounts, TablesProblem
from stateferry.runs.record.step_facts import TablesFacts, TablesOfState, WrittenTables
from stateferry.runs.record.steps import Step
from stateferry.runs.report.proven import green_report, proven_report
from stateferry.runs.report.report import PUBLISHED_FILES, Report
from stateferry.steps import known_keys
from stateferry.steps.cut_over import digests_of
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.table_states import table_home, tables_of, with_tables
from stateferry.steps.workers import Measure, Workers
from stateferry.tables.account import AccountTask, account_of_chunk, table_accounts
from stateferry.tables.chunk import WrittenChunk
from stateferry.tables.iceberg.current_view import put_current_view
from stateferry.tables.iceberg.schemas import StateTables
from stateferry.tables.update import (
    EarlierSource,
    TableSnapshots,
    advance_main,
    commit_update,
    doubt_main,
    is_shown,
    must_repeat,
    plan_update,
    withdraw_run,
    write_chunk,
)
from stateferry.tables.versions import plan_account

_ROWS: Measure[WrittenChunk] = Measure("rows", lambda chunk: chunk.counts.rows_written + chunk.counts.rows_folded)


class TablesPendingError(RejectedError):
    """The run is published, but its tables have not followed."""


class PublishedFilesError(RejectedError):
    """The run is published, but its files are not those that were validated."""


def do(work: RunAtWork) -> TablesFacts:
    """Does the step and returns its facts.

    What fails here changes nothing of a publication. The run keeps the reason, and the next try goes on.
    """
    run = work.run
    if run.plan.rehearse:
        green_report(run)
        return _bring(work)
    try:
        with reaching():
            return _bring(work)
    except (MissingHereError, TransientError):
        raise
    except PublishedFilesError as error:
        run.keep(TablesProblem(f"{error}", published_differs=True))
        raise
    except StateferryError as error:
        run.keep(TablesProblem(f"{error}"))
        raise TablesPendingError(
            f"run {run.plan.run_id} is published, and a job may run from {run.plan.target}. The tables are pending: "
            f"{error}"
        ) from error


def _bring(work: RunAtWork) -> TablesFacts:
    run = work.run
    published = _check_published(work) if run.plan.since is not None and not run.plan.rehearse else ()
    # An alarm stays until the files have been read again.
    run.forget(TablesProblem)
    # Without a migration there are no tables, and nothing that the source would be needed for.
    has_tables = not run.plan.rescales_only
    written = _written(work) if has_tables else WrittenTables()
    facts = TablesFacts(tables=written.tables, counts=written.counts, rebuilt=written.rebuilt)
    accounts = run.facts(StagedAccounts) or StagedAccounts()
    found = check(work.workers, work.resolved, accounts) if has_tables else {}
    report = Report.read(run.report).with_tables((*published, *found.values()), written.to_json())
    work.renewal.check()
    report.write(run.report)
    if report.tables_pending:
        failed = {of: one.name for of, one in found.items() if one.outcome is Outcome.FAILED}
        with reaching(run.plan.warehouse, "written"):
            for one, rules in with_tables(work.resolved):
                if (one.operator.label, rules.new_name) in failed:
                    # What is wrong may be a file of main, from which the next run would start again.
                    doubt_main(table_home(work.resolved), tables_of(work.resolved, one, rules), run.plan.run_id)
        raise RejectedError(
            "the tables failed their checks, so their branch main stays where it was: "
            f"{', '.join(failed.values())} ({run.report.shown}). The same command, or the next run or rehearsal of the "
            "job, writes all of their rows anew"
        )
    moved = not has_tables or _advance(work.resolved, written)
    if not moved:
        work.say(f"the tables' main shows a newer savepoint; what run {run.plan.run_id} has is on its branch")
    work.renewal.check()
    if not run.plan.rehearse:
        work.control.complete(work.lease, run.plan.run_id, facts.snapshots)
    return replace(facts, moved=moved)


def _check_published(work: RunAtWork) -> tuple[Check]:
    """The check that the published files, some of which a catch-up has held by identity, are those validated."""
    run = work.run
    try:
        found = digests_of(work.workers, Savepoint.open(run.staged.shown, places=(run.plan.target,)))
        is_proven, why = proven_report(run).holds_for(found, run.plan.fingerprint), ""
    except (DamagedError, RefusedError) as error:
        is_proven, why = False, f" ({error})"
    if not is_proven:
        raise PublishedFilesError(
            f"run {run.plan.run_id} is published, but the files in {run.plan.target} are not those that were "
            f"validated{why}. If the new job has not claimed them, end it and go back"
        )
    return (Check(PUBLISHED_FILES, Outcome.PASSED, "as validated", "as validated"),)


def _written(work: RunAtWork) -> WrittenTables:
    """What the step has written; it writes again if that failed its checks, or if `main` was changed or doubted since.

    These facts are replaced, not removed, so that the step can go on after a kill.
    """
    run, resolved = work.run, work.resolved
    written = run.facts(WrittenTables)
    failed = any(check.outcome is Outcome.FAILED for check in Report.read(run.report).tables)
    if written is not None and not _withdraw_to_repeat(resolved, written, failed=failed):
        return written
    written = _facts(list(write(work.workers, resolved, earlier_night(resolved))))
    work.renewal.check()
    run.keep(written)
    return written


def check(workers: Workers, resolved: ResolvedPlan, staged: StagedAccounts) -> dict[tuple[str, str], Check]:
    """The checks of the tables that the run has written, by operator and state."""
    labels = {one.operator.hex_id: one.operator.label for one in resolved.operators}
    found = {(one.operator, one.state): _account(one) for one in staged.states}
    made = table_accounts(workers.do(f"{Step.TABLES}: check", accounts(resolved), account_of_chunk))
    by_state = {(one.operator, one.state): one for one in made}
    for one, rules in with_tables(resolved):
        # Tables without any file hold nothing, which is right only if the savepoint has nothing.
        of = (one.operator.hex_id, rules.new_name)
        by_state.setdefault(of, TableAccount(*of, Account.of(one.new_max)))
    return {(labels[of[0]], of[1]): table_check(labels[of[0]], one, found[of]) for of, one in by_state.items()}


def _account(one: StagedAccount) -> Account:
    return Account(np.array(one.counts, np.int64), np.array(one.sums, np.uint64))


@dataclass(frozen=True, slots=True)
class WrittenState:
    """The tables of one state after they were written; `rebuild` says why they were written anew, if they were."""

    tables: StateTables
    snapshots: TableSnapshots
    rebuild: str | None


def _facts(states: Sequence[WrittenState]) -> WrittenTables:
    return WrittenTables(
        tables=tuple(
            TablesOfState((one.tables.job, one.tables.operator, one.tables.state), dict(one.snapshots.snapshots))
            for one in states
        ),
        counts={_name(one): one.snapshots.counts for one in states},
        rebuilt={_name(one): one.rebuild for one in states if one.rebuild is not None},
    )


def _name(one: WrittenState) -> str:
    return f"{one.tables.operator}/{one.tables.state}"


def write(workers: Workers, resolved: ResolvedPlan, night: EarlierNight | None) -> Iterator[WrittenState]:
    """Brings the tables of each migrated state to the savepoint's content.

    After an earlier night only the keys are read that have changed since, where that is possible.
    """
    plan = resolved.plan
    for one, rules in with_tables(resolved):
        earlier = EarlierSource(night.run_id, night.parts(one.operator)) if night is not None else None
        with reaching(plan.warehouse):
            step = plan_update(
                table_home(resolved),
                plan.job,
                plan.run_id,
                resolved.source,
                one.operator,
                rules,
                accept_vanished=plan.accept_vanished,
                chunk_bytes=plan.chunk_bytes,
                at_least=workers.at_once,
                is_published=not plan.rehearse,
                earlier=earlier,
            )
        if step.rebuild is not None and plan.rehearse:
            # Rows that are all new say nothing of keys that are gone. A cut-over has asked before it published.
            known_keys.check(workers, resolved, [known_keys.known_keys_of(resolved, one, rules)])
        written = list(workers.do(Step.TABLES, step.chunks, write_chunk, _ROWS))
        with reaching(plan.warehouse, "written"):
            snapshots = commit_update(step, written)
        yield WrittenState(step.tables, snapshots, step.rebuild)


def accounts(resolved: ResolvedPlan) -> list[AccountTask]:
    """The tasks that find out what the tables hold for this run."""
    found = []
    for one, rules in with_tables(resolved.moving(())):
        found += plan_account(
            table_home(resolved),
            tables_of(resolved, one, rules),
            resolved.plan.run_id,
            one.operator.hex_id,
            rules,
            one.new_max,
            changes_key_groups=one.changes_key_groups,
        )
    return found


def _advance(resolved: ResolvedPlan, facts: WrittenTables) -> bool:
    """Moves the tables' `main` to this run and updates their view; False if a table is of a newer savepoint already.

    If a later run has moved `main` on since an earlier try, the view is that run's.
    """
    home = table_home(resolved)
    states = [StateTables(*one.of) for one in facts.tables]
    rules = {tables_of(resolved, one, of): of for one, of in with_tables(resolved)}
    with reaching(resolved.plan.warehouse, "written"):
        moved = [tables for tables in states if advance_main(home, tables, resolved.plan.run_id)]
        for tables in moved:
            if is_shown(home, tables, resolved.plan.run_id):
                put_current_view(home, tables, rules[tables].ttl if rules[tables].drops_expired else None)
    return moved == states


def _withdraw_to_repeat(resolved: ResolvedPlan, facts: WrittenTables, *, failed: bool) -> bool:
    """Takes back the step's commits if they are of no use; says whether it did, and the step is to be done again.

    They are of none if their checks have `failed`, even if `main` has moved on since and isn't doubted any more.

    All states' commits are taken back then, because the step counts only what it commits.
    """
    home, run_id = table_home(resolved), resolved.plan.run_id
    states = [(StateTables(*one.of), one.snapshots) for one in facts.tables]
    with reaching(resolved.plan.warehouse, "written"):
        if not failed and not any(must_repeat(home, tables, run_id, made) for tables, made in states):
            return False
        for tables, _ in states:
            withdraw_run(home, tables, run_id)
    return True
