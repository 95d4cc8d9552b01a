"""Kinds of alterations of a result, each drawn at random: what a faulty tool, disk or hand could do to it.

`HARMFUL` change what Flink would restore, or whether it restores at all; `HARMLESS` don't.
"""

from tests.support.alterations import files, headers, layout, operator_state, rows
from tests.support.alterations.scene import HARMFUL, HARMLESS, NotApplicableError, Place, Scene

__all__ = [
    "HARMFUL",
    "HARMLESS",
    "NotApplicableError",
    "Place",
    "Scene",
    "files",
    "headers",
    "layout",
    "operator_state",
    "rows",
]
