"""The index of an SST file, or a part of it: which data blocks there are, and up to which keys."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.rocksdb.sst_blocks import Handle


@dataclass(frozen=True, slots=True)
class Index:
    """The data blocks of a file, or some of them, in order.

    Block i is at `offsets[i]`, with `sizes[i]` bytes; its keys are at most `keys[bounds[i] : bounds[i + 1] - trailer]`.
    `begins` and `ends` say whether the file's first and last blocks are among them.
    """

    keys: Bytes
    bounds: Positions
    offsets: Positions
    sizes: Positions
    trailer: int
    begins: bool = True
    ends: bool = True

    def __len__(self) -> int:
        return len(self.offsets)

    def key(self, block: int) -> bytes:
        """Returns the key that the block's keys are at most."""
        return self.keys[self.bounds[block] : self.bounds[block + 1] - self.trailer].tobytes()

    def first_with(self, key: bytes) -> int:
        """Returns the first block that may have the key or a larger one."""
        return bisect_left(range(len(self)), key, key=self.key)

    def handle(self, block: int) -> Handle:
        return Handle(int(self.offsets[block]), int(self.sizes[block]))

    def within(self, low: bytes, high: bytes) -> Index:
        """Returns the blocks that may have keys from `low` to `high`."""
        first, last = self.first_with(low), min(self.first_with(high), len(self) - 1)
        part, bounds = slice(first, last + 1), self.bounds[first : last + 2]
        # Copies: the whole index would stay in memory as long as a part of it.
        return Index(
            self.keys[bounds[0] : bounds[-1]].copy(), bounds - bounds[0], self.offsets[part].copy(),
            self.sizes[part].copy(), self.trailer, self.begins and first == 0, self.ends and last == len(self) - 1,
        )  # fmt: skip
