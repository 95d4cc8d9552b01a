"""Compares the keys of the source with those that the tables know, before a cut-over writes anything.

The tables step compares them too, but in a cut-over it comes after the publication. A rehearsal that writes all rows
anew compares them in this way as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flinkstate.files.stores import reaching
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Rules
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.steps.table_states import table_home, tables_of, with_tables
from stateferry.steps.workers import Workers
from stateferry.tables.iceberg.schemas import StateTables
from stateferry.tables.known_keys import KnownKeysTask
from stateferry.tables.known_keys_tasks import known_keys_tasks
from stateferry.tables.update import check_vanished


@dataclass(frozen=True, slots=True)
class KnownKeysTasks:
    """The tasks that look for the keys which the tables of one state know."""

    tables: StateTables
    tasks: tuple[KnownKeysTask, ...]


def known_keys_of_all(resolved: ResolvedPlan) -> list[KnownKeysTasks]:
    """The tasks for all states with tables."""
    return [known_keys_of(resolved, one, rules) for one, rules in with_tables(resolved.moving(()))]


def known_keys_of(resolved: ResolvedPlan, one: OperatorChanges, rules: Rules) -> KnownKeysTasks:
    """The tasks for one state, by what the catalog and the tables say."""
    tables = tables_of(resolved, one, rules)
    with reaching(resolved.plan.warehouse):
        tasks = known_keys_tasks(table_home(resolved), tables, resolved.source, one.operator, rules)
    return KnownKeysTasks(tables, tuple(tasks))


def check(workers: Workers, resolved: ResolvedPlan, states: Sequence[KnownKeysTasks]) -> None:
    """Raises an error if too many keys that the last run knew have vanished, as the tables step does."""
    for one in states:
        found = list(workers.do("known keys", one.tasks, KnownKeysTask.count))
        known, vanished = sum(keys.known for keys in found), sum(keys.vanished for keys in found)
        check_vanished(one.tables, known, vanished, resolved.plan.accept_vanished)
