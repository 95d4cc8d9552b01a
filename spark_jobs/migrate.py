"""Migrate, as a PySpark job: brings the Iceberg tables of the state to the savepoint's content.

    spark-submit spark_jobs/migrate.py --plan plan.json

| | |
|---|---|
| reads | the migrated states of the source, and the ledger's rows of the keys that the tables know |
| one task | a chunk: neighbouring key groups, the same ones in every run of the job |
| a task does | finds new and changed keys, writes their rows to Parquet files (`stateferry/tables/chunk.py`) |
| comes back | paths and counts of each task's files; the driver commits all of them at once, on the run's branch |

The driver's part is `stateferry/steps/migrate.py`; `spark_jobs/workers.py` makes the tasks.
"""

import sys

from stateferry.spark_jobs.submitted import carry_out

if __name__ == "__main__":
    sys.exit(carry_out("migrate"))
