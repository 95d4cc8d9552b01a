"""A canonical keyed state file. Its key groups are read in sections through one bounded buffer, the window.

Layout of a key group, at its offset (inside its own snappy stream if the header says so):

    i16 state id
    repeat: i32 key length, key, i32 value length, value
            bit 0x80 of the first key byte set: the state's last entry; an i16 follows: the next state id, or ff ff
            at the end

A section has entries of one state as they are in the buffer, with that bit cleared. The buffer grows only as far as the
bytes of a large entry arrive.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence

import numpy as np

from flinkstate.errors import DamagedError
from flinkstate.files.digests import new_hasher
from flinkstate.files.storage import Location
from flinkstate.keyed import kernels
from flinkstate.keyed.compression import Buffer, Compression, Content, PlainContent, SnappyContent, begins_stored
from flinkstate.keyed.full_checkpoint import expect_canonical
from flinkstate.keyed.header import KeyedHeader, parse_header
from flinkstate.keyed.key_group_check import Membership
from flinkstate.keyed.keyed_file import LARGEST_HEADER, MOST_ENTRIES, WINDOW, KeyedFile, Section
from flinkstate.metadata.bytes_read import HEADER, BytesRead
from flinkstate.metadata.key_group_extents import KeyGroupExtent, SubtaskFile, key_group_extents
from flinkstate.metadata.metadata import KeyedHandle
from flinkstate.metadata.streams import expect, open_stream
from flinkstate.metadata.type_numbers import FULL_CHECKPOINT
from flinkstate.serializers.walker import Positions, failed, new_failure

# In so many key groups `compression` looks at the first chunk.
_LOOKED_AT = 8


class KeyGroupFile(KeyedFile):
    """One subtask's canonical keyed state file, open for reading.

    `wanted` are the key groups that will be read, in the file's order; without them nothing is known of the reads.
    """

    handle: KeyedHandle

    def __init__(
        self,
        folder: Location,
        handle: KeyedHandle,
        max_parallelism: int,
        subtask: int,
        read: BytesRead | None = None,
        wanted: Sequence[int] | None = None,
    ) -> None:
        super().__init__(handle, max_parallelism, subtask, read)
        self.file, self.name, self.size = open_stream(folder, handle.stream)
        try:
            self._subtask_file = SubtaskFile(subtask, self.name, handle.range, handle.offsets, self.size)
            self._extents = {extent.key_group: extent for extent in key_group_extents(self._subtask_file)}
            self.header, self.header_end = self._read_header()
            self.membership = Membership(self.header, max_parallelism, self.prefix)
            extents = [self._extents[group] for group in wanted or () if group in self._extents]
            if extents:
                expect(self.file, min(extent.start for extent in extents), max(extent.end for extent in extents))
        except BaseException:
            self.file.close()
            raise

    def close(self) -> None:
        self.file.close()

    @property
    def subtask_file(self) -> SubtaskFile:
        return self._subtask_file

    @property
    def extents(self) -> Mapping[int, KeyGroupExtent]:
        return self._extents

    @property
    def has_places(self) -> bool:
        return not self.header.compressed

    @property
    def compression(self) -> Compression | None:
        if not self.extents:
            return None
        if not self.header.compressed:
            return Compression.NONE
        # Snappy stores what it can't compress, which may be every small key group.
        largest = sorted(self.extents.values(), key=lambda extent: extent.start - extent.end)[:_LOOKED_AT]
        is_stored = all(begins_stored(self.file, extent.start) for extent in largest)
        return Compression.STORED if is_stored else Compression.SNAPPY

    def expect_known_layout(self) -> None:
        """Raises if the file may have the layout of another backend.

        If the handle leaves that open, this reads both ends of every key group. So it is called where the headers of an
        operator are read, and not by each task.
        """
        if self.handle.type in FULL_CHECKPOINT:
            expect_canonical(
                self.file,
                self.name,
                list(self.extents.values()),
                len(self.handle.offsets),
                self.prefix,
                compressed=self.header.compressed,
            )

    def _read_header(self) -> tuple[KeyedHeader, int]:
        first = min((extent.start for extent in self.extents.values()), default=None)
        end = self.size if first is None else first
        if end > LARGEST_HEADER:
            raise DamagedError(f"a header of at most {LARGEST_HEADER} bytes", f"{end}", file=self.name)
        self.file.seek(0)
        data = bytes(self.file.read(end))
        if self.read is not None:
            hasher = new_hasher()
            hasher.update(data)
            self.read.note(self.handle.stream, HEADER, hasher)
        return parse_header(data, self.name, end=end)

    def sections(self, key_group: int, window: Buffer | None = None) -> Iterator[Section]:
        """Yields the key group's sections in the file's order, none if it has no data. `window` is a buffer to use."""
        extent = self.extents.get(key_group)
        if extent is not None:
            yield from _GroupReader(self, extent, np.empty(WINDOW, np.uint8) if window is None else window).sections()

    def size_of(self, key_group: int) -> int:
        """Returns the key group's number of bytes in the file."""
        extent = self.extents.get(key_group)
        return extent.end - extent.start if extent else 0

    def locate(self, error: DamagedError, extent: KeyGroupExtent, base: int) -> DamagedError:
        """Returns the error with its place in the file; its offset is a position in a buffer that begins at `base`.

        In a compressed file that place is the beginning of the key group, and the text says where inside.
        """
        inside = base + (error.offset or 0)
        if not self.header.compressed:
            return error.located(file=self.name, key_group=extent.key_group, offset=inside)
        found = f"{error.found} (byte {inside} of the uncompressed key group)"
        return DamagedError(error.expected, found, file=self.name, key_group=extent.key_group, offset=extent.start)


