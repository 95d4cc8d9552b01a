"""A whole migration in one process, for the kernels that it uses: taken stock of, rewritten, validated, and kept in
tables where there is Iceberg."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec

from stateferry.migration.inventory import inventory_tasks, total
from stateferry.migration.map_migration import MigrateMaps
from stateferry.migration.rules import Contradiction, Rules
from stateferry.savepoint.metadata import Operator
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.rewrite import Layout, rewrite
from stateferry.savepoint.state import KeyedState
from stateferry.validation.checks import validate
from stateferry.validation.promise import Promise


def migrate(source: str, operator: str, names: tuple[str, str, str], folder: str, now: int) -> None:
    """`names` are those of the legacy, the new and the flag state; `folder` is for all that is written."""
    savepoint = Savepoint.open(source)
    found = savepoint.operator(operator)
    states = {state.name: state for state in savepoint.keyed_states(found)}
    legacy, new, flag = names
    rules = Rules(
        states[legacy],
        new,
        flag,
        10**9 if states[legacy].ttl else None,
        now,
        drop_unrepresentable_nulls=True,
        on_contradiction=Contradiction.ROWS,
    )
    total(task.take() for task in inventory_tasks(savepoint, found, (rules,), target_bytes=1 << 20))
    for layout in (Layout(), Layout(max_parallelism=found.max_parallelism + 1)):
        target = f"{folder}/{layout.max_parallelism or 'same'}"
        _rewrite_and_check(savepoint, found, states, rules, layout, target)
    if find_spec("pyiceberg") is not None:
        _keep_in_tables(savepoint, found, rules, f"{folder}/tables")


def _rewrite_and_check(
    savepoint: Savepoint,
    operator: Operator,
    states: dict[str, KeyedState],
    rules: Rules,
    layout: Layout,
    target: str,
) -> None:
    rewrite(savepoint, target, layout, transforms={operator.id: MigrateMaps([rules], states)})
    promise = Promise(layout, {operator.id: (rules,)})
    validate(savepoint, Savepoint.open(target), promise)
    # Something else was promised: then samples of what differs are looked for.
    validate(savepoint, Savepoint.open(target), Promise(layout, {operator.id: (rules,)}, keep_legacy=True))


def _keep_in_tables(savepoint: Savepoint, operator: Operator, rules: Rules, folder: str) -> None:
    from stateferry.tables.migrate import TableHome, advance_main, commit_migrate, migrate_chunk, plan_migrate

    os.makedirs(folder)
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    home = TableHome(f"sqlite:///{folder}/catalog.db", f"{folder}/warehouse")
    # The second night finds what the first one wrote.
    for night in ("first", "second"):
        step = plan_migrate(home, "warm", night, savepoint, operator, rules)
        commit_migrate(step, [migrate_chunk(chunk) for chunk in step.chunks])
        advance_main(home, step.tables, night)
