"""Validate, as a PySpark job: compares the staged savepoint with the source; in a rehearsal also with the tables.

    spark-submit spark_jobs/validate.py --plan plan.json

| | |
|---|---|
| reads | the source and the staged savepoint, both again and from their bytes; in a rehearsal the rows of the tables |
| one task | a range of key groups of either savepoint, an operator's other files, or a chunk of the tables |
| a task does | counts, checks and sums up entries (`stateferry/proof/`, `stateferry/tables/account.py`) |
| comes back | counts and checksums; the driver compares them and writes `report.json` |

The driver's part is `stateferry/steps/validate.py`; `spark_jobs/workers.py` makes the tasks.
"""

import sys

from stateferry.spark_jobs.submitted import carry_out

if __name__ == "__main__":
    sys.exit(carry_out("validate"))
