"""Filesystems and object stores by URI, and in short what they say where they can't be reached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from stateferry.errors import StateferryError, UsageError

# Hadoop's names of the same store; pyarrow knows one each.
_OTHER_SCHEMES = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}
_GOOGLE = ("gs", "gcs")
# Its driver would otherwise try for a quarter of an hour.
_GOOGLE_RETRIES = "retry_limit_seconds=60"
_LONGEST_REASON = 300


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
            raise UsageError(f"{_shown(uri)} is on a filesystem that can't be reached: {_in_short(error)}") from None
    path = path.rstrip("/")
    if not path:
        raise UsageError(f"{_shown(uri)} names a store: expected a folder in it as well")
    return filesystem, path


@contextmanager
def reaching(shown: str) -> Iterator[None]:
    """Whatever a driver may raise has the place and one clear reason."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StateferryError(f"{_shown(shown)} can't be reached: {_in_short(error)}") from error


def _shown(uri: str) -> str:
    """Without a name and password that it may bring along."""
    return re.sub(r"://[^/@:]*:[^/@]*@", "://", uri)


def _in_short(error: Exception) -> str:
    text = " ".join(str(error).split())
    for library in ("libjvm", "libhdfs"):
        if f"Unable to load {library}" in text:
            return (
                f"HDFS needs Java and Hadoop's own library, and {library} wasn't found: set JAVA_HOME and HADOOP_HOME, "
                "and CLASSPATH to what 'hadoop classpath --glob' says"
            )
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."
