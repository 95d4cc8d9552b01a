"""A subtask's keyed state, whatever wrote it: the port by which everything else reads it.

Its key groups are read in sections through one bounded buffer, the window. A section has entries of one state as a
canonical file has them: i32 key length, key (with the key group before it), i32 value length, value. Their keys have
been checked: the hash of each leads to this key group, if the hash can be computed. A section is valid until the next
one is read. The buffer grows only for an entry that is larger than it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from flinkstate.basics.closing import Closing
from flinkstate.errors import DamagedError, RefusedError, StateferryError
from flinkstate.hashing.key_groups import key_group_prefix_bytes
from flinkstate.keyed.compression import Buffer, Compression
from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.key_group_check import Membership
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.metadata.bytes_read import BytesRead
from flinkstate.metadata.key_group_extents import KeyGroupExtent, SubtaskFile
from flinkstate.metadata.metadata import KeyedHandle, NativeHandle
from flinkstate.serializers.types import FlinkType
from flinkstate.serializers.walker import Positions
from flinkstate.values.codecs import decode
from flinkstate.values.value_json import json_text

WINDOW = 8 << 20
MOST_ENTRIES = 1 << 16
# Limits for a key group that is kept to be iterated twice: its bytes with the positions of its entries.
MOST_HELD = 128 << 20
ENTRY_POSITIONS = 24
_MOST_TEXT = 200
LARGEST_HEADER = 64 << 20


@dataclass(frozen=True, slots=True)
class Section:
    """Entries of one state of one key group: entry i is `data[starts[i]:ends[i]]`.

    Its key (with the key group before it) is `data[starts[i] + 4 : key_ends[i]]`, its value
    `data[key_ends[i] + 4 : ends[i]]`. `base` is where `data` begins in the file (if compressed: in the key group).
    """

    file: KeyedFile
    extent: KeyGroupExtent
    base: int
    state: int
    data: Buffer
    starts: Positions
    key_ends: Positions
    ends: Positions
    last: bool

    @property
    def key_group(self) -> int:
        return self.extent.key_group

    @property
    def raw(self) -> Buffer:
        """The bytes of all entries."""
        return self.data[self.starts[0] : self.ends[-1]]

    @property
    def key_starts(self) -> Positions:
        return self.starts + 4

    @property
    def value_starts(self) -> Positions:
        return self.key_ends + 4

    def __len__(self) -> int:
        return len(self.starts)

    def key_text(self, row: int) -> str:
        """Returns the key of a row, without its user key, as people read it."""
        key = self.data[self.key_starts[row] + self.file.prefix : self.key_ends[row]].tobytes()
        return _text(self.file.header.key_serializer.type, key)

    def parts(self, most: int) -> Iterator[Section]:
        """Yields the section in parts of about so many bytes: less than twice as many, unless an entry is larger."""
        if not len(self) or int(self.ends[-1] - self.starts[0]) < 2 * most:
            yield self
            return
        portions = (self.ends - self.starts[0]) // most
        firsts = np.append(0, np.flatnonzero(np.diff(portions)) + 1).tolist()
        for first, after in pairwise([*firsts, len(self)]):
            part = slice(first, after)
            yield replace(
                self, starts=self.starts[part], key_ends=self.key_ends[part], ends=self.ends[part],
                last=self.last and after == len(self),
            )  # fmt: skip

    def lies_with(self, before: Section) -> bool:
        """Whether the bytes of an earlier section are still in the window."""
        return self.data is before.data and self.base == before.base

    def with_own_positions(self) -> Section:
        """Returns a copy whose positions stay valid when the next section is read, as long as the bytes do."""
        return replace(self, starts=self.starts.copy(), key_ends=self.key_ends.copy(), ends=self.ends.copy())

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Gives an error whose offset is a position in `data` its place in the file."""
        try:
            yield
        except DamagedError as error:
            raise self.file.locate(error, self.extent, self.base) from None
        except RefusedValueError as error:
            raise RefusedError(self._refused(error)) from None

    def _refused(self, error: RefusedValueError) -> str:
        """Returns the reason with state, key, user key, file and offset."""
        place = self.file.locate(DamagedError("", "", offset=error.offset), self.extent, self.base)
        offset = "" if place.offset is None else f", offset {place.offset}{place.found}"
        row = int(np.searchsorted(self.ends, error.offset, "right"))
        named = [f"state {self.file.header.states[self.state].name}", f"key {self.key_text(row)}"]
        named += [f"user key {_text(*error.user_key)}"] if error.user_key is not None else []
        return f"{', '.join(named)}: {error.why} ({place.file}, key group {self.key_group}{offset})"


def _text(type_: FlinkType, data: bytes) -> str:
    """Returns a value, behind which there may be more, as people read it."""
    try:
        text = json_text(type_)(decode(type_, data)[0])
    except StateferryError:
        text = f"with the bytes {data.hex()}"
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


class KeyedFile(Closing):
    """One subtask's keyed state, open for reading; a context manager.

    `name` is its name in messages. The header has `header_end` bytes. Digests of what is read go into `read`.
    """

    name: str
    size: int
    header: KeyedHeader
    header_end: int
    membership: Membership

    def __init__(
        self, handle: KeyedHandle | NativeHandle, max_parallelism: int, subtask: int, read: BytesRead | None
    ) -> None:
        self.handle, self.subtask, self.read = handle, subtask, read
        self.prefix = key_group_prefix_bytes(max_parallelism)
        # Positions of entries, reused: allocating them for each key group would take longer than reading it.
        self.positions = np.empty((3, MOST_ENTRIES), np.int64)

    @property
    @abstractmethod
    def subtask_file(self) -> SubtaskFile:
        """Where each key group is."""

    @property
    @abstractmethod
    def extents(self) -> Mapping[int, KeyGroupExtent]:
        """Where each key group with data is, by key group."""

    @property
    @abstractmethod
    def has_places(self) -> bool:
        """Whether the place of a section in the file is known, and so the size of a key group before it is read."""

    @property
    def compression(self) -> Compression | None:
        """How a canonical file has its key groups, None if it has none.

        A framed file counts as stored if its largest key groups begin so. RocksDB's own files have None: there each
        block says how it is compressed.
        """
        return None

    @abstractmethod
    def expect_known_layout(self) -> None:
        """Raises if the file may have the layout of another backend."""

    @abstractmethod
    def sections(self, key_group: int, window: Buffer | None = None) -> Iterator[Section]:
        """Yields the key group's sections, one state after another; none without data. `window` is a buffer to use."""

    @abstractmethod
    def size_of(self, key_group: int) -> int:
        """Returns the bytes that the key group takes in the window; an estimate if the file has no places."""

    @abstractmethod
    def locate(self, error: DamagedError, extent: KeyGroupExtent, base: int) -> DamagedError:
        """Returns the error with its place in the file; its offset is a position in a buffer that begins at `base`."""

    def sections_of(self, key_group: int, states: set[int], window: Buffer | None = None) -> Iterator[Section]:
        """Yields the key group's sections of the states with these ids."""
        return (section for section in self.sections(key_group, window) if section.state in states)

    def extent_at(self, offset: int) -> KeyGroupExtent:
        """Returns the extent in which the offset is, or the nearest one before it."""
        before = [extent for extent in self.extents.values() if extent.start <= offset]
        return max(before or self.extents.values(), key=lambda extent: extent.start)
