"""Validate, as a PySpark job: compares the staged savepoint with the source.

    spark-submit spark_jobs/validate.py --plan plan.json

| | |
|---|---|
| reads | the source and the staged savepoint, both again and from their bytes |
| one task | a range of key groups of either savepoint, or an operator's other files |
| a task does | counts, checks and sums up entries (`stateferry/proof/`) |
| comes back | counts and checksums; the driver compares them and writes `report.json` |

The driver's part is `stateferry/steps/validate.py`; `spark_jobs/workers.py` makes the tasks.
"""

import sys

from stateferry.spark_jobs.submitted import carry_out

if __name__ == "__main__":
    sys.exit(carry_out("validate"))
