from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from stateferry.spark_jobs.session import local_session

# Queries of tests are short. With these, no JVM compiles them at a cost that only long ones pay back.
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@pytest.fixture(scope="package", autouse=True)
def _short_lived() -> Iterator[None]:
    """Of every Spark that these tests start, in this process or another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", _SHORT_LIVED)
        yield


@pytest.fixture(scope="package")
def spark(_short_lived: None) -> Iterator[SparkSession]:
    session = local_session("tests", cores=2, spark_sql_shuffle_partitions="2")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
