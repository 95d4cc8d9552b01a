"""Commands and steps whose workers are this process, instead of Spark's."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from stateferry.cli import engine, step
from stateferry.runs.record.facts import Step
from stateferry.steps.workers import InProcess, Workers


def without_spark(patch: pytest.MonkeyPatch, workers: Workers | None = None) -> None:
    """Commands that start Spark get this process in its place."""
    patch.setattr(engine, "local_workers", lambda *_: nullcontext(workers or InProcess()))


def do_step(name: str, *arguments: str, workers: Workers | None = None) -> int:
    """The exit code of a step that is an application of its own."""
    return step.main(Step(name), lambda *_: nullcontext(workers or InProcess()), arguments)
