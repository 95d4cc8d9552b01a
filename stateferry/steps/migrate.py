"""Migrate: brings the tables to the savepoint's content, and writes only the rows of new and changed keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flinkstate.files.stores import reaching
from stateferry.runs.checks.plan_check import ResolvedOperator, ResolvedPlan
from stateferry.runs.predict.earlier_night import EarlierNight
from stateferry.runs.record.facts import MigratedTables, MigrateFacts, Step
from stateferry.steps.workers import Measure, Workers
from stateferry.tables.account import AccountTask
from stateferry.tables.chunk import WrittenChunk
from stateferry.tables.iceberg.current_view import put_current_view
from stateferry.tables.iceberg.schemas import StateTables
from stateferry.tables.known_keys import KnownKeysTask
from stateferry.tables.known_keys_tasks import known_keys_tasks
from stateferry.tables.update import (
    EarlierSource,
    TableHome,
    TableSnapshots,
    advance_main,
    check_vanished,
    commit_update,
    is_cut_off,
    plan_update,
    tables_of_state,
    withdraw_run,
    write_chunk,
)
from stateferry.tables.versions import plan_account

_ROWS: Measure[WrittenChunk] = Measure("rows", lambda chunk: chunk.counts.rows_written + chunk.counts.rows_folded)


@dataclass(frozen=True, slots=True)
class MigratedState:
    """The tables of one state after the step; `rebuild` says why they were written anew, if they were."""

    tables: StateTables
    snapshots: TableSnapshots
    rebuild: str | None


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """The tasks that look for the keys which the tables of one state know."""

    tables: StateTables
    tasks: tuple[KnownKeysTask, ...]


def table_home(resolved: ResolvedPlan) -> TableHome:
    """Where the plan's tables are."""
    return TableHome(resolved.plan.catalog_uri, resolved.plan.warehouse)


def run(workers: Workers, resolved: ResolvedPlan, night: EarlierNight | None = None) -> list[MigratedState]:
    """Brings the tables of each migrated state to the savepoint's content.

    After an earlier night only the keys are read that have changed since, where that is possible.
    """
    return list(_states(workers, resolved, night))


def facts(states: Sequence[MigratedState]) -> MigrateFacts:
    """The facts of the step."""
    return MigrateFacts(
        tables=tuple(
            MigratedTables((one.tables.job, one.tables.operator, one.tables.state), dict(one.snapshots.snapshots))
            for one in states
        ),
        counts={_name(one): one.snapshots.counts for one in states},
        rebuilt={_name(one): one.rebuild for one in states if one.rebuild is not None},
    )


def _name(one: MigratedState) -> str:
    return f"{one.tables.operator}/{one.tables.state}"


def _states(workers: Workers, resolved: ResolvedPlan, night: EarlierNight | None) -> Iterator[MigratedState]:
    plan = resolved.plan
    for one in _with_tables(resolved):
        earlier = EarlierSource(night.run_id, night.parts(one.operator)) if night is not None else None
        for rules in one.rules:
            with reaching(plan.warehouse):
                step = plan_update(
                    table_home(resolved),
                    plan.job,
                    plan.run_id,
                    resolved.source,
                    one.operator,
                    rules,
                    vanish_threshold=plan.vanish_threshold,
                    chunk_bytes=plan.chunk_bytes,
                    at_least=workers.at_once,
                    is_published=not plan.rehearse,
                    earlier=earlier,
                )
            written = list(workers.do(Step.MIGRATE, step.chunks, write_chunk, _ROWS))
            with reaching(plan.warehouse, "written"):
                snapshots = commit_update(step, written)
            yield MigratedState(step.tables, snapshots, step.rebuild)


def _with_tables(resolved: ResolvedPlan) -> tuple[ResolvedOperator, ...]:
    """The operators whose states' tables follow the run.

    A run in reverse leaves the tables as they are. The next rehearsal of the old job brings them to its state.
    """
    return () if resolved.plan.reverse else resolved.operators


def plan_known_keys(resolved: ResolvedPlan) -> list[KnownKeys]:
    """What `check_known_keys` needs of the catalog and of the tables."""
    found = []
    for one in _with_tables(resolved.moving(())):
        for rules in one.rules:
            tables = tables_of_state(resolved.plan.job, one.operator, rules)
            with reaching(resolved.plan.warehouse):
                tasks = known_keys_tasks(table_home(resolved), tables, resolved.source, one.operator, rules)
            found.append(KnownKeys(tables, tuple(tasks)))
    return found


def check_known_keys(workers: Workers, resolved: ResolvedPlan, states: Sequence[KnownKeys]) -> None:
    """Raises an error if too many keys that the last run knew have vanished, as the step itself does."""
    for one in states:
        found = list(workers.do("known keys", one.tasks, KnownKeysTask.count))
        known, vanished = sum(keys.known for keys in found), sum(keys.vanished for keys in found)
        check_vanished(one.tables, known, vanished, resolved.plan.vanish_threshold)


def accounts(resolved: ResolvedPlan) -> list[AccountTask]:
    """The tasks that find out what the tables hold for this run."""
    found = []
    for one in _with_tables(resolved.moving(())):
        new_max = resolved.layout.of(one.operator).max_parallelism
        changes = resolved.layout.changes_key_groups(one.operator)
        for rules in one.rules:
            tables = tables_of_state(resolved.plan.job, one.operator, rules)
            found += plan_account(
                table_home(resolved),
                tables,
                resolved.plan.run_id,
                one.operator.hex_id,
                rules,
                new_max,
                changes_key_groups=changes,
            )
    return found


def advance(resolved: ResolvedPlan, facts: MigrateFacts) -> bool:
    """Moves the tables' `main` to this run and updates their view; False if a table is of a newer savepoint already."""
    home = table_home(resolved)
    states = [StateTables(*one.of) for one in facts.tables]
    rules = {tables_of_state(resolved.plan.job, one.operator, of): of for one in resolved.operators for of in one.rules}
    with reaching(resolved.plan.warehouse, "written"):
        moved = [tables for tables in states if advance_main(home, tables, resolved.plan.run_id)]
        for tables in moved:
            put_current_view(home, tables, rules[tables].ttl if rules[tables].drops_expired else None)
    return moved == states


def withdraw_if_cut_off(resolved: ResolvedPlan, facts: MigrateFacts) -> bool:
    """Takes back the step's commits if `main` of a table was changed since; says whether the step is to be done again.

    All states' commits are taken back then, because the step counts only what it commits.
    """
    home, run_id = table_home(resolved), resolved.plan.run_id
    states = [(StateTables(*one.of), one.snapshots) for one in facts.tables]
    with reaching(resolved.plan.warehouse, "written"):
        if not any(is_cut_off(home, tables, run_id, made) for tables, made in states):
            return False
        for tables, _ in states:
            withdraw_run(home, tables, run_id)
    return True
