"""Commits of a run to Iceberg tables: creates tables, writes the run's branch in one transaction, moves `main`.

The summary of every snapshot names its run, checkpoint and layout. So a commit that is repeated is recognized, and
`main` alone tells what it holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import cast

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.transforms import IdentityTransform
from sqlalchemy import Engine, inspect, make_url
from sqlalchemy.exc import DBAPIError

from flinkstate.errors import StateferryError, TransientError
from flinkstate.files.storage import Location, side_by_side
from stateferry.basics import databases
from stateferry.basics.catalog_address import to_connect
from stateferry.tables.iceberg.columns import leave_columns, show_columns_of, write_with_columns
from stateferry.tables.iceberg.races import LostRaceError, OwnSqlCatalog
from stateferry.tables.iceberg.rest import OwnRestCatalog, opened
from stateferry.tables.iceberg.schemas import BOUNDED, CHUNK
from stateferry.tables.iceberg.types import iceberg_schema

CATALOG = "stateferry"
MAIN = "main"
COLUMNS_CHANGED = "the tables' columns changed"
_REMOTE_IO = "stateferry.tables.iceberg.remote_io.RemoteIO"

_RUN_ID, _RUN, _CHECKPOINT, _LAYOUT = (f"stateferry.{name}" for name in ("run-id", "run", "checkpoint-id", "layout"))
_TELLS_FERRIED = "stateferry.tells-ferried"
_METRICS = "write.metadata.metrics"
_PROPERTIES = {
    f"{_METRICS}.default": "none",
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_FIRST_PARTITION_FIELD = 1000
_TRIES = 3
_TABLES_OF_CATALOG = (IcebergTables.__tablename__, IcebergNamespaceProperties.__tablename__)


class TableConflictError(StateferryError):
    """The tables are not as they were when the run was planned."""


@dataclass(frozen=True, slots=True)
class TableHome:
    """Where tables are kept: the URL of the catalog's database, as in SQLAlchemy, and the folder of their files.

    With `rest`, the address of an Iceberg REST catalog, that has the tables in place of the database.
    """

    catalog_uri: str
    warehouse: str
    rest: str | None = None

    def catalog(self) -> Catalog:
        """Opens the catalog."""
        return self.sql_catalog() if self.rest is None else self.rest_catalog()

    def rest_catalog(self) -> OwnRestCatalog:
        """Opens the REST catalog; its tables have folders of their own beside those of the SQL catalog."""
        assert self.rest is not None
        return opened(CATALOG, self.rest, self._files)

    def sql_catalog(self) -> OwnSqlCatalog:
        """Opens the catalog in the database."""
        with databases.asking(self.catalog_uri):
            # From this version on the catalog tells views from tables.
            properties = {**self._properties, "schema_version": "v1"}
            for _ in _TABLES_OF_CATALOG:
                # Of several that make the catalog's tables at once, some fail; then one table more is there.
                with contextlib.suppress(DBAPIError):
                    catalog = OwnSqlCatalog(CATALOG, **properties)
                    break
            else:
                catalog = OwnSqlCatalog(CATALOG, **properties)
        databases.tell(catalog.engine)
        return catalog

    def catalog_if_there(self) -> Catalog | None:
        """Opens the catalog to read it, without creating anything; None if it has never had a table."""
        if self.rest is not None:
            return self.rest_catalog()
        with databases.asking(self.catalog_uri):
            catalog = OwnSqlCatalog(CATALOG, **self._properties, schema_version="v1", init_catalog_tables="false")
            there = all(map(inspect(catalog.engine).has_table, _TABLES_OF_CATALOG))
        databases.tell(catalog.engine)
        return catalog if there else None

    @contextlib.contextmanager
    def at_once(self) -> Iterator[Catalog]:
        """Yields a catalog whose commits become visible together at the end, or not at all if it fails."""
        if self.rest is None:
            with self.sql_at_once() as catalog:
                yield catalog
        else:
            rest = self.rest_catalog()
            with rest.at_once():
                yield rest

    @contextlib.contextmanager
    def sql_at_once(self) -> Iterator[OwnSqlCatalog]:
        """As `at_once`, in the database."""
        catalog = self.sql_catalog()
        with catalog.engine.begin() as connection:
            # Sessions of the catalog join the transaction of this connection.
            catalog.engine = cast(Engine, connection)
            yield catalog

    @property
    def _properties(self) -> dict[str, str]:
        url = databases.noticing_silence(make_url(to_connect(self.catalog_uri)))
        address = url.render_as_string(hide_password=False)
        return {"uri": address, "warehouse": self.folder, **self._files}

    @property
    def _files(self) -> dict[str, str]:
        return {} if Location.of(self.warehouse).is_local else {PY_IO_IMPL: _REMOTE_IO}

    @property
    def folder(self) -> str:
        """The folder of the files as a URI."""
        location = Location.of(self.warehouse)
        folder = f"file://{location.path}" if location.is_local else location.shown
        # No job has this name. In one folder, cleaning the tables of one catalog would remove files of the other's.
        return folder if self.rest is None else f"{folder}/rest.catalog"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What must be equal for one night to follow another.

    `chunks` are the first key groups of the chunks. `columns` is a hash of the columns of both tables and their types.
    `drops_nulls` says that null values are left out which a state without time to live could hold.
    """

    max_parallelism: int
    ttl: bool
    serializers: str
    chunks: tuple[int, ...]
    columns: str = ""
    drops_nulls: bool = False

    def difference(self, other: TableLayout) -> str | None:
        """Returns why a run with the other layout can't follow this one, or None if it can."""
        if self.max_parallelism != other.max_parallelism:
            return f"max parallelism changed from {self.max_parallelism} to {other.max_parallelism}"
        if self.ttl != other.ttl:
            return f"time to live was {'added' if other.ttl else 'taken away'}"
        if self.serializers != other.serializers:
            return "the serializers changed"
        if self.drops_nulls != other.drops_nulls:
            return f"null values are {'left out' if other.drops_nulls else 'kept'} now"
        # Earlier rows would have no values in the new columns.
        return COLUMNS_CHANGED if self.columns != other.columns else None

    def to_json(self) -> str:
        """Returns the layout as JSON, for a property of the table."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of_json(cls, text: str) -> TableLayout:
        """Returns the layout that `to_json` wrote."""
        stored = json.loads(text)
        return cls(**{**stored, "chunks": tuple(stored["chunks"])})


@dataclass(frozen=True, slots=True)
class RunMark:
    """What a snapshot's summary says about its run; the runs' numbers count up.

    `tells_ferried` says that keys which the ledger calls migrated, and whose entries came from blobs, were moved by a
    lazy run. After a run that has published all keys, a savepoint with the legacy state is not of that publication.
    """

    run_id: str
    run_number: int
    checkpoint_id: int
    layout: TableLayout
    tells_ferried: bool = False


def branch_of(run_id: str) -> str:
    """Returns the name of a run's branch."""
    return f"run-{run_id}"


