"""`--classes`: the classes of a job, whose objects are in values that Kryo wrote."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flinkstate.classfiles.job_classes import JobClasses


_HELP = (
    "a jar of the job, or a folder of class files: what the objects are in values by Kryo; may be repeated. None of "
    "its code runs"
)


def add_to(parser: argparse._ActionsContainer, what: str = _HELP) -> None:
    parser.add_argument("--classes", action="append", default=[], metavar="JAR", help=what)


def classes_of(options: argparse.Namespace) -> JobClasses | None:
    """Returns the classes that were given; Airflow's form gives several lines at once."""
    places = tuple(line for given in options.classes for line in given.splitlines())
    if not places:
        return None
    from flinkstate.classfiles.job_classes import job_classes

    return job_classes(places)