class _GroupReader:
    """Reads one key group. Its bytes that are in the buffer and not yet parsed are at `position` to `end`."""

    def __init__(self, file: KeyGroupFile, extent: KeyGroupExtent, buffer: Buffer) -> None:
        self.file, self.extent, self.buffer = file, extent, buffer
        kind = SnappyContent if file.header.compressed else PlainContent
        self.hasher = new_hasher() if file.read is not None else None
        self.source: Content = kind(file.file, file.name, extent.start, extent.end, self.hasher)
        self.position = self.end = 0
        # How much of `file.positions` is in use: sections take one part after another and start again when it is full.
        self.taken = 0
        # The place of buffer[0]: in the file, or in the content of the compressed key group.
        self.base = 0 if file.header.compressed else extent.start
        self.room = None if file.header.compressed else extent.end - extent.start

    def sections(self) -> Iterator[Section]:
        self._need(2, "a state id")
        state = self._u16()
        seen: set[int] = set()
        while state != kernels.END_OF_GROUP:
            self._check_state(state, seen)
            state = yield from self._state(state)
        if self.position < self.end or self._more():
            raise self._damaged("the end of the key group", "more bytes", self.position)
        if self.file.read is not None:
            self.file.read.note(self.file.handle.stream, self.extent.key_group, self.hasher)

    def _check_state(self, state: int, seen: set[int]) -> None:
        states = self.file.header.states
        if state >= len(states) or state in seen:
            found = f"{state} a second time" if state in seen else f"{state}"
            raise self._damaged(
                f"the id of one of {len(states)} states, each at most once, or ffff", found, self.position - 2
            )
        seen.add(state)

    def _state(self, state: int) -> Generator[Section, None, int]:
        """Yields the state's sections; returns the next state's id."""
        result, failure = np.zeros(4, np.int64), new_failure()
        membership = self.file.membership
        key_kind, key_offset = membership.keys[state].tolist()
        while True:
            if self.taken == MOST_ENTRIES:
                self.taken = 0
            starts, key_ends, ends = self.file.positions[:, self.taken :]
            count = kernels.scan_entries(
                self.buffer, self.position, self.end, self.extent.key_group, self.file.prefix, key_kind, key_offset,
                membership.max_parallelism, starts, key_ends, ends, result, failure,
            )  # fmt: skip
            if count < 0:
                error = failed(failure, self.buffer)
                raise self._place(error) if isinstance(error, DamagedError) else error
            why, after, detail, keys_belong = result.tolist()
            self.position = after
            self.taken += count
            if count:
                if not keys_belong:
                    self._check_keys(state, starts[:count], key_ends[:count])
                last = why == kernels.STATE_ENDED
                yield Section(
                    self.file,
                    self.extent,
                    self.base,
                    state,
                    self.buffer,
                    starts[:count],
                    key_ends[:count],
                    ends[:count],
                    last,
                )
            if why == kernels.STATE_ENDED:
                return detail
            if why == kernels.NEED_MORE:
                self._need(detail, "an entry")

    def _check_keys(self, state: int, starts: Positions, key_ends: Positions) -> None:
        try:
            self.file.membership.check(state, self.extent.key_group, self.buffer, starts, key_ends)
        except DamagedError as error:
            raise self._place(error) from None

    def _need(self, size: int, what: str) -> None:
        """Reads until the buffer has at least `size` bytes from the position on."""
        if self.room is not None and self.position + self.base - self.extent.start + size > self.room:
            rest = self.room - (self.position + self.base - self.extent.start)
            raise self._damaged(f"{size} bytes of {what}", f"{rest} until the key group's end", self.position)
        while self.end - self.position < size:
            if not self._more():
                raise self._damaged(
                    f"{size} bytes of {what}", f"the end after {self.end - self.position}", self.position
                )

    def _more(self) -> bool:
        if self.end == len(self.buffer):
            self._make_room()
        try:
            # Read at most a window at a time, so that the data stays in the processor's cache.
            got = self.source.fill(self.buffer[self.end : self.end + WINDOW])
        except DamagedError as error:
            raise error.located(key_group=self.extent.key_group) from None
        self.end += got
        return got > 0

    def _make_room(self) -> None:
        rest = self.buffer[self.position : self.end]
        if self.position == 0:
            self.buffer = np.empty(2 * len(rest), np.uint8)
        elif self.position < len(rest):
            rest = rest.copy()
        self.buffer[: len(rest)] = rest
        self.base += self.position
        self.position, self.end = 0, len(rest)

    def _u16(self) -> int:
        value = int(self.buffer[self.position]) << 8 | int(self.buffer[self.position + 1])
        self.position += 2
        return value

    def _damaged(self, expected: str, found: str, position: int) -> DamagedError:
        return self._place(DamagedError(expected, found, offset=position))

    def _place(self, error: DamagedError) -> DamagedError:
        return self.file.locate(error, self.extent, self.base)
