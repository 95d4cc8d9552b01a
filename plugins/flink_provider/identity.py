"""Ids that the client chooses, the same for every try of a task, so that Flink itself knows a repeated request.

They do not depend on the number of the try. A savepoint that failed may be asked for again, under the next number.
"""

from __future__ import annotations

import hashlib
import re


def flink_id(*parts: str | int) -> str:
    """An id as Flink writes them, 32 hexadecimal digits, that follows from the parts alone."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def folder_name(*parts: str) -> str:
    """A name that says what it belongs to, plain enough for any file system, different for different parts."""
    readable = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", part) for part in parts[:-1])[:80]
    return f"{readable}-{flink_id(*parts)[:16]}"
