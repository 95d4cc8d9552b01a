"""Where the tables of a run are, and which of its states have some."""

from __future__ import annotations

from collections.abc import Iterator

from flinkstate.files.stores import reaching
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Rules
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.tables.iceberg.commits import TableHome
from stateferry.tables.iceberg.owners import tables_of_state
from stateferry.tables.iceberg.schemas import StateTables


def table_home(resolved: ResolvedPlan) -> TableHome:
    """Where the plan's tables are."""
    return TableHome(resolved.plan.catalog_uri, resolved.plan.warehouse, resolved.plan.rest_catalog)


def with_tables(resolved: ResolvedPlan) -> Iterator[tuple[OperatorChanges, Rules]]:
    """The operators and rules of the states whose tables follow the run."""
    return ((one, rules) for one, rules in resolved.migrations if rules.fills_tables)


def tables_of(resolved: ResolvedPlan, one: OperatorChanges, rules: Rules) -> StateTables:
    """The names of the state's tables, by what the catalog says."""
    with reaching(resolved.plan.warehouse):
        catalog = table_home(resolved).catalog_if_there()
        return tables_of_state(catalog, resolved.plan.job, resolved.source, one.operator, rules.new_name)
