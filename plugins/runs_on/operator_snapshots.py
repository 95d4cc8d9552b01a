"""Savepoints that the Flink Kubernetes Operator takes of a job that goes on running, for rehearsals."""

from __future__ import annotations

import logging

from stateferry.airflow.flink.savepoints import SavepointOrder
from stateferry.airflow.kubernetes.errors import OperatorError
from stateferry.airflow.kubernetes.resource import Resource
from stateferry.airflow.kubernetes.state_snapshot import StateSnapshot
from stateferry.airflow.runs_on.operator_spec import plain, with_scheme

_log = logging.getLogger(__name__)


def taken_by_operator(resource: Resource, order: SavepointOrder, *, timeout: float) -> str:
    """The savepoint of the order: an earlier try's if that didn't fail, else another one."""
    failed: OperatorError | None = None
    for number in range(max(order.tries, 1)):
        snapshot = StateSnapshot(resource, f"stateferry-{order.trigger(number)}")
        try:
            location = snapshot.savepoint(with_scheme(order.directory), order.format, timeout=timeout)
        except OperatorError as error:
            _log.info("%s", error)
            failed = error
            continue
        if not plain(location).startswith(f"{plain(order.directory)}/"):
            raise OperatorError(f"{snapshot} has savepoint {location}, which isn't in {order.directory}")
        return location
    assert failed is not None, "there was a try"
    raise failed
