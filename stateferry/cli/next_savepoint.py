"""The savepoint with which Flink stops the job next: `stateferry run --next-in FOLDER`.

The command begins before the job stops, so Spark's start is no part of the outage.
"""

from __future__ import annotations

import time
from contextlib import suppress

from flinkstate.errors import DamagedError, StateferryError, TransientError, UsageError
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import complete_savepoints
from flinkstate.metadata.savepoint_properties import is_savepoint, stops_job
from flinkstate.reading.reader import Savepoint
from stateferry.basics.durations import format_duration, parse_duration
from stateferry.basics.printable import say
from stateferry.runs.checks.plan_check import open_source, resolve
from stateferry.runs.guards.earlier_names import history_errors
from stateferry.runs.guards.option_notes import nothing_to_do_lines
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.run_states import ENDED

_LOOK, _LOOK_AT_STORE = 0.2, 1.0


def check_none_has_begun(plan: MigrationPlan, arrived: str | None = None) -> None:
    """Refuses to wait if a run of this plan isn't over: whether its savepoint is out of date, only a person knows.

    After the wait, refuses if the same command, given twice, has begun a run on the savepoint that has `arrived`.
    """
    for run in runs_of(plan.home, plan.job):
        if run.plan is None or run.state in ENDED or run.plan.rehearse or plan.rehearse:
            continue
        source = run.plan.source
        if run.plan.is_asked_for_again_by(plan.model_copy(update={"source": source})):
            if source == arrived:
                raise UsageError(
                    f"--next-in: another command has begun run {run.run_id} on {source}, so this one does nothing"
                )
            raise UsageError(
                f"--next-in: run {run.run_id} has begun on {source} and isn't over. If the job has not processed input "
                f"since that savepoint, continue the run: give --savepoint {source} instead of --next-in. Else begin "
                "anew: give another --target"
            )


class NextSavepoint:
    """The savepoint of the plan's job that is completed in the folder after this object was made.

    Unless the plan is a rehearsal, it is one with which the job was stopped.
    """

    def __init__(self, folder: Location, plan: MigrationPlan, patience: str) -> None:
        if not folder.is_folder():
            raise UsageError(f"--next-in: {folder.shown} is no folder with savepoints of the job")
        self._folder, self._plan, self._patience = folder, plan, parse_duration(patience)
        self._before = {savepoint.shown: at for at, savepoint in complete_savepoints(folder)}

    def check_plan(self) -> None:
        """Holds the plan against the job's newest savepoint that is there already, and refuses what doesn't fit."""
        why = f"--next-in: {self._folder.shown} has no savepoint yet"
        for name in sorted(self._before, key=self._before.__getitem__, reverse=True):
            like = self._plan.model_copy(update={"source": name})
            try:
                if (missing := self._why_not_of_job(name)) is not None:
                    why = f"--next-in: {name} isn't a savepoint of the job: {missing}"
                    continue
                resolved = resolve(like, open_source(like))
                for error in history_errors(resolved):
                    raise error
            except DamagedError as error:
                why = f"--next-in: {error}"
                continue
            if not resolved.nothing_to_do:
                say(f"the plan fits {name}, the job's newest savepoint here")
                if stops_job(resolved.source.metadata):
                    say(f"note: the job was stopped with it. If it hasn't run since, give --savepoint {name} instead")
                return
            why = f"--next-in: {name}: {'; '.join(nothing_to_do_lines(resolved))}"
        raise UsageError(
            f"{why}. The plan is checked on a savepoint of the job before the job stops: take one in this folder first"
        )

    def wait(self) -> str:
        """Returns it once it is complete; raises an error if it isn't in time."""
        end = time.monotonic() + self._patience / 1000
        passed_over = set(self._before)
        while time.monotonic() <= end:
            # A store that doesn't answer may do so the next time.
            with suppress(TransientError):
                new = [entry for entry in self._folder.folders() if entry.shown not in passed_over]
                for _, entry in complete_savepoints(self._folder, new):
                    try:
                        why_not = self._why_not(entry.shown)
                    except DamagedError:
                        # Some filesystems show a file while it is written.
                        continue
                    if why_not is None:
                        return entry.shown
                    say(f"note: {entry.shown} isn't taken: {why_not}")
                    passed_over.add(entry.shown)
            time.sleep(_LOOK if self._folder.is_local else _LOOK_AT_STORE)
        raise UsageError(
            f"--next-in: the job was not stopped with a savepoint in {self._folder.shown} within "
            f"{format_duration(self._patience)}. If it was stopped, give its savepoint (--savepoint)"
        )

    def _why_not(self, savepoint: str) -> str | None:
        """Why a complete savepoint isn't the one that is waited for; None if it is."""
        if (missing := self._why_not_of_job(savepoint)) is not None:
            return missing
        metadata = Savepoint.open(savepoint).metadata
        if not is_savepoint(metadata):
            return "it is a checkpoint"
        if not self._plan.rehearse and not stops_job(metadata):
            return "the job was not stopped with it"
        return None

    def _why_not_of_job(self, savepoint: str) -> str | None:
        """What of the plan's operators it lacks: other jobs may have their savepoints in the folder too."""
        try:
            opened = Savepoint.open(savepoint)
            for wanted in self._plan.operators:
                opened.operator(wanted.operator)
        except (DamagedError, TransientError):
            raise
        except StateferryError as error:
            return str(error)
        return None
