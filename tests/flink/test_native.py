"""What Flink writes besides canonical savepoints is refused, with the way to take a canonical one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateferry.cli import DAMAGED_OR_REFUSED, main
from stateferry.errors import RefusedError
from stateferry.savepoint.reader import Savepoint
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
