"""An S3 server and an HDFS for these tests, and an area for each test on one of them or, in turn, on both."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.area import Area
from tests.support.hdfs_server import HdfsServer
from tests.support.in_process import without_spark
from tests.support.s3_server import S3Server


@pytest.fixture(scope="package")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="package")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    with HdfsServer(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    s3_server.set_up(monkeypatch)
    return s3_server


@pytest.fixture(params=["s3", "hdfs"])
def folder(request: pytest.FixtureRequest) -> str:
    """The URI of a folder that isn't there yet, on each kind of store."""
    server: S3Server | HdfsServer = request.getfixturevalue(request.param)
    return server.uri(uuid.uuid4().hex)


@pytest.fixture
def area(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Area]:
    area = Area(folder, tmp_path)
    monkeypatch.setenv("STATEFERRY_HOME", area.at("home"))
    monkeypatch.setenv("STATEFERRY_CATALOG", area.catalog)
    # A path that was taken for a local one would be made here.
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    without_spark(monkeypatch)
    yield area
    assert list(here.iterdir()) == []
