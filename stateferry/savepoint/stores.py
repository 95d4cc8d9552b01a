"""Filesystems and object stores by URI, and in short what they say where they can't be reached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from stateferry import os_errors
from stateferry.errors import UsageError

# Hadoop's names of the same store; pyarrow knows one each.
_OTHER_SCHEMES = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}
_GOOGLE = ("gs", "gcs")
# Its driver would otherwise try for a quarter of an hour.
_GOOGLE_RETRIES = "retry_limit_seconds=60"


def store_of(uri: str) -> tuple[Any, str]:
    """The filesystem of a URI, and the path there."""
    scheme, rest = uri.split("://", 1)
    known = f"{_OTHER_SCHEMES.get(scheme, scheme)}://{quote(rest, safe='/:@?=&%+,~!$*()')}"
    if scheme in _GOOGLE and "retry_limit_seconds=" not in rest:
        known += f"{'&' if '?' in rest else '?'}{_GOOGLE_RETRIES}"
    with reaching(uri):
        try:
            filesystem, path = fs.FileSystem.from_uri(known)
        except (pa.ArrowInvalid, NotImplementedError) as error:
            raise UsageError(
                f"{_shown(uri)} is on a filesystem that can't be reached: {os_errors.in_short(error)}"
            ) from None
    path = path.rstrip("/")
    if not path:
        raise UsageError(f"{_shown(uri)} names a store: expected a folder in it as well")
    return filesystem, path


@contextmanager
def reaching(shown: str = "", what: str = "reached") -> Iterator[None]:
    """Whatever a driver or the system may raise has the place, one clear reason, and a class that says whether it may
    pass. Without a place it is the one that the error names."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise os_errors.told(error, _shown(shown), what) from error


def _shown(uri: str) -> str:
    """Without a name and password that it may bring along."""
    return re.sub(r"://[^/@:]*:[^/@]*@", "://", uri)
