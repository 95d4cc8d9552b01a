"""Lists the files that a snapshot of a table is made of, from its manifests."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table

from flinkstate.files.storage import Location, side_by_side

# A row that another writer has added may have no chunk.
NO_CHUNK = -1


def files_by_chunk(table: Table, snapshot_id: int) -> dict[int, tuple[DataFile, ...]]:
    """Returns the data files of a snapshot by chunk, whatever `has_deletes` says of their rows.

    Those whose rows have no chunk are under `NO_CHUNK`.
    """
    found: dict[int, list[DataFile]] = {}
    for entry in _entries(table, snapshot_id, ManifestContent.DATA):
        chunk = entry.data_file.partition[0]
        found.setdefault(NO_CHUNK if chunk is None else int(chunk), []).append(entry.data_file)
    return {chunk: tuple(sorted(files, key=lambda file: file.file_path)) for chunk, files in found.items()}


def has_deletes(table: Table, snapshot_id: int) -> bool:
    """Whether files of deletes, as engines write them merge-on-read, may take rows away from the data files.

    Those that are older than all data files don't: they are left over from files that were replaced.
    """
    deletes = [_number(entry) for entry in _entries(table, snapshot_id, ManifestContent.DELETES)]
    if not deletes:
        return False
    data = [_number(entry) for entry in _entries(table, snapshot_id, ManifestContent.DATA)]
    return bool(data) and max(deletes) >= min(data)


def _number(entry: ManifestEntry) -> int:
    assert entry.sequence_number is not None
    return entry.sequence_number


def _entries(table: Table, snapshot_id: int, content: ManifestContent) -> Iterator[ManifestEntry]:
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None

    def live(manifest: ManifestFile) -> list[ManifestEntry]:
        return manifest.fetch_manifest_entry(table.io)

    manifests = [one for one in snapshot.manifests(table.io) if one.content == content]
    for entries in side_by_side(Location.of(table.location()), live, manifests):
        yield from entries
