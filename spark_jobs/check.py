"""Check, as a job of its own: says what a savepoint holds, and whether a plan fits it. It writes one file, its answer.

    spark-submit spark_jobs/check.py --savepoint /savepoints/savepoint-7e2cc3-90b4e0a58b48 --into answer.json

| | |
|---|---|
| reads | all keyed state of the savepoint, once, in this process |
| starts | no Spark session: spark-submit brings the environment, which has the compiled kernels |
| writes | the answer, as `stateferry inspect --json` gives it, with what is wrong in the plan |
"""

import sys

from stateferry.cli.commands.look_into import main

if __name__ == "__main__":
    sys.exit(main())
