"""Runs on a store in trouble: each ends as an undisturbed one, or fails clearly and does so when it is given again.

How many, and by which seed: as `area.py` says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED, REJECTED
from tests.chaos.area import SEED, TRIES_IN_TROUBLE, Area, content_of, demo_savepoint, new_name, runs
from tests.chaos.trouble import Trouble
from tests.chaos.troubled_store import TroubledStore
from tests.support.s3_server import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Undisturbed:
    """A source, and what a run makes of it if nothing goes wrong."""

    source: str
    content: dict[str, bytes]
    requests: int
    result: dict[str, Any]


def area_of(s3: S3Server, source: str, folder: Path) -> Area:
    return Area(s3.uri(new_name()), source, f"sqlite:///{folder}/catalog.db")


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        server.set_up(patch)
        yield server


@pytest.fixture(scope="module")
def undisturbed(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    source = demo_savepoint(s3_server.uri("source"))
    area = area_of(s3_server, source, tmp_path_factory.mktemp("undisturbed"))
    with TroubledStore(s3_server.port) as store:
        done = area.run(AWS_ENDPOINT_URL=store.url)
        assert done.code == 0, done.said
        return Undisturbed(source, content_of(source), store.requests, area.result())


@pytest.mark.full
@pytest.mark.parametrize("number", runs(0.5))
def test_a_run_ends_as_if_undisturbed(
    number: int, s3_server: S3Server, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    area = area_of(s3_server, undisturbed.source, tmp_path)
    trouble = Trouble(f"{SEED}-{number}", undisturbed.requests)
    sys.stdout.write(f"{trouble}\n")
    with TroubledStore(s3_server.port, trouble) as store:
        for _ in range(TRIES_IN_TROUBLE):
            done = area.run(AWS_ENDPOINT_URL=store.url)
            if done.code == 0:
                break
            # What is read wrong for a wrong length may look like damage.
            done.check_clear(*((DAMAGED_OR_REFUSED, REJECTED) if trouble.lies else ()))
            area.check_nothing_half(undisturbed.result)
        else:
            trouble.lift()
            done = area.run(AWS_ENDPOINT_URL=store.url)
        if done.code != 0 and trouble.lies:
            # A file that was read too short looks damaged: the run is over, and another one is begun.
            done.check_clear(DAMAGED_OR_REFUSED, REJECTED)
            assert area.published() is None
            area = area_of(s3_server, undisturbed.source, tmp_path)
            done = area.run(AWS_ENDPOINT_URL=store.url)
        assert done.code == 0, done.said + "\n".join(store.done[-20:])
    assert area.result() == undisturbed.result
    assert content_of(undisturbed.source) == undisturbed.content
