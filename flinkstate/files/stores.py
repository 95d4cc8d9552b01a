"""Finds the filesystem or object store of a URI, and makes clear errors of what drivers raise.

An S3 store is set once for everything that reads or writes it, by the environment that AWS's own tools read:
`AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`, `AWS_REGION` or `AWS_DEFAULT_REGION`, and the usual chain of credentials.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pyarrow as pa
from pyarrow import fs

from flinkstate.errors import StateferryError, UsageError
from flinkstate.files import hdfs, os_errors
from flinkstate.files.uris import OTHER_SCHEMES, check_uri, without_user

_GOOGLE = ("gs", "gcs")
# Without this the driver tries for a quarter of an hour.
_GOOGLE_RETRIES = "retry_limit_seconds=60"
# S3 takes a file in at most 10,000 parts, and the driver sends 10 MiB in each.
_S3_FILE_BYTES = 10_000 * (10 << 20)
# It copies a larger one only in parts, for which it must be asked one by one.
MOST_COPIED_BY_S3 = 5 << 30
# While it copies, it may say nothing; else the driver gives up after three seconds.
_SECONDS_TO_COPY = 300
# What other machines need to find an S3 store; credentials they must have by themselves.
PLACE_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")


def store_of(uri: str) -> tuple[Any, str]:
    """Returns the filesystem of a URI, and the path in it."""
    check_uri(uri)
    scheme, rest = uri.split("://", 1)
    authority, _, path = rest.rstrip("/").partition("/")
    with reaching(uri):
        try:
            # Connections to a store can't be shared with a forked process.
            filesystem, root = _store(OTHER_SCHEMES.get(scheme, scheme), authority, s3_endpoint(), os.getpid())
        except (pa.ArrowInvalid, NotImplementedError) as error:
            raise UsageError(
                f"{without_user(uri)} is on a filesystem that can't be reached: {os_errors.in_short(error)}"
            ) from None
    return filesystem, f"{root}/{path}".rstrip("/")


@cache
def _store(scheme: str, authority: str, endpoint: str | None, _: int) -> tuple[Any, str]:
    """Returns the filesystem, and the path of its root; the same one each time, so that connections are used again."""
    if scheme in hdfs.SCHEMES:
        return hdfs.Hdfs(scheme, authority), ""
    options = f"?{_GOOGLE_RETRIES}" if scheme in _GOOGLE else ""
    filesystem, root = fs.FileSystem.from_uri(f"{scheme}://{authority}/{options}")
    if isinstance(filesystem, fs.S3FileSystem):
        # A small object is one request, and a large one is sent by `RemoteOutput`, whose memory is bounded.
        filesystem = fs.S3FileSystem(
            endpoint_override=endpoint, region=filesystem.region, allow_delayed_open=True, background_writes=False
        )
    return filesystem, root.rstrip("/")


def s3_endpoint() -> str | None:
    """Returns the address of an S3 store that isn't Amazon's, if the environment has one."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def most_bytes(filesystem: Any) -> int | None:
    """Returns how large a file may become there; None if there is no limit that a savepoint could reach."""
    return _S3_FILE_BYTES if isinstance(filesystem, fs.S3FileSystem) else None


def object_identity(filesystem: Any, path: str) -> str:
    """Returns what S3 tells of an object that another one at its place has otherwise; empty on other stores."""
    if not isinstance(filesystem, fs.S3FileSystem):
        return ""
    with filesystem.open_input_file(path) as file:  # one request, for what is known of it
        told = file.metadata()
    parts = [told.get(name, b"").decode() for name in ("ETag", "Content-Length", "Last-Modified", "VersionId")]
    return ":".join(parts) if parts[0] else ""


def copy_object(filesystem: Any, path: str, other: str) -> None:
    """Has S3 copy an object; `filesystem` is that of the new one."""
    _copying(filesystem.region, s3_endpoint(), os.getpid()).copy_file(path, other)


@cache
def _copying(region: str, endpoint: str | None, _: int) -> Any:
    return fs.S3FileSystem(endpoint_override=endpoint, region=region, request_timeout=_SECONDS_TO_COPY)


@contextmanager
def reaching(shown: str = "", what: str = "reached") -> Iterator[None]:
    """Turns errors of drivers and the system into ours: with the place, a reason, and whether a retry may help.

    The place is `shown`, else the one that the error names.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise os_errors.own_error(error, without_user(shown), what) from error
    except UnicodeError as error:
        # Drivers know names of UTF-8 alone, and a disk any bytes.
        place = without_user(shown).encode("utf-8", "backslashreplace").decode()
        raise StateferryError(f"{place} can't be {what}: there is a name that isn't UTF-8") from error
