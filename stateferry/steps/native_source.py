"""A source of RocksDB's own files: the steps read a canonical copy of it, which the first of them makes.

The copy is in the run's folder, under the digest of the source's `_metadata`. The validation compares it with the
source. It is removed when the report is green.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stateferry.digests import digest_of, new_hasher
from stateferry.runs.space import check_room
from stateferry.savepoint.canonical_copy import CopiedSubtask, CopyTask, complete, copy_tasks, is_complete
from stateferry.savepoint.file_names import METADATA
from stateferry.savepoint.native_file import NativeFile
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.storage import Location
from stateferry.steps.workers import Measure, Workers
from stateferry.validation.check_result import Check
from stateferry.validation.copy_check import PLAIN, ROWS, CopyCheckTask, CopyResult, copy_check_tasks, judge
from stateferry.validation.sampling import seed_of

_COPIED: Measure[CopiedSubtask] = Measure("B", lambda copied: copied.size)
_READ: Measure[CopyResult] = Measure("B", lambda result: result.size)


def canonical_copy(workers: Workers, source: Savepoint, folder: Location, say: Callable[[str], None]) -> Savepoint:
    """Opens the copy in `folder`; makes it first if it isn't there."""
    target = folder.child(_digest(source))
    if not is_complete(target):
        size = copy_size(source)
        check_room({folder.path: size}, "the uncompressed size of all rows, for a canonical copy of the native source")
        say(f"the source has RocksDB's own files: its rows are copied to {target.shown} (about {size:,} bytes)")
        target.make_folder()
        complete(source, target, workers.do("canonical copy", copy_tasks(source, target), CopyTask.copy, _COPIED))
    return Savepoint.open(target.shown)


def _digest(source: Savepoint) -> str:
    hasher = new_hasher()
    hasher.update(source.folder.child(METADATA).read())
    return digest_of(hasher)


def copy_size(source: Savepoint) -> int:
    """The bytes of a canonical copy, at most: keys that were overwritten or deleted count too."""
    size = 0
    for operator in source.metadata.operators:
        for subtask in operator.subtasks:
            size += sum(stream.size for stream in subtask.streams())
            if (native := subtask.native_keyed) is not None:
                size -= native.size
                file = NativeFile(source.folder, native, operator.max_parallelism, subtask.index, operator.label)
                with file:
                    size += file.header_end + file.database.raw_size()
    return size


def is_copy_wrong(failed: Iterable[Check]) -> bool:
    """Whether the copy differs from the source, so that it must be made again."""
    return any(check.name in (ROWS, PLAIN) for check in failed)


def checks(workers: Workers, source: Savepoint, copy: Savepoint) -> list[Check]:
    """Compares the source with its copy."""
    tasks = copy_check_tasks(source, copy, seed_of(source))
    return judge(tasks, workers.do("validate: native source", tasks, CopyCheckTask.check, _READ))
