"""The names of places on stores: each place has one name, so that names tell whether one place lies in another."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import PurePath
from urllib.parse import unquote

from flinkstate.errors import UsageError

# Hadoop and Flink have several names for a store; pyarrow knows one of them.
OTHER_SCHEMES = {"s3a": "s3", "s3n": "s3", "s3p": "s3", "wasb": "abfs", "wasbs": "abfss"}
# Two names of the same store that pyarrow knows both.
_ALIKE = {"gcs": "gs", "abfss": "abfs"}
_BUCKETS = ("s3", "gs")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HDFS_PORT = ":8020"


def check_uri(uri: str) -> None:
    """Refuses a name whose place could have another name too, such as one with `..` in it."""
    scheme, rest = uri.split("://", 1)
    authority, _, path = rest.rstrip("/").partition("/")
    where = without_user(uri)
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise UsageError(f"{where} begins with {scheme!r}: expected a scheme in small letters, such as s3, gs or hdfs")
    if not rest.strip("/"):
        raise UsageError(f"{where} names a store without a folder in it: add the path of a folder")
    if re.search(r":.*@", authority):
        raise UsageError(
            f"{where} has a password in it, which would be in plans and logs: leave it out, and give credentials "
            "by the environment, a file or a role, as the store's own tools take them"
        )
    if "?" in rest:
        raise UsageError(f"{where} has options after a question mark: set them in the environment instead")
    # A driver takes `s3://name@bucket:9000/` for the same place as `s3://bucket/`.
    if _same_scheme(scheme) in _BUCKETS and not _BUCKET.fullmatch(authority):
        raise UsageError(f"{where}: expected the name of a bucket behind ://, found {authority!r}")
    if "%" in authority:
        raise UsageError(f"{where} has a percent sign in the name of its store: write the name as it is")
    if path and (wrong := next((part for part in path.split("/") if part in ("", ".", "..")), None)) is not None:
        what = f"a part {wrong!r}" if wrong else "an empty part (//)"
        raise UsageError(
            f"{where} has {what} in its path, by which it could lie in another folder than it seems to: name the "
            "folder itself"
        )


def canonical_uri(uri: str) -> str:
    """Returns the one name of the place that is compared: `s3a://` and `s3://` are the same place."""
    scheme, rest = uri.split("://", 1)
    authority, slash, path = rest.partition("/")
    scheme = _same_scheme(scheme)
    if scheme not in _BUCKETS:
        authority = authority.lower()
    if scheme == "hdfs":
        authority = authority.removesuffix(_HDFS_PORT)
    if scheme == "abfs":
        authority = authority.replace(".blob.", ".dfs.")
    return f"{scheme}://{authority}{slash}{path}"


def store_in(name: str) -> str:
    """Returns the store in the name of a place, as `canonical_uri` writes it; empty if the place is on this machine."""
    return "" if name.startswith("file:") or "://" not in name else "/".join(canonical_uri(name).split("/", 3)[:3])


def _same_scheme(scheme: str) -> str:
    known = OTHER_SCHEMES.get(scheme, scheme)
    return _ALIKE.get(known, known)


def real_name(name: str) -> str:
    """Returns the one name of a place on a store, or where a path leads, behind all symbolic links."""
    return canonical_uri(name) if "://" in name else os.path.realpath(name)


def lies_in(inner: str, outer: str) -> bool:
    """Whether one place is the other or lies in it; both have their real names."""
    if f"{inner}/".startswith(f"{outer}/"):
        return True
    if "://" in inner or "://" in outer:
        return False
    # A mount shows the same folder under another path.
    with suppress(OSError):
        there = os.stat(outer)
        return any(_is(str(folder), there) for folder in (PurePath(inner), *PurePath(inner).parents))
    return False


def _is(folder: str, there: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.stat(folder), there)
    return False


def path_of_file_uri(uri: str) -> str:
    """Returns the path of a `file:` URI. Flink doesn't escape spaces and percent signs in URIs, people may."""
    path = "/" + uri.removeprefix("file:").removeprefix("//localhost/").lstrip("/")
    path = path if "%" not in path or os.path.lexists(path) else unquote(path)
    if "\0" in path:
        raise UsageError(f"{uri!r} is no name of a place: no path has a null character")
    return path


def without_user(uri: str) -> str:
    """Returns the URI without a user name and password."""
    return re.sub(r"://[^/@:]*:[^/@]*@", "://", uri)
