"""Flink's own repartitioner judges how operator state is dealt out."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from flinkstate.metadata.operator_state import DistributionMode, OperatorStateShare, StatePartitions, redistribute
from tests.flink.harness import FlinkHarness
from tests.flink.jars import VERSIONS

pytestmark = pytest.mark.flink

CASES = 5_000
Share = OperatorStateShare[str]


def random_subtasks(draw: random.Random) -> list[list[Share]]:
    """Few states as a rule, now and then more than a small hash map holds; states and items missing here and there."""
    count = draw.randrange(10, 40) if draw.random() < 0.1 else draw.randrange(6)
    modes = {f"state-{draw.randrange(10**6)}": draw.choice(list(DistributionMode)) for _ in range(count)}
    subtasks: list[list[Share]] = []
    for subtask in range(draw.randrange(1, 8)):
        states = {
            name: StatePartitions(mode, tuple(range(subtask, subtask + draw.randrange(6))))
            for name, mode in modes.items()
            if draw.random() < 0.8
        }
        subtasks.append([OperatorStateShare(f"file-{subtask}", states)] if states and draw.random() < 0.9 else [])
    return subtasks


def to_json(share: Share) -> dict[str, Any]:
    states = {name: {"mode": part.mode.name, "offsets": list(part.offsets)} for name, part in share.states.items()}
    return {"handle": share.handle, "states": states}


def by_handle(shares: list[dict[str, Any]]) -> dict[str, Any]:
    """Flink hands out a subtask's handles in no order."""
    assert len({share["handle"] for share in shares}) == len(shares)
    return {share["handle"]: share["states"] for share in shares}


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("version", VERSIONS)
def test_operator_state_is_dealt_out_as_flink_does(version: str, flink: Callable[[str], FlinkHarness]) -> None:
    draw = random.Random(11)
    cases = [(random_subtasks(draw), draw.randrange(1, 10)) for _ in range(CASES)]
    assert any(len(subtasks) == parallelism for subtasks, parallelism in cases)
    described = [
        {"subtasks": [[to_json(share) for share in subtask] for subtask in subtasks], "parallelism": parallelism}
        for subtasks, parallelism in cases
    ]
    answers = flink(version).ask("redistribute", cases=described)["results"]
    for (subtasks, parallelism), answer in zip(cases, answers, strict=True):
        found = [[to_json(share) for share in subtask] for subtask in redistribute(subtasks, parallelism)]
        assert list(map(by_handle, found)) == list(map(by_handle, answer))
