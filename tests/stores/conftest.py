"""One S3 server for these tests, with the environment by which everything finds it, and an area of it for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.area import Area
from tests.support.in_process import without_spark
from tests.support.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    s3_server.set_up(monkeypatch)
    return s3_server


@pytest.fixture
def area(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Area]:
    area = Area(s3.uri(uuid.uuid4().hex), tmp_path)
    monkeypatch.setenv("STATEFERRY_HOME", area.at("home"))
    monkeypatch.setenv("STATEFERRY_CATALOG", area.catalog)
    # A path that was taken for a local one would be made here.
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    without_spark(monkeypatch)
    yield area
    assert list(here.iterdir()) == []
