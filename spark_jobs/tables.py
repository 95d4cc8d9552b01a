"""Tables, as a PySpark job: brings the Iceberg tables to the savepoint's content, and compares them with the new one.

    spark-submit spark_jobs/tables.py --plan plan.json

| | |
|---|---|
| reads | the source; then the rows that were written |
| one task | a chunk of the tables |
| a task does | writes the rows of new and changed keys (`stateferry/tables/chunk.py`), sums up entries (`account.py`) |
| comes back | the files that were written, counts and checksums; the driver commits and compares them |

A failure leaves a publication as it is, and the tables pending. The driver's part is
`stateferry/steps/tables.py`; `spark_jobs/workers.py` makes the tasks.
"""

import sys

from stateferry.spark_jobs.submitted import carry_out

if __name__ == "__main__":
    sys.exit(carry_out("tables"))
