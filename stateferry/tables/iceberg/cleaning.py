"""Finds what can be removed from a table: branches of old runs, snapshots, and files that no snapshot names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from flinkstate.files.storage import Location
from stateferry.tables.iceberg.commits import MAIN, TableHome, branch_of, is_marked
from stateferry.tables.iceberg.schemas import StateTables

# Files with other names are never removed.
_OWN = (".parquet", ".avro", ".metadata.json")


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file in a table's folder."""

    location: Location
    size: int


def tables_of_job(home: TableHome, job: str) -> Iterator[Table]:
    """Yields every table of the job."""
    catalog = home.catalog()
    of_job = StateTables(job, "", "").namespace[:1]
    try:
        for operator in catalog.list_namespaces(of_job):
            for state in catalog.list_namespaces(operator):
                for identifier in catalog.list_tables(state):
                    yield catalog.load_table(identifier)
    except NoSuchNamespaceError:
        return


@dataclass(slots=True)
class TableCleaning:
    """Finds and removes what is old in one table.

    Only what is older than `before` (milliseconds) is removed. Snapshots with the ids in `protected` stay at any age,
    and so do the branches of `runs`.
    """

    table: Table
    runs: Collection[str]
    protected: Collection[int]
    before: int
    _manifests: dict[str, set[str]] = field(default_factory=dict)

    def branches(self) -> list[str]:
        """Returns the names of the branches to remove."""
        staying = {MAIN, *map(branch_of, self.runs)}
        return sorted(
            name
            for name, ref in self.table.refs().items()
            if name.startswith(branch_of("")) and name not in staying and self._is_old(ref.snapshot_id)
        )

    def _is_old(self, snapshot_id: int) -> bool:
        snapshot = self.table.snapshot_by_id(snapshot_id)
        return snapshot is None or snapshot.timestamp_ms <= self.before

    def snapshots(self) -> list[int]:
        """Returns the ids of the snapshots to remove."""
        going = set(self.branches())
        heads = {ref.snapshot_id for name, ref in self.table.refs().items() if name not in going}
        kept = heads | set(self.protected) | self._down_to_runs(heads)
        return [
            snapshot.snapshot_id
            for snapshot in self.table.snapshots()
            if snapshot.snapshot_id not in kept and snapshot.timestamp_ms <= self.before
        ]

    def _down_to_runs(self, heads: Collection[int]) -> set[int]:
        """Returns the snapshots from each head down to the newest that names its run: later runs look for it so."""
        found = set()
        for head in heads:
            for snapshot in ancestors_of(self.table.snapshot_by_id(head), self.table.metadata):
                found.add(snapshot.snapshot_id)
                if is_marked(snapshot):
                    break
        return found

    def files(self) -> list[TableFile]:
        """Returns the files to remove: no snapshot that stays names them."""
        going = set(self.snapshots())
        # A REST catalog writes the tables' metadata itself.
        own = _OWN if isinstance(self.table.catalog, SqlCatalog) else _OWN[:-1]
        named = {Location.of(name).path for name in self._named(going)}
        return [
            TableFile(file.location, file.size)
            for file in Location.of(self.table.location()).listed(recursive=True)
            if file.location.name.endswith(own) and file.location.path not in named and file.modified_at <= self.before
        ]

    def _named(self, going: Collection[int]) -> Iterator[str]:
        metadata = self.table.metadata
        yield self.table.metadata_location
        yield from (entry.metadata_file for entry in metadata.metadata_log)
        for snapshot in self.table.snapshots():
            if snapshot.snapshot_id not in going:
                yield from self._named_by(snapshot)

    def _named_by(self, snapshot: Snapshot) -> Iterator[str]:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(self.table.io):
            path = manifest.manifest_path
            yield path
            if path not in self._manifests:
                entries = manifest.fetch_manifest_entry(self.table.io, discard_deleted=True)
                self._manifests[path] = {entry.data_file.file_path for entry in entries}
            yield from self._manifests[path]

    def remove(self) -> None:
        """Removes these branches, snapshots and files; references go first, so that none names a file that is gone."""
        branches, snapshots, files = self.branches(), self.snapshots(), self.files()
        if branches:
            with self.table.manage_snapshots() as manage:
                for branch in branches:
                    manage.remove_branch(branch)
        if snapshots:
            self.table.maintenance.expire_snapshots().by_ids(snapshots).commit()
        for file in files:
            file.location.remove()
