"""Snapshot, as a PySpark job: counts what the savepoint holds and refuses what a later step could not handle.

    spark-submit spark_jobs/snapshot.py --plan plan.json

| | |
|---|---|
| reads | all of the source savepoint, once, each file from its beginning to its end |
| one task | a range of key groups with about `chunk_bytes` of state, or an operator's other files |
| a task does | walks the entries: counts, sizes, ages, digests of the bytes (`stateferry/inventory/inventory.py`) |
| comes back | one `Inventory` for each task; the driver adds them up and writes `steps/snapshot.json` |

The driver's part is `stateferry/steps/snapshot.py`; `spark_jobs/workers.py` makes the tasks.
"""

import sys

from stateferry.spark_jobs.submitted import carry_out

if __name__ == "__main__":
    sys.exit(carry_out("snapshot"))