def ensure_table(
    catalog: Catalog, identifier: tuple[str, ...], location: str, schema: pa.Schema, noted: Mapping[str, str]
) -> Table:
    """Returns the table; creates it if it is missing, and notes these properties then."""
    for depth in range(1, len(identifier)):
        catalog.create_namespace_if_not_exists(identifier[:depth])
    if not catalog.table_exists(identifier):
        columns = iceberg_schema(schema)
        number = columns.find_field(CHUNK).field_id
        chunk = PartitionField(number, _FIRST_PARTITION_FIELD, IdentityTransform(), name=CHUNK)
        with contextlib.suppress(TableAlreadyExistsError):
            bounded = {f"{_METRICS}.column.{name}": "truncate(16)" for name in BOUNDED if name in schema.names}
            properties = {**_PROPERTIES, **bounded, **noted}
            catalog.create_table(identifier, columns, location, PartitionSpec(chunk), properties=properties)
    table = catalog.load_table(identifier)
    if table.snapshot_by_name(MAIN) is None:
        # Branches need a snapshot to start from.
        with table.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass
    return table.refresh()


def keeps_columns(table: Table, columns: Schema) -> bool:
    """Whether the newest run in `main`, if any, has written all of these columns; others may have changed them."""
    newest = newest_marked(table, table.snapshot_by_name(MAIN))
    if newest is None:
        return True
    written = None if newest.schema_id is None else table.schemas().get(newest.schema_id)
    ids = {field.field_id for field in columns.fields}
    return written is not None and ids <= {field.field_id for field in written.fields}


def is_marked(snapshot: Snapshot) -> bool:
    """Whether a run made this snapshot."""
    return snapshot.summary is not None and _RUN in snapshot.summary.additional_properties


def read_mark(table: Table, snapshot: Snapshot | None) -> RunMark | None:
    """Returns the mark of the newest run up to the snapshot."""
    found = newest_marked(table, snapshot)
    if found is None:
        return None
    assert found.summary is not None
    stored = found.summary.additional_properties
    layout = TableLayout.of_json(table.properties[f"{_LAYOUT}.{stored[_LAYOUT]}"])
    tells_ferried = stored.get(_TELLS_FERRIED) == "true"
    return RunMark(stored[_RUN_ID], int(stored[_RUN]), int(stored[_CHECKPOINT]), layout, tells_ferried)


def newest_marked(table: Table, snapshot: Snapshot | None) -> Snapshot | None:
    """Returns the newest run's snapshot up to this one. Snapshots of others, as of maintenance, have no mark."""
    return next(filter(is_marked, ancestors_of(snapshot, table.metadata)), None)


def committed(table: Table, run_id: str) -> Snapshot | None:
    """Returns the run's own snapshot, if its commit was made."""
    head = table.snapshot_by_name(branch_of(run_id))
    mark = read_mark(table, head)
    return head if mark is not None and mark.run_id == run_id else None


