"""Flink's own TTL code judges what is expired, and which reads see a value."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flinkstate.ttl import MAX_LONG, MIN_LONG, StateTtlConfig, StateVisibility, UpdateType, expired, expired_array
from tests.flink.harness import FlinkHarness
from tests.flink.jars import VERSIONS

pytestmark = pytest.mark.flink
Flink = Callable[[str], FlinkHarness]

TRIPLES = 200_000
EDGES = [MIN_LONG, MIN_LONG + 1, -1, 0, 1, MAX_LONG - 1, MAX_LONG]


def random_triple(draw: random.Random) -> tuple[int, int, int]:
    timestamp, ttl, now = (
        draw.choice(EDGES) if draw.random() < 0.3 else draw.randrange(MIN_LONG, MAX_LONG + 1) for _ in range(3)
    )
    if draw.random() < 0.5:
        now = min(max(timestamp + ttl + draw.randrange(-1, 2), MIN_LONG), MAX_LONG)
    return timestamp, ttl, now


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("version", VERSIONS)
def test_expiry_is_that_of_flink(version: str, flink: Flink, tmp_path: Path) -> None:
    draw = random.Random(5)
    triples = [random_triple(draw) for _ in range(TRIPLES)]
    given, target = tmp_path / "triples", tmp_path / "answers"
    np.array(triples, dtype=">i8").tofile(given)
    flink(version).ask("ttl_expired", triples=str(given), target=str(target))
    answers = [answer == 1 for answer in target.read_bytes()]
    assert [expired(*triple) for triple in triples] == answers
    for (timestamp, ttl, now), answer in list(zip(triples, answers, strict=True))[:5_000]:
        assert expired_array(np.array([timestamp]), ttl, now).tolist() == [answer]
    assert 0.1 < np.mean(answers) < 0.9


def reads_that_see(config: StateTtlConfig, written: int, reads: list[int]) -> list[bool]:
    timestamp: int | None = written
    seen = []
    for now in reads:
        if timestamp is None:
            seen.append(False)
        elif expired(timestamp, config.time_to_live, now):
            timestamp = None
            seen.append(config.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)
        else:
            timestamp = now if config.update_type is UpdateType.ON_READ_AND_WRITE else timestamp
            seen.append(True)
    return seen


def test_settings_let_reads_see_what_flink_lets_them_see(flink: Flink) -> None:
    draw = random.Random(3)
    cases = []
    for _ in range(100):
        for update_type in UpdateType:
            for visibility in StateVisibility:
                config = StateTtlConfig(draw.randrange(1, 100), update_type, visibility)
                written = draw.randrange(1000)
                reads = sorted(written + draw.randrange(200) for _ in range(draw.randrange(1, 6)))
                cases.append((config, written, reads))
    described = [
        {
            "update": config.update_type.value,
            "visibility": config.visibility.value,
            "ttl": config.time_to_live,
            "written": written,
            "reads": reads,
        }
        for config, written, reads in cases
    ]
    answers = flink(VERSIONS[0]).ask("ttl_reads", cases=described)["results"]
    assert [reads_that_see(*case) for case in cases] == answers
