"""The newer files of a base that one file of a catch-up takes the place of: the rows of which they say anything.

They are looked at a key group at a time. A newer file may delete rows of the files below it, so what it has to say of a
row follows from what all files show of it, and from what is shown without the newer ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

import numpy as np

from flinkstate.files.storage import Location
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.rocksdb.live_files import LiveFile
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.rocksdb.scan import entries_of
from flinkstate.rocksdb.sst_file import SstFile


class JoinedFiles:
    """The newer files of a database by state, which must all be of level 0 and above all others; a context manager."""

    def __init__(
        self,
        folder: Location,
        handle: NativeHandle,
        max_parallelism: int,
        subtask: int,
        files: Mapping[str, list[LiveFile]],
        changed: Mapping[str, Prefixes],
    ) -> None:
        """`changed` are keys, by state, of which what the files say doesn't count any more."""
        self._files, self._changed = files, changed
        with ExitStack() as opened:
            # No key group is wanted ahead, as each is read with other keys.
            self._all, self._below = (
                opened.enter_context(NativeFile(folder, handle, max_parallelism, subtask, wanted=[])) for _ in range(2)
            )
            self._opened = opened.pop_all()
        families = dict(self._below.database.families)
        for state, above in files.items():
            files_below = {number: file for number, file in families[state].files.items() if file not in above}
            families[state] = replace(families[state], files=files_below)
        self._below.database.families = families

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def sections(self, key_group: int) -> Iterator[tuple[Section, bool]]:
        """Yields what is shown of the rows, and what lies below them, each with whether it does.

        Of changed keys only what lies below is yielded.
        """
        prefix, own, none = self._all.prefix, KeyGroupRange(key_group, key_group), Prefixes.of(())
        changed = {state: self._changed.get(state, none).within(own, prefix) for state in self._files}
        others = {state: self._others(state, key_group, keys) for state, keys in changed.items()}
        self._all.read_only(others)
        self._below.read_only({state: keys.and_of(others[state]) for state, keys in changed.items()})
        for file in (self._all, self._below):
            for section in file.sections(key_group):
                yield section, file is self._below

    def _others(self, state: str, key_group: int, changed: Prefixes) -> Prefixes:
        """The keys of all rows that the files have in the key group, but for changed ones."""
        prefix, found = self._all.prefix, set[bytes]()
        for table in self._all.database.files(state, prefix, key_group, key_group + 1):
            if table.live in self._files[state]:
                found |= keys_in(table, prefix, key_group, without=changed)
        return Prefixes.of(found)


def keys_in(table: SstFile, prefix: int, key_group: int, *, without: Prefixes) -> set[bytes]:
    """The keys of all of a file's rows in a key group, deleted ones among them, but for those with some prefixes."""
    found: set[bytes] = set()
    for data, starts, ends in entries_of(table, prefix, key_group, key_group + 1):
        others = np.flatnonzero(~without.rows_of(data, starts, ends))
        pairs = zip((starts[others] + 4).tolist(), ends[others].tolist(), strict=True)
        found |= {data[start:end].tobytes() for start, end in pairs}
    return found
