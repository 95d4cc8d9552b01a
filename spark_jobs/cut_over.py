"""Cut over, as a PySpark job: publishes the savepoint that was validated.

    spark-submit spark_jobs/cut_over.py --plan plan.json

| | |
|---|---|
| reads | all files of the staged savepoint |
| one task | one file |
| a task does | takes the file's digest (`stateferry/runs/report/file_digest.py`) |
| comes back | size and digest of each file; if they are the report's, the driver publishes |

The driver's part is `stateferry/steps/cut_over.py`; `spark_jobs/workers.py` makes the tasks.
"""

import sys

from stateferry.spark_jobs.submitted import carry_out

if __name__ == "__main__":
    sys.exit(carry_out("cut_over"))
