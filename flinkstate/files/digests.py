"""Digests of files, which show whether written, validated and published files are the same."""

from __future__ import annotations

from typing import Any

import mmh3

_READ = 8 << 20

# Size and digest of files, by their names.
Digests = dict[str, tuple[int, str]]


def new_hasher() -> Any:
    """Returns a hasher for bytes that are read or written."""
    return mmh3.mmh3_x64_128()


def hasher_of(file: Any) -> Any:
    """Returns a hasher of all that is left to read of the file."""
    hasher = new_hasher()
    portion = memoryview(bytearray(_READ))
    while got := file.readinto(portion):
        hasher.update(portion[:got])
    return hasher


def digest_of_bytes(data: bytes) -> str:
    """Returns the digest of bytes that are in memory."""
    hasher = new_hasher()
    hasher.update(data)
    return digest_of(hasher)


def digest_of(hasher: Any) -> str:
    """Returns 64 bits of the hash, as 16 hexadecimal digits."""
    return str(hasher.digest()[:8].hex())
