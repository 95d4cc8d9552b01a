"""Rescale, as a PySpark job: makes the blobs rows, and writes the new savepoint's files in the plan's parallelism.

    spark-submit spark_jobs/rescale.py --plan plan.json

| | |
|---|---|
| reads | the source savepoint; at another max parallelism also the files that tasks send each other |
| one task | one new keyed state file, which is one subtask's key groups |
| a task does | copies entries and converts blobs (`stateferry/changes/staging.py`) |
| comes back | each file's handle, size, digest and counts; the driver makes the savepoint's `_metadata` of them |

At another max parallelism, other tasks come first. Each reads a range of old key groups with about `chunk_bytes` of
state, and writes a file with its entries by their new key groups. The task of a new file then reads its part of each of
these files.

The driver's part is `stateferry/steps/rescale.py`; `spark_jobs/workers.py` makes the tasks.
"""

import sys

from stateferry.spark_jobs.submitted import carry_out

if __name__ == "__main__":
    sys.exit(carry_out("rescale"))
