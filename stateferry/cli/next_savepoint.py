"""The savepoint that Flink completes next in a folder: `stateferry run --next-in FOLDER`.

The command begins before the job stops, so Spark's start is no part of the outage.
"""

from __future__ import annotations

import time

from stateferry.durations import format_duration, parse_duration
from stateferry.errors import DamagedError, UsageError
from stateferry.runs.plan import MigrationPlan
from stateferry.runs.run_states import ENDED, RunState
from stateferry.runs.runs import runs_of
from stateferry.savepoint.file_names import METADATA
from stateferry.savepoint.reader import Savepoint
from stateferry.savepoint.storage import Location

_LOOK, _LOOK_AT_STORE = 0.2, 1.0


class NextSavepoint:
    """The savepoint of the plan's job that is completed in the folder after this object was made."""

    def __init__(self, folder: Location, plan: MigrationPlan, patience: str) -> None:
        if folder.is_local and not folder.is_folder():
            raise UsageError(f"--next-in: there is no folder {folder.shown}")
        self._folder, self._plan, self._patience = folder, plan, parse_duration(patience)
        self._before = self._complete()

    def newest_before(self) -> str | None:
        """The job's newest savepoint that was complete already; None if there is none."""
        before = sorted(((at, name) for name, at in self._before.items()), reverse=True)
        return next((name for _, name in before if self._fits(name)), None)

    def wait(self) -> str:
        """Returns it once it is complete; raises an error if it isn't in time."""
        end = time.monotonic() + self._patience / 1000
        while True:
            new = {name: at for name, at in self._complete().items() if name not in self._before}
            if fitting := [(at, name) for name, at in new.items() if self._fits(name)]:
                return max(fitting)[1]
            if time.monotonic() > end:
                raise UsageError(self._nothing())
            time.sleep(_LOOK if self._folder.is_local else _LOOK_AT_STORE)

    def _complete(self) -> dict[str, int]:
        """The savepoints in the folder, and when each was completed."""
        found = ((entry, entry.child(METADATA)) for entry in self._folder.entries())
        return {entry.shown: file.modified_at() for entry, file in found if file.is_file()}

    def _fits(self, savepoint: str) -> bool:
        """Whether it is whole, and not of another job: several jobs may have their savepoints in one folder."""
        try:
            opened = Savepoint.open(savepoint)
            for wanted in self._plan.operators:
                opened.operator(wanted.operator)
        except (DamagedError, UsageError):
            # Some filesystems show a file while it is written.
            return False
        return True

    def _nothing(self) -> str:
        newest = self.newest_before()
        there = "" if newest is None else f". To use the newest one before that, give --savepoint {newest}"
        waited = format_duration(self._patience)
        return f"--next-in: no savepoint of the job was completed in {self._folder.shown} within {waited}{there}"


def begun_on(plan: MigrationPlan, folder: Location) -> str | None:
    """The savepoint in the folder on which a run of this plan has begun that was stopped, or has published."""
    for run in runs_of(plan.home, plan.job):
        if run.plan is None or (run.state in ENDED and run.state is not RunState.PUBLISHED):
            continue
        if plan.rehearse and run.state is RunState.VERIFIED:
            continue
        source = run.plan.source
        wanted = plan.model_copy(update={"source": source})
        if Location.of(source).parent.path == folder.path and run.plan.is_asked_for_again_by(wanted):
            return source
    return None
