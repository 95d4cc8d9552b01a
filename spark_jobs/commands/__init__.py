"""The pipeline's subcommands of `stateferry`; each imports Spark only when it runs."""

from spark_jobs.commands import rollback, run, runs, status, verify

COMMANDS = (run, verify, rollback, status, runs)
