"""Compressed operator state of Flink 1.18, in which elements aren't told apart."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import cramjam
import pytest

from flinkstate.errors import RefusedError
from flinkstate.keyed.compression import STREAM_START
from flinkstate.keyed.header import BackendKind, StateMeta
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.metadata import Operator, OperatorHandle, PartitionedState, RelativeFile, Subtask
from flinkstate.metadata.operator_state import DistributionMode
from flinkstate.metadata.parse_metadata import parse_metadata
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.built_snapshots import simple_snapshot
from flinkstate.serializers.types import Scalar
from flinkstate.writing.operator_file import OperatorHeader, build_operator_header
from stateferry.demo import DemoState, write_demo_savepoint
from stateferry.runs.checks.plan_check import resolve
from stateferry.runs.plan.plan_json import plan_of
from stateferry.verdict.judge import Asked, verdicts
from stateferry.verdict.outcomes import Outcome
from stateferry.verdict.versions import Line


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A savepoint with four numbers in a list that, as Flink 1.18 says, are all at the same place."""
    folder = tmp_path / "source"
    write_demo_savepoint(str(folder), DemoState(40, 3, 0.4, None, 10**12, 3, 128, 7))
    options = (("OPERATOR_STATE_DISTRIBUTION_MODE", "SPLIT_DISTRIBUTE"),)
    splits = StateMeta("splits", BackendKind.OPERATOR, options, (("VALUE_SERIALIZER", simple_snapshot(Scalar.LONG)),))
    header = build_operator_header(OperatorHeader(True, (splits,), ()))
    chunk = bytes(cramjam.snappy.compress(b"".join(number.to_bytes(8, "big") for number in range(4))))
    content = header + chunk[len(STREAM_START) :]
    (folder / "splits").write_bytes(content)
    state = PartitionedState("splits", DistributionMode.SPLIT_DISTRIBUTE, (len(header),) * 4)
    subtask = Subtask(0, managed_operator=OperatorHandle((state,), RelativeFile("splits", len(content))))
    reader = Operator(operator_id("reader"), 1, 128, "reader", None, None, False, (subtask,))
    metadata = parse_metadata((folder / "_metadata").read_bytes(), "")
    (folder / "_metadata").write_bytes(build_metadata(replace(metadata, operators=(*metadata.operators, reader))))
    return folder


def test_a_run_refuses_it(source: Path) -> None:
    """Flink would restore the first element four times, also from a file that is only copied."""
    states = [{"legacy": "mainState", "new": "newMainState", "flag": "isMigratedState"}]
    values = {"source": str(source), "target": f"{source}-new", "job": "orders"}
    plan = plan_of({**values, "operators": [{"operator": "main", "states": states}]})
    refusal = "several elements of operator state have one offset, as Flink 1.18 writes them"
    with pytest.raises(RefusedError, match=re.escape(refusal)):
        resolve(plan, Savepoint.open(plan.source))


def test_check_does_not_say_that_it_restores(source: Path) -> None:
    found = verdicts(Savepoint.open(str(source)), Asked(Line.TWO))
    (of_splits,) = [one.finding for one in found if one.state == "splits"]
    assert of_splits.outcome is Outcome.UNKNOWN
    assert "FLINK-34063" in of_splits.reason
