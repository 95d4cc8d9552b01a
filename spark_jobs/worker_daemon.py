"""Where Spark's Python workers come from: a process that has imported what tasks need, so that none of the workers
forked from it has to."""

from pyspark.daemon import manager

from spark_jobs import exchange, savepoint_source, tasks
from stateferry import checks, file_digest, inventory, staging, tables

PRELOADED = (exchange, savepoint_source, tasks, checks, file_digest, inventory, staging, tables)

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
