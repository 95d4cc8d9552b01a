"""Finds the filesystem or object store of a URI, and makes clear errors of what drivers raise."""

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

# Hadoop has several names for a store; pyarrow knows one of them.
_OTHER_SCHEMES = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}
_GOOGLE = ("gs", "gcs")
# Without this the driver tries for a quarter of an hour.
_GOOGLE_RETRIES = "retry_limit_seconds=60"


def store_of(uri: str) -> tuple[Any, str]:
    """Returns the filesystem of a URI, and the path in it."""
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
        raise UsageError(f"{_shown(uri)} names a store without a folder in it: add the path of a folder")
    return filesystem, path


@contextmanager
def reaching(shown: str = "", what: str = "reached") -> Iterator[None]:
    """Turns errors of drivers and the system into ours: with the place, a reason, and whether a retry may help.

    The place is `shown`, else the one that the error names.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise os_errors.told(error, _shown(shown), what) from error


def _shown(uri: str) -> str:
    """Returns the URI without a user name and password."""
    return re.sub(r"://[^/@:]*:[^/@]*@", "://", uri)
