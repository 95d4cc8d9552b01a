"""The options by which commands read a savepoint: its place, the files of a moved checkpoint, and the job's classes."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from flinkstate.metadata.moved_files import needless_roots, root_of
from stateferry.basics.printable import say

if TYPE_CHECKING:
    from flinkstate.classfiles.job_classes import JobClasses
    from flinkstate.reading.reader import Savepoint

_OBJECTS = (
    "a jar of the job, or a folder of class files: what the objects are in values by Kryo; may be repeated. None of "
    "its code runs"
)


def add_savepoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("savepoint", metavar="SAVEPOINT", help="its folder or _metadata, as a path or URI")


def add_files_from(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--files-from",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="the files that a checkpoint's _metadata has below OLD are below NEW now (paths or URIs); may be repeated",
    )


def roots_of(options: argparse.Namespace) -> dict[str, str]:
    """Returns the new beginnings of addresses by the old ones; Airflow's form gives several lines at once."""
    return dict(root_of(text, "--files-from") for given in options.files_from for text in given.splitlines())


def opened(options: argparse.Namespace, place: str | None = None) -> Savepoint:
    """Opens the savepoint, or another one whose files have moved in the same way."""
    from flinkstate.reading.reader import Savepoint

    roots = roots_of(options)
    savepoint = Savepoint.open(place or options.savepoint, files_from=roots)
    # Another savepoint that the command reads may need it.
    if not any(getattr(options, name, None) for name in ("before", "changed_since")):
        for note in needless_roots(savepoint.metadata, roots, savepoint.folder.shown):
            say(f"note: {note}", sys.stderr)
    return savepoint


def add_classes(parser: argparse._ActionsContainer, what: str = _OBJECTS) -> None:
    parser.add_argument("--classes", action="append", default=[], metavar="JAR", help=what)


def classes_of(options: argparse.Namespace) -> JobClasses | None:
    """Returns the classes that were given; Airflow's form gives several lines at once."""
    places = tuple(line for given in options.classes for line in given.splitlines())
    if not places:
        return None
    from flinkstate.classfiles.job_classes import job_classes

    return job_classes(places)
