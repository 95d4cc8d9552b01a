"""As much of Spark as the pipeline's steps use, in this process: tasks are done one after the other, as pickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from spark_jobs import cut_over, migrate, session, snapshot, staging_job, validate


class LocalSpark:
    """What steps ask of a session beside `run_tasks`."""

    defaultParallelism = 2  # noqa: N815 Spark's own name


def _run_tasks(_: object, __: str, work: Sequence[Any], do: Callable[[Any], Any], *___: object, **____: object) -> Any:
    return [_sent(do(_sent(one))) for one in work]


def _sent(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


def without_spark(patch: pytest.MonkeyPatch) -> None:
    """Commands that start Spark get this in its place."""
    patch.setattr(session, "session", lambda *_: nullcontext(LocalSpark()))
    for step in (snapshot, migrate, staging_job, validate, cut_over):
        patch.setattr(step, "run_tasks", _run_tasks)
