"""What Flink writes besides canonical savepoints is refused, with the way to take a canonical one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stateferry.cli import DAMAGED_OR_REFUSED, main
from stateferry.errors import RefusedError
from stateferry.savepoint.reader import Savepoint
from tests.flink.harness import FlinkError, FlinkHarness, by_state
from tests.flink.jars import VERSIONS
from tests.flink.judge import Make
from tests.flink.scenarios import BACKENDS, SCENARIOS

pytestmark = pytest.mark.flink

_INCREMENTAL = {"execution.checkpointing.incremental": "true"}
_FULL = {"execution.checkpointing.incremental": "false"}
WRITTEN = {
    "native savepoint": ("NATIVE", {}),
    "incremental checkpoint": ("CHECKPOINT", _INCREMENTAL),
    "full checkpoint": ("CHECKPOINT", _FULL),
}


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_refused_with_what_to_do(
    version: str, backend: str, written: str, made: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    format_, settings = WRITTEN[written]
    job = replace(SCENARIOS["legacy-string-long"], backend=backend, settings=settings)
    path = made(version, job, format_).path
    with pytest.raises(RefusedError, match="flink savepoint --type canonical JOB DIR") as refused:
        Savepoint.open(str(path))
    assert str(path / "_metadata") in str(refused.value)
    assert main(["inspect", str(path)]) == DAMAGED_OR_REFUSED
    assert "--type canonical" in capsys.readouterr().err


@pytest.mark.parametrize("backend", BACKENDS)
def test_of_asynchronous_state_flink_takes_native_savepoints_only(
    backend: str, flink_2: FlinkHarness, made: Make, tmp_path: Path
) -> None:
    job = SCENARIOS["windows"]
    operators = tuple(replace(o, asynchronous=True) for o in job.operators if o.assigner == "tumbling")
    asynchronous = replace(job, operators=operators, backend=backend)
    with pytest.raises(FlinkError, match=r"UnsupportedOperationException: Not supported yet"):
        flink_2.make(asynchronous, tmp_path / "canonical")
    native = made("2.3.0", asynchronous, "NATIVE")
    assert by_state(native.lines) != {}
    with pytest.raises(RefusedError, match="Flink can't take one of asynchronous state"):
        Savepoint.open(str(native.path))
