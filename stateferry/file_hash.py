"""Files to the byte: so that those that were written, validated and published can be held to be the same."""

from __future__ import annotations

from typing import Any

import mmh3

_READ = 8 << 20


def new_hasher() -> Any:
    return mmh3.mmh3_x64_128()


def hasher_of(file: Any) -> Any:
    """Of all that is left to read of the file."""
    hasher = new_hasher()
    piece = memoryview(bytearray(_READ))
    while got := file.readinto(piece):
        hasher.update(piece[:got])
    return hasher


def digest_of(hasher: Any) -> str:
    """64 bits of it, as 16 hexadecimal digits."""
    return str(hasher.digest()[:8].hex())
