"""A savepoint in another layout, made as the step `rescale` makes it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from flinkstate.files.storage import Location
from flinkstate.metadata.chunks import TARGET_BYTES
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout, OperatorRewrite, Transform
from flinkstate.writing.writer import SavepointWriter
from stateferry.steps.rescale import Staged, stage
from stateferry.steps.workers import InProcess


def rewrite(
    source: Savepoint,
    target: str,
    layout: Layout,
    *,
    transforms: Mapping[bytes, Transform] | None = None,
    exchange_in: Path | None = None,
) -> Staged:
    """Writes the source in the new layout; `transforms` are by operator id. What goes from key group to key group lies
    in a temporary folder meanwhile, in `exchange_in` if it is given."""
    rewrites = [
        OperatorRewrite.prepare(source, operator, layout, (transforms or {}).get(operator.id))
        for operator in source.metadata.operators
    ]
    with tempfile.TemporaryDirectory(dir=exchange_in) as folder:
        exchange = Location.of(f"{folder}/exchange")
        staged = stage(InProcess(), source.metadata, rewrites, target, exchange, TARGET_BYTES)
    SavepointWriter(target).commit(staged.metadata)
    return staged
