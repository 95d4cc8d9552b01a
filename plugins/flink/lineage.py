"""Names of datasets for OpenLineage, whose provider may be absent: import this where it asks, never before."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.providers.openlineage.extractors.base import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset


def named(address: str) -> tuple[str, str]:
    """The namespace and the name of a folder, as OpenLineage's naming wants them."""
    parts = urlsplit(address)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    # A login has no place here.
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.strip("/") or "/"


def savepoint_lineage(*, taken: str | None = None, started_from: str | None = None) -> OperatorLineage[Any, Any]:
    """What a task of Flink writes, or reads."""
    inputs: list[Any] = [InputDataset(*named(started_from))] if started_from else []
    outputs: list[Any] = [OutputDataset(*named(taken))] if taken else []
    return OperatorLineage(inputs=inputs, outputs=outputs)
