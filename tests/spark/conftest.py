from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from stateferry.spark_jobs.session import local_session


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    session = local_session("tests", cores=2, spark_sql_shuffle_partitions="2")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
