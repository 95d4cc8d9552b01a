"""Whose tables are whose: they note their operator's id, and keep the name that they were made with.

The label of an operator may change: savepoints of Flink 1.20 have ids alone, and a job may rename its operators.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from stateferry.tables.iceberg.schemas import KEY_LEDGER, StateTables

_OPERATOR = "stateferry.operator"


@dataclass(frozen=True, slots=True)
class _Owner:
    """An operator, and what it is called in the names of its tables; tables of earlier versions don't say the id."""

    id: str | None
    name: str


def tables_of_state(
    catalog: Catalog | None, job: str, savepoint: Savepoint, operator: Operator, state: str
) -> StateTables:
    """Returns the names of the tables of an operator's new state, whether or not they are there yet.

    They are those that note the operator's id. Without them, those that note none: under its label, else under its id.
    """
    labelled = StateTables(job, operator.label, state)
    if catalog is None:
        return labelled
    of_job, _, of_state = labelled.namespace
    owner = _owner(catalog, labelled.namespace)
    if owner is not None and owner.id == operator.hex_id:
        return labelled
    try:
        namespaces = catalog.list_namespaces((of_job,))
    except NoSuchNamespaceError:
        return labelled
    owners = [_owner(catalog, (*namespace, of_state)) for namespace in namespaces]
    for found in owners:
        if found is not None and found.id == operator.hex_id:
            return StateTables(job, found.name, state)
    if owner == _Owner(None, labelled.namespace[1]):
        return labelled
    if _Owner(None, operator.hex_id) in owners:
        return StateTables(job, operator.hex_id, state)
    # Tables of an operator that is gone go on: if this is the wrong savepoint, their keys tell.
    is_taken = owner is not None and owner.id in {one.hex_id for one in savepoint.metadata.operators}
    return StateTables(job, f"id {operator.hex_id}", state) if is_taken else labelled


def note_of_owner(tables: StateTables, operator: Operator) -> dict[str, str]:
    """What a table notes of whose it is."""
    return {_OPERATOR: json.dumps({"id": operator.hex_id, "name": tables.operator})}


def note_once(table: Table, noted: dict[str, str]) -> None:
    """Notes whose it is in a table that doesn't say so yet, as it was made before tables did."""
    if not noted.keys() <= table.properties.keys():
        with table.transaction() as transaction:
            transaction.set_properties(noted)


def _owner(catalog: Catalog, namespace: tuple[str, ...]) -> _Owner | None:
    """Returns whose tables are in a namespace, or None if there are none."""
    try:
        note = catalog.load_table((*namespace, KEY_LEDGER)).properties.get(_OPERATOR)
    except NoSuchTableError:
        return None
    return _Owner(None, namespace[1]) if note is None else _Owner(**json.loads(note))
