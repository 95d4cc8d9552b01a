"""Ids that the client chooses, the same in every try of a task, by which Flink recognizes a repeated request.

They don't depend on the number of the try. A savepoint that failed may be requested again with the next number.
"""

from __future__ import annotations

import hashlib
import re


def flink_id(*parts: str | int) -> str:
    """An id in Flink's form, 32 hexadecimal digits, computed from the parts alone."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def folder_name(*parts: str) -> str:
    """A folder name that shows what it belongs to, is safe on any file system, and differs for different parts."""
    readable = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", part) for part in parts[:-1])[:80]
    return f"{readable}-{flink_id(*parts)[:16]}"
