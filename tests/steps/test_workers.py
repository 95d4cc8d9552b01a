"""The port between the steps and their workers: what this process does in place of Spark, and where Spark is found."""

from __future__ import annotations

import pkgutil
import time

import pytest

from flinkstate.errors import DamagedError
from stateferry.cli import engine
from stateferry.spark_jobs.engine import local_workers
from stateferry.steps.workers import InProcess


def _add(piece: list[int]) -> list[int]:
    piece.append(len(piece))
    return piece


def test_pieces_and_facts_share_nothing() -> None:
    piece: list[int] = []
    facts = InProcess().do("add", [piece, piece, [7]], _add)
    assert facts == [[0], [0], [7, 1]]
    assert piece == []
    assert facts[0] is not facts[1]


def test_an_error_is_the_one_that_was_raised() -> None:
    def damaged(_: int) -> int:
        raise DamagedError("an end", "none", file="f", key_group=3)

    with pytest.raises(DamagedError, match="f, key group 3: expected an end, found none"):
        InProcess().do("read", [1], damaged)


def test_a_step_begins_now() -> None:
    before = time.monotonic()
    assert before <= InProcess().begin("read") <= time.monotonic()


def test_the_engine_is_there_under_its_name() -> None:
    assert pkgutil.resolve_name(engine._LOCAL_WORKERS) is local_workers
