"""Commands and steps whose workers are this process, instead of Spark's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pytest

from stateferry.cli import engine, step
from stateferry.runs.record.facts import TimedFacts
from stateferry.runs.record.steps import Step
from stateferry.steps import pipeline
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import InProcess, Workers


def without_spark(patch: pytest.MonkeyPatch, workers: Workers | None = None) -> None:
    """Commands that start Spark get this process in its place."""
    patch.setattr(engine, "local_workers", lambda *_: nullcontext(workers or InProcess()))


def do_step(name: str, *arguments: str, workers: Workers | None = None) -> int:
    """The exit code of a step that is an application of its own."""
    return step.main(Step(name), lambda *_: nullcontext(workers or InProcess()), arguments)


def do_steps(names: Iterable[str], *arguments: str) -> None:
    """Does one step after the other; each of them has to succeed."""
    for name in names:
        assert do_step(name, *arguments) == 0, name


def step_done_by(
    patch: pytest.MonkeyPatch, step: Step, do: Callable[[Callable[[RunAtWork], TimedFacts], RunAtWork], TimedFacts]
) -> None:
    """Has a step done by `do`, which gets what does it otherwise."""
    specs = tuple(replace(spec, do=partial(do, spec.do)) if spec.step is step else spec for spec in pipeline.STEPS)
    patch.setattr(pipeline, "STEPS", specs)


def interrupted(*_: object) -> NoReturn:
    """Stands where a person ends the process."""
    raise KeyboardInterrupt
