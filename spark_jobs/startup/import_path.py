"""Lets an application import the installed pyspark, not a copy in a zip.

spark-submit, and Spark for its Python workers, put that zip first. Its modules aren't compiled, so importing them takes
three times as long.
"""

from __future__ import annotations

import sys
from pathlib import Path

_IN_PACKAGE = ("pyspark", "python", "lib")


def prefer_installed() -> None:
    """Moves the zips of an installed pyspark to the end of the path; call it before pyspark is imported.

    These zips have the same version. Those of a Spark that is installed elsewhere stay first.
    """
    sys.path[:] = sorted(sys.path, key=_is_copy_of_installed)


def _is_copy_of_installed(entry: str) -> bool:
    file = Path(entry)
    folder = file.parent
    return file.suffix == ".zip" and folder.parts[-3:] == _IN_PACKAGE and str(folder.parents[2]) in sys.path
