from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flink.cluster import FlinkCluster


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    with FlinkCluster("2.3.0", tmp_path_factory.mktemp("flink")) as cluster:
        yield cluster
