"""Where Spark's Python workers come from: a process that has imported what tasks need, so that none of the workers
forked from it has to, and that keeps short what workers do between tasks."""

import gc
from zipimport import zipimporter

from pyspark.daemon import manager

from spark_jobs import savepoint_source, tasks
from stateferry.migration import inventory, staging
from stateferry.runs import file_digest
from stateferry.tables import migrate as tables
from stateferry.validation import checks

PRELOADED = (savepoint_source, tasks, checks, file_digest, inventory, staging, tables)


def _keep_what_is_known_of_zips(_: zipimporter) -> None:
    """Spark's own archives, on every worker's path, don't change; to list their content again takes 80 ms a task."""


if __name__ == "__main__":
    zipimporter.invalidate_caches = _keep_what_is_known_of_zips  # type: ignore[assignment, method-assign]
    # Workers look for garbage after each task: not among what was there before them.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
