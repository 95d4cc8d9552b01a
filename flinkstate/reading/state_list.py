"""The states of a savepoint as an Arrow table: kind, types, and whether they can be migrated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import type_name

SCHEMA = pa.schema(
    [
        ("operator_id", pa.string()),
        ("uid", pa.string()),
        ("name", pa.string()),
        ("state", pa.string()),
        ("kind", pa.string()),
        ("type", pa.string()),
        ("key_type", pa.string()),
        ("namespace_type", pa.string()),
        ("ttl", pa.bool_()),
        ("migratable", pa.bool_()),
        ("reason", pa.string()),
    ]
)


def list_states(savepoint: Savepoint, operator: str | None) -> pa.RecordBatch:
    """Lists all keyed and operator states of one operator, or of all operators."""
    operators = savepoint.metadata.operators if operator is None else (savepoint.operator(operator),)
    return pa.RecordBatch.from_pylist([row for found in operators for row in _rows(savepoint, found)], schema=SCHEMA)


def _rows(savepoint: Savepoint, operator: Operator) -> Iterator[dict[str, Any]]:
    named = {"operator_id": operator.hex_id, "uid": operator.uid, "name": operator.name}
    for state in savepoint.keyed_states(operator):
        yield named | _keyed(state)
    modes = {
        state.name: state.mode
        for subtask in operator.subtasks
        if subtask.managed_operator is not None
        for state in subtask.managed_operator.states
    }
    for name, mode in modes.items():
        yield named | {"state": name, "kind": mode.label, "migratable": False, "reason": "operator state, not keyed"}


def _keyed(state: KeyedState) -> dict[str, Any]:
    reason = state.why_not_migratable
    return {
        "state": state.name,
        "kind": state.kind.value,
        "type": state.type_name,
        "key_type": type_name(state.key),
        "namespace_type": type_name(state.namespace),
        "ttl": state.ttl,
        "migratable": reason is None,
        "reason": reason,
    }
