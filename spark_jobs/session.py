"""A Spark session on this machine, set up as Stateferry's jobs and tests need it."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from spark_jobs import savepoint_source

LOOPBACK = "127.0.0.1"

SETTINGS = {
    # Savepoints know instants and local times; a session's own zone must not come between.
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # Without it no filter reaches the data source, and every query reads the whole state.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}


def local_session(application: str, *, cores: int | str = "*", **settings: str) -> SparkSession:
    """A local session with the data source in it; `settings` have underscores for dots: `spark_driver_memory="4g"`."""
    # Workers are started by name; without these they may be another Python, without this library.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # The executor inside the driver listens too, and looks nowhere else.
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    builder = SparkSession.builder.master(f"local[{cores}]").appName(application)
    given = {name.replace("_", "."): value for name, value in settings.items()}
    for name, value in {**SETTINGS, **given}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    savepoint_source.register(spark)
    return spark
