"""The folder of a run, which records how far the run has come.

| path under `runs/<job>/<run id>/` | holds |
|---|---|
| plan.json | the plan; it is written first |
| state.json | the states that the run went through, each with time and reason |
| state.lock | nothing; it is locked while state.json is written (on an object store the job's lease instead) |
| steps/<name>.json | the facts of a finished step, and other facts, with the plan's fingerprint and a digest |
| blob-times | the timestamps of legacy blobs with time to live, if the next night can go on from this run |
| changed-keys | of a catch-up, the keys that have changed since its base |
| report.json | what the validation found |
| report.html | the same and more as a page |
| progress.json | how far the step at work has come |
| rescale-plan.json | which bytes each new subtask reads |
| staged/ | the staged savepoint |
| to-publish/_metadata | the target's `_metadata`, until the publication stands |
| held/ | the checkpoint that the run reads, by further names or copies of its files |
| exchange/ | entries on their way to key groups of another max parallelism, from the migrate step to the rescale step |
| temporary.json | the temporary folders of the run's processes |


`format.json` beside `runs/` holds the version of these formats. Every file appears complete or not at all.
"""

from __future__ import annotations

import hashlib
import re
from functools import reduce

from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from stateferry.runs.record.facts import RunFacts

PLAN_FILE, HELD = "plan.json", "held"
_PLAIN = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]{0,99}", re.ASCII)


def folder_name(job: str) -> str:
    """A folder name for the job that every filesystem accepts and no other job has: the job's own name if possible."""
    if _PLAIN.fullmatch(job):
        return job
    like = re.sub(r"[^0-9A-Za-z_-]+", "-", job)[:60].strip("-")
    return f"{like or 'job'}~{hashlib.sha256(job.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def run_folder(home: str, job: str, run_id: str) -> Location:
    """The folder of a run under the home."""
    return runs_folder(home).child(folder_name(job)).child(run_id)


class _Inside:
    """A path in the folder of a run."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, run: RunFolder, _: object) -> Location:
        return reduce(Location.child, self._names, run.folder)


class RunFolder:
    """The paths in the folder of a run, which the table above describes. Other modules ask here for them."""

    __slots__ = ()
    folder: Location

    plan_file = _Inside(PLAN_FILE)
    state_file = _Inside("state.json")
    state_lock = _Inside("state.lock")
    blob_times = _Inside("blob-times")
    changed_keys = _Inside("changed-keys")
    report = _Inside("report.json")
    report_page = _Inside("report.html")
    progress = _Inside("progress.json")
    rescale_plan = _Inside("rescale-plan.json")
    staged = _Inside("staged")
    staged_metadata = _Inside("staged", METADATA)
    target_metadata = _Inside("to-publish", METADATA)
    held = _Inside(HELD)
    exchange = _Inside("exchange")
    temporary_folders = _Inside("temporary.json")
    _steps = _Inside("steps")

    def remove(self) -> None:
        """Removes the folder; the plan goes last, because a folder without one counts as a run that never began."""
        for entry in self.folder.entries():
            if entry.name != PLAN_FILE:
                entry.remove()
        self.folder.remove()

    def file_of(self, kind: type[RunFacts]) -> Location:
        """The file of these facts."""
        return self._steps.child(f"{kind.name}.json")


def runs_folder(home: str) -> Location:
    """The folder of all runs of a home."""
    return Location.of(home).child("runs")
