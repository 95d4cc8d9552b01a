"""Where Spark's Python workers come from: a process that has imported what tasks need, so that none of the workers
forked from it has to."""

from pyspark.daemon import manager

from spark_jobs import exchange, savepoint_source, tasks
from stateferry.migration import inventory, staging
from stateferry.runs import file_digest
from stateferry.tables import migrate as tables
from stateferry.validation import checks

PRELOADED = (exchange, savepoint_source, tasks, checks, file_digest, inventory, staging, tables)

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