def commit_run(
    table: Table,
    mark: RunMark,
    base: int,
    columns: Schema,
    files: Sequence[str],
    replaced: Collection[DataFile] = (),
) -> int:
    """Adds the files on the run's branch, in place of those `replaced`, in one snapshot, and returns its id.

    The files have these `columns`; those of `main` stay. If the commit was made before, this returns the snapshot from
    then and ignores the files.
    """
    lost = 0
    while True:
        try:
            return _commit_run(table, mark, base, columns, files, replaced)
        except LostRaceError:
            # The files took long to write. The commit goes onto `base` whatever another writer has done meanwhile.
            lost += 1
            if lost == _TRIES:
                raise


def _commit_run(
    table: Table,
    mark: RunMark,
    base: int,
    columns: Schema,
    files: Sequence[str],
    replaced: Collection[DataFile],
) -> int:
    table = table.refresh()
    if (done := committed(table, mark.run_id)) is not None:
        return done.snapshot_id
    if table.snapshot_by_id(base) is None:
        gone = "another writer has removed the snapshot from which the run starts: try again"
        raise TransientError(f"table {_name(table)}: {gone}")
    branch, layout = branch_of(mark.run_id), mark.layout.to_json()
    layout_id = hashlib.sha256(layout.encode()).hexdigest()[:16]
    with table.transaction() as transaction:
        if f"{_LAYOUT}.{layout_id}" not in table.properties:
            transaction.set_properties({f"{_LAYOUT}.{layout_id}": layout})
        # If an earlier plan of the run left the branch elsewhere, it is set to `base`.
        ManageSnapshots(transaction).create_branch(base, branch).commit()
        write_with_columns(transaction, table, columns)
        update = transaction.update_snapshot(snapshot_properties=_summary(mark, layout_id), branch=branch)
        with update.overwrite() if replaced else update.fast_append() as snapshot:
            for old in replaced:
                snapshot.delete_data_file(old)
            # `table_metadata` is computed at each access.
            metadata = transaction.table_metadata
            described = partial(parquet_file_to_data_file, table.io, metadata)
            for file in side_by_side(Location.of(table.location()), described, files):
                snapshot.append_data_file(file)
        leave_columns(transaction, table)
    done = committed(table.refresh(), mark.run_id)
    if done is None:
        raise TableConflictError(f"table {_name(table)}: branch {branch} was removed while the run wrote to it")
    return done.snapshot_id


def _summary(mark: RunMark, layout_id: str) -> dict[str, str]:
    stored = {
        _RUN_ID: mark.run_id,
        _RUN: str(mark.run_number),
        _CHECKPOINT: str(mark.checkpoint_id),
        _LAYOUT: layout_id,
    }
    return {**stored, _TELLS_FERRIED: "true"} if mark.tells_ferried else stored


def advance(table: Table, run_id: str) -> bool:
    """Moves `main` forward to the run's snapshot, and gives the table its columns.

    Returns False if `main` has a newer checkpoint: then the run stays on its branch.
    """
    table = table.refresh()
    done, main = committed(table, run_id), table.snapshot_by_name(MAIN)
    if done is None:
        raise TableConflictError(f"table {_name(table)} has no snapshot of run {run_id}: do its tables step first")
    if done.snapshot_id in _line(table, main):
        return True
    if _is_of_newer(table, main, done):
        return False
    if not _follows(table, done, main):
        theirs = read_mark(table, main)
        newer = f"run {theirs.run_id}" if theirs else "another writer"
        raise TableConflictError(
            f"table {_name(table)}: {newer} has changed the branch main since run {run_id} wrote its rows; give the "
            "same command again: it writes them again, onto what main is now"
        )
    with table.transaction() as transaction:
        show_columns_of(transaction, table, done)
        ManageSnapshots(transaction).create_branch(done.snapshot_id, MAIN).commit()
    return True


def stands(table: Table, run_id: str, snapshot_id: int | None) -> bool:
    """Whether the run's commit is this snapshot, and `main` has it, may move to it, or is of a newer checkpoint."""
    done, main = committed(table, run_id), table.snapshot_by_name(MAIN)
    if done is None or done.snapshot_id != snapshot_id:
        return False
    return done.snapshot_id in _line(table, main) or _is_of_newer(table, main, done) or _follows(table, done, main)


def withdraw(table: Table, run_id: str) -> None:
    """Removes the run's branch, so that its commit can be made again from another snapshot."""
    if branch_of(run_id) in table.refs():
        with table.manage_snapshots() as snapshots:
            snapshots.remove_branch(branch_of(run_id))


def _is_of_newer(table: Table, main: Snapshot | None, done: Snapshot) -> bool:
    """Whether `main` has a newer checkpoint than the run."""
    ours, theirs = read_mark(table, done), read_mark(table, main)
    return ours is not None and theirs is not None and ours.checkpoint_id < theirs.checkpoint_id


def _follows(table: Table, done: Snapshot, main: Snapshot | None) -> bool:
    """Whether the run's snapshot was made from what `main` is."""
    return main is not None and main.snapshot_id in _line(table, done)


def _line(table: Table, snapshot: Snapshot | None) -> set[int]:
    return {found.snapshot_id for found in ancestors_of(snapshot, table.metadata)}


def _name(table: Table) -> str:
    return ".".join(table.name())
