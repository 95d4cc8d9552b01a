"""Finds and reads the source savepoint of a request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from flinkstate.basics.did_you_mean import there_are
from flinkstate.errors import RefusedError, UsageError
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA, complete_savepoints
from flinkstate.metadata.metadata import Metadata
from flinkstate.metadata.parse_metadata import parse_metadata
from stateferry.runs.plan.homes import default_home
from stateferry.runs.record.held_checkpoint import no_checkpoint

if TYPE_CHECKING:
    from stateferry.airflow.flink.checkpoints import Checkpoint

DEMO = "demo/legacy"


def home_folder() -> str:
    """Stateferry's home, as an absolute path or an address."""
    home = default_home()
    return home.rstrip("/") if "://" in home else os.path.abspath(os.path.expanduser(home))


def demo_savepoint() -> str:
    """The folder of the demo savepoint."""
    location = Location.of(home_folder()).child(DEMO)
    if not location.child(METADATA).is_file():
        raise UsageError(
            f"source 'demo': there is no demo savepoint at {location.shown}: `make demo` writes it (or `stateferry "
            "demo-savepoint`), or choose another source"
        )
    return location.shown


def demo_now(savepoint: str) -> int:
    """What counts as now for the demo savepoint, which may be years old: when it was completed, in milliseconds."""
    return _metadata_of(savepoint).modified_at()


def newest_savepoint(folder: str, as_of: datetime) -> str:
    """The savepoint in the folder that was completed last, but not after the moment; `_metadata` is written last."""
    limit = int(as_of.timestamp() * 1000)
    where = Location.of(folder)
    if not where.is_folder():
        raise UsageError(f"savepoint_folder: there is no folder {where.shown}")
    completed = [(at, savepoint.shown) for at, savepoint in complete_savepoints(where)]
    eligible = [one for one in completed if one[0] <= limit]
    if not eligible:
        later = f"; {len(completed)} are newer" if completed else ""
        moment = f"{as_of.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        raise UsageError(f"{where.shown} has no completed savepoint as of {moment}{later}")
    return max(eligible)[1]


def newest_checkpoint_of_job(checkpoints: Sequence[Checkpoint], job: str, as_of: datetime | None) -> str:
    """The newest of the job's checkpoints that was completed by the moment, if one is given."""
    limit = None if as_of is None else int(as_of.timestamp() * 1000)
    eligible = [one for one in checkpoints if limit is None or one.completed_at <= limit]
    if not eligible:
        raise UsageError(no_checkpoint(f"Flink knows of no checkpoint of job {job}", as_of, len(checkpoints)))
    return max(eligible, key=lambda one: one.id).location


def read_metadata(savepoint: str) -> Metadata:
    """The savepoint's parsed `_metadata`."""
    file = _metadata_of(savepoint)
    return parse_metadata(file.read(), file.shown)


def completed_at(savepoint: str) -> datetime:
    """When the savepoint was completed."""
    return datetime.fromtimestamp(_metadata_of(savepoint).modified_at() / 1000, UTC)


def _metadata_of(savepoint: str) -> Location:
    location = Location.of(savepoint)
    file = location if location.name == METADATA and location.is_file() else location.child(METADATA)
    if not file.is_file():
        raise UsageError(f"{location.shown} is no savepoint: it has no {METADATA}")
    return file


def check_operators(metadata: Metadata, wanted: Sequence[str], savepoint: str) -> None:
    """Refuses a wrong operator at once, if the savepoint contains names.

    States are checked later, when the state files are read.
    """
    operators = metadata.operators
    if any(one.uid is None and one.name is None for one in operators):
        return
    for name in wanted:
        if not any(name in (one.uid, one.name) or name.lower() == one.hex_id for one in operators):
            known = [one.label for one in operators]
            raise RefusedError(f"{savepoint} has no operator {name!r}. {there_are(name, known)}")
