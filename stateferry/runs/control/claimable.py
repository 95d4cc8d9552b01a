"""A second set of links of a published native savepoint, which the new job may claim.

A job that doesn't claim its savepoint uploads all state with its first checkpoint. One that claims it goes on using
the savepoint's shared files, and deletes what it needs no longer. So it gets a folder of its own beside the target,
with hard links to the same files: what Flink deletes there, the target still has. On S3 these are copies
(`stateferry/steps/claimable_copies.py`), whose tables have their names by their digests.

Flink writes the addresses of shared files into later checkpoints as it has read them. Relative ones would be wrong
there, so they are absolute. Only RocksDB's tables are shared: all other files are written anew for each checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import filterfalse

from flinkstate.errors import RefusedError, StateferryError
from flinkstate.files.storage import Location
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import AbsoluteFile, Metadata, NamedFile, NativeHandle, RelativeFile
from flinkstate.metadata.parse_metadata import parse_metadata
from stateferry.basics.private_files import usual_files
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.record.runs import Run
from stateferry.runs.report.report import FileDigest, Report

# As `plugins/flink/jobs.py` has it, which knows nothing of this package.
CLAIMABLE = "-claimable"
_TABLE = ".sst"
_OWN: Mapping[str, str] = {}


def offer_links(run: Run) -> str:
    """Makes the links of a published run; says why not if they can't be, or nothing."""
    target, folder = Location.of(run.plan.target), claimable_folder(run)

    def link(metadata: Metadata) -> None:
        with usual_files():
            folder.make_folder()
        for name in files_beside(metadata):
            if not target.child(name).link_to(folder.child(name)):
                raise RefusedError(f"{folder.shown} can't have hard links to the files in {target.shown}")

    return offer(run, link)


def offer(run: Run, fill: Callable[[Metadata], None]) -> str:
    """Fills the folder with the files of a published run, and offers it; says why not if that can't be, or nothing.

    The job stands still, and can start from the target as well. So this raises no error of the disk.
    """
    folder = claimable_folder(run)
    try:
        metadata = published_metadata(run)
        content = claimable_content(run, metadata)
        found = folder.child(METADATA).read_if_there()
        if found is not None:
            return "" if found == content else f"{folder.shown} is another savepoint"
        fill(metadata)
        TargetMetadata(run).publish(folder, content)
    except (OSError, StateferryError) as error:
        return f"{error}"
    return ""


def files_beside(metadata: Metadata) -> list[str]:
    """The names of the files that a savepoint has beside its `_metadata`."""
    subtasks = (subtask for operator in metadata.operators for subtask in operator.subtasks)
    streams = (stream for subtask in subtasks for stream in subtask.streams())
    return sorted({stream.path for stream in streams if isinstance(stream, RelativeFile)})


def offered_claimable(run: Run) -> Location | None:
    """The folder that the new job may claim, if it is complete; None as well once a job has claimed and deleted it."""
    folder = claimable_folder(run)
    found = folder.child(METADATA).read_if_there() if run.plan.claimable else None
    if found is None or found != claimable_content(run, published_metadata(run)):
        return None
    return folder


def claimable_content(run: Run, metadata: Metadata) -> bytes:
    """The `_metadata` of what the new job may claim of a published savepoint, of which `metadata` is."""
    folder = claimable_folder(run)
    names = copies_of_tables(run, metadata, Location.of(run.plan.target)) if folder.is_on_s3 else {}
    return build_metadata(claimable_metadata(metadata, folder, {table: name for name, (table, _) in names.items()}))


def copies_of_tables(run: Run, metadata: Metadata, folder: Location) -> dict[str, tuple[str, FileDigest]]:
    """The tables of the savepoint in the folder, by the names of their copies, with the digests that they must have."""
    found, files = {}, Report.read(run.report).staged.files
    subtasks = (subtask for operator in metadata.operators for subtask in operator.subtasks)
    for handle in (subtask.native_keyed for subtask in subtasks if subtask.native_keyed is not None):
        for name in (file.stream.name for file in handle.files if is_table(file)):
            known = files[name] if name in files else files[folder.child(name).uri]
            found[f"{known.digest}-{known.size}{_TABLE}"] = name, known
    return found


def is_table(file: NamedFile) -> bool:
    """Whether the file is a table of RocksDB's in the savepoint's folder."""
    return file.name.endswith(_TABLE) and isinstance(file.stream, RelativeFile)


def claimable_metadata(metadata: Metadata, folder: Location, names: Mapping[str, str] = _OWN) -> Metadata:
    """The metadata of a native savepoint for links in this folder: its tables are shared, with absolute addresses.

    `names` are those that tables have there, if they are others.
    """

    def shared(file: NamedFile) -> NamedFile:
        name = names.get(file.stream.name, file.stream.name)
        return replace(file, stream=AbsoluteFile(folder.child(name).uri, file.stream.size))

    def claimable(handle: NativeHandle) -> NativeHandle:
        tables, others = filter(is_table, handle.private), filterfalse(is_table, handle.private)
        return replace(handle, shared=tuple(map(shared, tables)), private=tuple(others))

    operators = [
        replace(
            operator,
            subtasks=tuple(
                subtask if subtask.native_keyed is None else subtask.with_keyed(claimable(subtask.native_keyed))
                for subtask in operator.subtasks
            ),
        )
        for operator in metadata.operators
    ]
    return replace(metadata, operators=tuple(operators))


def claimable_folder(run: Run) -> Location:
    """Where the new job finds what it may claim."""
    target = Location.of(run.plan.target)
    return target.parent.child(f"{target.name}{CLAIMABLE}")


def published_metadata(run: Run) -> Metadata:
    """The metadata of what the run has published."""
    place = Location.of(run.plan.target).child(METADATA)
    return parse_metadata(place.read(), place.shown)
