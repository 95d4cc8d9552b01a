"""Savepoints as far as the DAGs look at them: `_metadata`; and the runs that are planned for them."""

from __future__ import annotations

import os
from pathlib import Path

from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import Metadata, Operator
from stateferry.airflow.requests.planning import Occasion, planned
from stateferry.airflow.requests.request import MigrationRequest
from stateferry.runs.record.runs import Run


def write_metadata(folder: Path, *, checkpoint_id: int = 1, completed_at: float | None = None) -> str:
    folder.mkdir(parents=True)
    file = folder / "_metadata"
    main = Operator(b"\1" * 16, 1, 128, "main", "main")
    file.write_bytes(build_metadata(Metadata(6, checkpoint_id, (main,), properties=b"\xac\xed\x00\x05\x70")))
    if completed_at is not None:
        os.utime(file, (completed_at, completed_at))
    return str(folder)


def planned_run(request: MigrationRequest, occasion: Occasion) -> Run:
    """The run of a savepoint that is there."""
    run = planned(request, occasion)[1]
    assert run is not None
    return run
