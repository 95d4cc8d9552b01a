"""Catalogs whose commits say in our errors that another writer was first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from flinkstate.errors import TransientError


class LostRaceError(TransientError):
    """Another writer has changed the table between reading it and the commit."""


@contextlib.contextmanager
def racing(table: Table) -> Iterator[None]:
    """Raises our error for a commit that came too late.

    pyiceberg, which doesn't know it, then doesn't repeat the commit: it would make the new branch from nothing.
    """
    try:
        yield
    except (CommitFailedException, CommitStateUnknownException) as error:
        name = ".".join(table.name())
        raise LostRaceError(f"another writer has changed table {name} meanwhile: try again ({error})") from error


class OwnSqlCatalog(SqlCatalog):
    """pyiceberg's own, with our errors."""

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        with racing(table):
            made: CommitTableResponse = super().commit_table(table, requirements, updates)
            return made
