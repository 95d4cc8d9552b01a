"""Tables, as a PySpark job: after a publication, brings the tables to what was published, and compares them with it.

    spark-submit spark_jobs/tables.py --plan plan.json

| | |
|---|---|
| reads | the source; then the rows that were written |
| one task | a chunk of the tables |
| a task does | writes the rows of new and changed keys (`stateferry/tables/chunk.py`), sums up entries (`account.py`) |
| comes back | the files that were written, counts and checksums; the driver commits and compares them |

A failure leaves the publication as it is, and the tables pending. The driver's part is `stateferry/steps/migrate.py`
and `stateferry/steps/tables.py`; `spark_jobs/workers.py` makes the tasks.
"""

import sys

from stateferry.spark_jobs.submitted import carry_out

if __name__ == "__main__":
    sys.exit(carry_out("tables"))
