"""All steps of a run, as one PySpark job, which is started once: Airflow's tasks ask it for one step after the other.

    spark-submit spark_jobs/steps.py --run FOLDER --application NAME

Each step reads and writes what its own job does (`snapshot.py`, `migrate.py`, `rescale.py`, `validate.py`,
`cut_over.py`, `tables.py`), and its tasks are the same. `stateferry/cli/shared_steps.py` says how it is asked.
"""

import sys

from stateferry.spark_jobs.submitted import carry_out_steps

if __name__ == "__main__":
    sys.exit(carry_out_steps())
