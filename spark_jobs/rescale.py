"""Rescale: build the new savepoint from the source's bytes, its files along the new subtasks' ranges."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark import SparkContext

from spark_jobs.staging_job import stage_files
from spark_jobs.watching import Watch
from stateferry.migration.staging import StagedFile, add_counts, assemble
from stateferry.runs.plan_check import ResolvedPlan
from stateferry.savepoint.metadata import Metadata
from stateferry.savepoint.storage import Location


@dataclass(frozen=True, slots=True)
class Staged:
    """A savepoint without its `_metadata`: all its files are on disk."""

    metadata: Metadata
    files: Sequence[StagedFile]

    @property
    def counts(self) -> dict[str, Counter[str]]:
        return add_counts(file.counts for file in self.files)


def run(
    spark: SparkContext, resolved: ResolvedPlan, folder: str, exchange: Location, watch: Watch = lambda _: None
) -> Staged:
    """`exchange` is a folder for what goes from key group to key group, as long as it is on its way."""
    rewrites = resolved.rewrites()
    files = stage_files(spark, rewrites, folder, exchange, resolved.plan.chunk_bytes, watch)
    return Staged(assemble(resolved.source.metadata, rewrites, files, folder), files)


def main(argv: Sequence[str] | None = None) -> int:
    from spark_jobs import step

    return step.main("rescale", argv)


if __name__ == "__main__":
    sys.exit(main())
