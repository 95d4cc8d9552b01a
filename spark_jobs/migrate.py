"""Migrate, as a PySpark job: writes the new savepoint, in which each map is rows.

    spark-submit spark_jobs/migrate.py --plan plan.json

| | |
|---|---|
| reads | the source savepoint; in a cut-over first the ledger's rows of the keys that the tables know |
| one task | one new keyed state file, which is one subtask's key groups |
| a task does | copies entries and converts blobs (`stateferry/changes/staging.py`) |
| comes back | each file's handle, size, digest and counts; the driver makes the savepoint's `_metadata` of them |

At another max parallelism a task reads a range of old key groups with about `chunk_bytes` of state, and writes a file
with its entries by their new key groups, of which the step rescale makes the new files.

The driver's part is `stateferry/steps/migrate.py`; `spark_jobs/workers.py` makes the tasks.
"""

import sys

from stateferry.spark_jobs.submitted import carry_out

if __name__ == "__main__":
    sys.exit(carry_out("migrate"))
