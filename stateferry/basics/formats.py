"""The version of everything that outlives a process: plans, the runs under a home, the catalog's records and tables.

They have one version, `FORMAT`. docs/formats.md lists what it covers, where it is recorded, and how the versions
differ. What records no version has version 1.
"""

from __future__ import annotations

from flinkstate.errors import RefusedError, StateferryError

FORMAT = FIRST = 1
FIELD = "format"


class NewerFormatError(RefusedError):
    """A newer version of Stateferry has written this, and this version doesn't know its meaning."""


def check_format(found: object, what: str) -> int:
    """Refuses a format that is newer than this version knows; `what` is the thing that records it, for messages."""
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise StateferryError(f"{what}: expected the version of a format, such as {FORMAT}, found {found!r}")
    if found > FORMAT:
        raise NewerFormatError(
            f"{what} has format {found}, which a newer version of Stateferry has written; this version knows formats "
            f"up to {FORMAT}. Nothing has been changed. Install the newer version here, or use another home and catalog"
        )
    return found
