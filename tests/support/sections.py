"""Rows as a section of a state file has them, without a file."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Rows:
    """Keys (without the key group before them) and values, in the buffer of a section."""

    key_group: int
    prefix: int
    pairs: Sequence[tuple[bytes, bytes]]
    file: Any = field(init=False)
    data: Any = field(init=False)

    def __post_init__(self) -> None:
        self.file = self
        content, places = bytearray(b"before"), []
        for key, value in self.pairs:
            start = len(content)
            content += struct.pack(">i", self.prefix + len(key)) + self.key_group.to_bytes(self.prefix, "big") + key
            key_end = len(content)
            content += struct.pack(">i", len(value)) + value
            places.append((start, key_end, len(content)))
        self.data = np.frombuffer(bytes(content), np.uint8)
        self.starts, self.key_ends, self.ends = (np.array(part, np.int64) for part in zip(*places, strict=True))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def key_starts(self) -> Any:
        return self.starts + 4

    @property
    def value_starts(self) -> Any:
        return self.key_ends + 4

    @contextmanager
    def locating(self) -> Iterator[None]:
        yield
