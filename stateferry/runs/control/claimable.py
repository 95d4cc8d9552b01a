"""A second set of links of a published native savepoint, which the new job may claim.

A job that doesn't claim its savepoint uploads all state with its first checkpoint. One that claims it goes on using
the savepoint's shared files, and deletes what it needs no longer. So it gets a folder of its own beside the target,
with hard links to the same files: what Flink deletes there, the target still has.

Flink writes the addresses of shared files into later checkpoints as it has read them. Relative ones would be wrong
there, so they are absolute. Only RocksDB's tables are shared: all other files are written anew for each checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import filterfalse

from flinkstate.errors import StateferryError
from flinkstate.files.storage import Location
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import AbsoluteFile, Metadata, NamedFile, NativeHandle, RelativeFile
from flinkstate.metadata.parse_metadata import parse_metadata
from stateferry.basics.private_files import usual_files
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.record.runs import Run

# As `plugins/flink/jobs.py` has it, which knows nothing of this package.
CLAIMABLE = "-claimable"
_TABLE = ".sst"


def offer_claimable(run: Run) -> str:
    """Makes the links of a published run; says why not if they can't be, or nothing.

    The job stands still, and can start from the target as well. So this raises no error of the disk.
    """
    target, folder = Location.of(run.plan.target), _folder(run)
    try:
        metadata = _published(run)
        content = build_metadata(claimable_metadata(metadata, folder))
        found = folder.child(METADATA).read_if_there()
        if found is not None:
            return "" if found == content else f"{folder.shown} is another savepoint"
        with usual_files():
            folder.make_folder()
        subtasks = (subtask for operator in metadata.operators for subtask in operator.subtasks)
        streams = {stream for subtask in subtasks for stream in subtask.streams()}
        for name in sorted(stream.path for stream in streams if isinstance(stream, RelativeFile)):
            if not target.child(name).link_to(folder.child(name)):
                return f"{folder.shown} can't have hard links to the files in {target.shown}"
        TargetMetadata(run).publish(folder, content)
    except (OSError, StateferryError) as error:
        return f"{error}"
    return ""


def offered_claimable(run: Run) -> Location | None:
    """The folder that the new job may claim, if it is complete; None as well once a job has claimed and deleted it."""
    folder = _folder(run)
    found = folder.child(METADATA).read_if_there() if run.plan.claimable else None
    if found is None or found != build_metadata(claimable_metadata(_published(run), folder)):
        return None
    return folder


def claimable_metadata(metadata: Metadata, folder: Location) -> Metadata:
    """The metadata of a native savepoint for links in this folder: its tables are shared, with absolute addresses."""

    def is_table(file: NamedFile) -> bool:
        return file.name.endswith(_TABLE) and isinstance(file.stream, RelativeFile)

    def shared(file: NamedFile) -> NamedFile:
        return replace(file, stream=AbsoluteFile(folder.child(file.stream.name).uri, file.stream.size))

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


def _folder(run: Run) -> Location:
    target = Location.of(run.plan.target)
    return target.parent.child(f"{target.name}{CLAIMABLE}")


def _published(run: Run) -> Metadata:
    place = Location.of(run.plan.target).child(METADATA)
    return parse_metadata(place.read(), place.shown)
