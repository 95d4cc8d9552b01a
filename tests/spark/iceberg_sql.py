"""A stock Spark with Iceberg in it, in a process of its own: `python -m tests.spark.iceberg_sql WORK ANSWERS`.

WORK is a file with JSON: `settings` of the session and `queries`. ANSWERS gets the rows of each, as JSON too.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
_HERE = {
    "spark.master": "local[2]",
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def main(work: str, answers: str) -> None:
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    asked = json.loads(Path(work).read_text())
    builder = SparkSession.builder.appName("queries")
    for name, value in (_HERE | asked["settings"]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        found = [[row.asDict() for row in spark.sql(query).collect()] for query in asked["queries"]]
        Path(answers).write_text(json.dumps(found, default=str))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
