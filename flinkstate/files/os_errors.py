"""Turns errors of the operating system and of object stores into ours: which file, and whether a retry may help.

An error with a number is judged by its number. Drivers of object stores, and decoders of files, often give only a text.
Such an error may pass if the text speaks of the network or a busy service, and of no refusal.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from flinkstate.errors import StateferryError, TransientError

LONGEST_REASON = 300

_TRANSIENT_NUMBERS = frozenset(
    number
    for name in (
        # Errors of disks, and of folders that are mounted from elsewhere.
        *("EIO", "EREMOTEIO", "ESTALE", "ENOLINK", "ECOMM", "ENOLCK", "EBUSY", "ETXTBSY"),
        # Resources that another process may give back.
        *("ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ENOMEM", "ENOBUFS", "EAGAIN", "EINTR"),
        # Errors of the network.
        *("ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "ENOTCONN", "EPIPE", "ESHUTDOWN", "ETIMEDOUT", "ETIME"),
        *("EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENETRESET", "EADDRNOTAVAIL"),
    )
    if (number := getattr(errno, name, None)) is not None
)

# The words of the drivers of S3, Google's store and Azure's for what may pass, and for what never does.
_TRANSIENT = re.compile(
    r"time.?d?.?out|timeout|curlcode|network|connect|unreachable|resolv|temporar|deadline.?exceeded|unavailable"
    r"|slow.?down|throttl|too many requests|resource.?exhausted|internal.?(error|failure)|server (is )?busy|try again"
    r"|\bhttp(?: status| response code)?:? (?:408|429|5\d\d)\b",
    re.IGNORECASE,
)
_PERMANENT = re.compile(
    r"access.?denied|permission.?denied|forbidden|unauthori[sz]ed|unauthenticated|invalid.?(access.?key|client|token)"
    r"|signature|unrecognized.?client|no.?such.?(bucket|key)|not.?found|does not exist",
    re.IGNORECASE,
)
# Whoever gives credentials for some hours renews them.
_EXPIRED = re.compile(r"expired.?token|token.{0,20}expired", re.IGNORECASE)
# S3 answers so to an expired token, too. The answer to a HEAD has no text that says more, that of another may be lost.
_WORDLESS = re.compile(r"\(http status 400\) during (?:Head|\w+ operation:\s*$)", re.IGNORECASE)
# If the answer to the end of an upload was lost, the driver asks again, and the store knows no such upload any more.
_UPLOAD_LOST = re.compile(r"no.?such.?upload|\(http status 40[04]\) during CompleteMultipartUpload", re.IGNORECASE)


def is_transient(error: Exception) -> bool:
    """Whether a retry may succeed."""
    if not isinstance(error, OSError):
        return False
    if error.errno is not None:
        return error.errno in _TRANSIENT_NUMBERS
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    if isinstance(error, (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)):
        return False
    text = str(error)
    if any(known.search(text) for known in (_UPLOAD_LOST, _EXPIRED, _WORDLESS)):
        return True
    return _TRANSIENT.search(text) is not None and _PERMANENT.search(text) is None


def own_error(error: Exception, place: str = "", what: str = "reached") -> StateferryError:
    """Returns the error in one line: this file can't be `what`, and why.

    The file is `place`, or else the one that the error names.
    """
    named = str(error.filename) if isinstance(error, OSError) and error.filename is not None else ""
    where = place or named
    reason = in_short(error).removeprefix(f"{where}: ")
    if named and named != where:
        reason = f"{named}: {reason}"
    if _WORDLESS.search(reason):
        reason += " Its credentials may have expired"
    kind = TransientError if is_transient(error) else StateferryError
    return kind(f"{where} can't be {what}: {reason}" if where else reason)


def in_short(error: Exception) -> str:
    """Returns the error's text in one line of limited length, without the file."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = " ".join(reason.split()) or type(error).__name__
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Adds the name to an `OSError` that has none, as errors of open files do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise OSError(f"{name}: {error}") from error
        if error.filename is None:
            error.filename = name
        raise
