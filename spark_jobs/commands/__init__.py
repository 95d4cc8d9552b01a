"""The pipeline's subcommands of `stateferry`; each imports Spark only when it runs."""

from spark_jobs.commands import clean, rollback, run, runs, status, verify

COMMANDS = (run, verify, rollback, status, runs, clean)
