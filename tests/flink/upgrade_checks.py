"""What tests of a savepoint for another Flink have in common, whichever of the two wrote the old one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import PlanError, RefusedError
from stateferry.verdict.outcomes import Outcome
from tests.flink.harness import FlinkHarness, Made
from tests.flink.jobs import Job
from tests.flink.judge import Change, Started, check_restored, observed, upgraded
from tests.flink.upgrade_rows import ROWS

_AS_IT_IS = Change()
LAYOUTS: dict[str, tuple[str, Change, dict[str, Any]]] = {
    "parallelism": ("CANONICAL", Change(3), {}),
    "max parallelism": ("CANONICAL", Change(3, 256), {}),
    "native": ("NATIVE", _AS_IT_IS, {"output_format": "native", "no_timers": True}),
    "native to canonical": ("NATIVE", _AS_IT_IS, {"no_timers": True}),
    "canonical to native, max parallelism": ("CANONICAL", Change(1, 64), {"output_format": "native"}),
}
"""What else a run changes: the format of the old savepoint, the layout of the new one, and further options."""


def check_with_layout(
    name: str, layout: str, started: Started, versions: tuple[str, str], folder: Path, **options: Any
) -> None:
    """As `check_kept`, of the job of a row, in this layout."""
    format_, change, further = LAYOUTS[layout]
    if name.startswith("heap") and (format_ == "NATIVE" or "output_format" in further):
        pytest.skip("only RocksDB has native savepoints here")
    row = ROWS[name]
    check_kept(row.job, started, versions, folder, format_, change, with_classes=row.classes, **options, **further)


def check_kept(
    job: Job, started: Started, versions: tuple[str, str], folder: Path,
    format_: str = "CANONICAL", change: Change = _AS_IT_IS, *, with_classes: bool = False, **options: Any,
) -> None:  # fmt: skip
    """The second Flink finds all that the first has made."""
    made = started(versions[0], False).make(job, folder / "old", format_=format_)
    told = {"parallelism": change.parallelism, "max_parallelism": change.max_parallelism}
    wanted = options | {name: value for name, value in told.items() if value is not None}
    new = upgraded(made.path, folder, with_classes, **wanted)
    moved = change.max_parallelism is not None
    check_restored(started(versions[1], False), new, change.job(job), Made(new, made.lines), moved=moved)


def check_observed(flink: FlinkHarness, job: Job, new: Path, made: Made, expected: Outcome = Outcome.RESTORES) -> None:
    """What Flink does with the new savepoint; `made` is the old one."""
    outcome, exception = observed(flink, job, Made(new, made.lines))
    assert outcome is expected, exception


@contextmanager
def refused(match: str, folder: Path) -> Iterator[None]:
    """The run is refused before it has written anything."""
    with pytest.raises((PlanError, RefusedError), match=match):
        yield
    assert not (folder / "new").exists()
