"""From where a run reads, as a request says: a savepoint or checkpoint that is there, or one of a running job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import StrictBool

from stateferry.airflow.requests.request_parts import Connection, Request, Text
from stateferry.runs.plan.option_marks import SOURCE, Kind, Option

# The fields that each source has, and those that it needs.
_FIELDS = {
    "demo": (),
    "path": ("savepoint",),
    "folder": ("savepoint_folder",),
    "flink": ("flink_job", "savepoint_directory"),
    "checkpoint": ("flink_job", "checkpoint_folder", "savepoint_directory"),
}
_NEEDED = _FIELDS | {"checkpoint": ()}


class Source(Request):
    """The source of a run."""

    source: Annotated[
        Literal["demo", "path", "folder", "flink", "checkpoint"],
        Option(
            Kind.CHOICE,
            "Where from",
            "`demo`: the demo savepoint, whose operator and states are known. `path`: a savepoint or checkpoint that "
            "you name. `folder`: the newest one in a folder. `flink`: one that Flink takes now; a cut-over stops the "
            "job with it, in a rehearsal the job continues. `checkpoint`: in a rehearsal the newest checkpoint of a "
            "job, which costs the job nothing; a cut-over stops the job with a savepoint and reads that",
            section=SOURCE,
        ),
    ] = "demo"
    savepoint: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Savepoint",
            "for `path`: the folder of a savepoint, canonical or native, or of a checkpoint of RocksDB",
            section=SOURCE,
        ),
    ] = None
    savepoint_folder: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Folder of savepoints",
            "for `folder`: the folder that has one folder for each savepoint",
            section=SOURCE,
        ),
    ] = None
    flink_job: Annotated[
        Text, Option(Kind.TEXT, "Running job", "for `flink` and `checkpoint`: the job's name or id", section=SOURCE)
    ] = None
    checkpoint_folder: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Folder of checkpoints",
            "for `checkpoint`, instead of a running job: the folder that has the job's checkpoints (`chk-N`)",
            section=SOURCE,
        ),
    ] = None
    job_stopped: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "The job is stopped",
            "for a cut-over from a folder of checkpoints: the job has stopped, and processes nothing after its last "
            "checkpoint",
            section=SOURCE,
        ),
    ] = False
    savepoint_directory: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Savepoint directory",
            "for `flink`, and for a cut-over with `checkpoint`: the directory into which Flink writes the savepoint. "
            "Spark must be able to read it",
            section=SOURCE,
        ),
    ] = None
    flink_conn_id: Annotated[
        Connection,
        Option(Kind.TEXT, "Flink connection", "Airflow's connection of type Flink", section=SOURCE),
    ] = "flink_default"

    @property
    def is_of_running_job(self) -> bool:
        """Whether the source is of a running job, which a cut-over stops."""
        return self.source == "flink" or (self.source == "checkpoint" and self.has("flink_job"))

    def source_problems(self, *, rehearses: bool) -> Iterator[str]:
        """What is wrong with these fields."""
        for name in _NEEDED[self.source]:
            if not self.has(name):
                yield f"{name}: missing, and source '{self.source}' needs it"
        of_others = {name: source for source, names in reversed(_FIELDS.items()) for name in names}
        for name, source in of_others.items():
            if name not in _FIELDS[self.source] and self.has(name):
                yield f"{name}: given, but source is '{self.source}': choose '{source}', or leave {name} empty"
        if self.job_stopped and (self.source != "checkpoint" or not self.has("checkpoint_folder")):
            yield "job_stopped: on, and only checkpoint_folder needs it: turn it off"
        if self.source == "checkpoint":
            yield from self._checkpoint_problems(rehearses=rehearses)

    def _checkpoint_problems(self, *, rehearses: bool) -> Iterator[str]:
        in_folder, of_job = self.has("checkpoint_folder"), self.has("flink_job")
        if in_folder == of_job:
            found = "both given" if of_job else "both missing"
            yield f"flink_job, checkpoint_folder: {found}, and source 'checkpoint' needs one of them"
        elif of_job and not rehearses and not self.has("savepoint_directory"):
            yield "savepoint_directory: missing: a cut-over stops the job with a savepoint, which Flink writes there"
        elif in_folder and not rehearses and not self.job_stopped:
            yield (
                "job_stopped: off, and a cut-over from checkpoint_folder loses what the job processes after its last "
                "checkpoint: stop the job and turn this on, or give flink_job instead of the folder"
            )
