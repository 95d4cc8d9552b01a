"""Rescale, as a PySpark job: puts key groups into new ranges, where the step migrate can't write into them itself.

    spark-submit spark_jobs/rescale.py --plan plan.json

| | |
|---|---|
| reads | at another max parallelism the files that migrate has sent; without a migration the source savepoint |
| one task | one new keyed state file, which is one subtask's key groups |
| a task does | reads its part of each of these files, or copies entries (`stateferry/changes/staging.py`) |
| comes back | each file's handle, size and digest; the driver makes the savepoint's `_metadata` of them |

In all other runs it has nothing to do.

The driver's part is `stateferry/steps/rescale.py`; `spark_jobs/workers.py` makes the tasks.
"""

import sys

from stateferry.spark_jobs.submitted import carry_out

if __name__ == "__main__":
    sys.exit(carry_out("rescale"))
