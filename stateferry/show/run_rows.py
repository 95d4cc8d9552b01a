"""Many runs in short, for lists and plots. A run is read again only when something in its folder has changed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from flinkstate.errors import StateferryError
from flinkstate.files.storage import Location, side_by_side
from stateferry.runs.record.facts import Began
from stateferry.runs.record.run_list import run_stamps
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run, check_home
from stateferry.show.outage_view import is_approved
from stateferry.show.run_view import RunView

# Pages of so many readers show the same look at the folders.
_FRESH_SECONDS = 2.0
# The runs on an object store are listed less often.
_REMOTE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in short; `green` is None as long as it has no report. A run that can't be read has a `problem`.

    `rows` are the entries of the new states, `tables_rows` those of them that were written into the tables, because
    they are of new or changed keys.
    """

    job: str
    run_id: str
    folder: str
    rehearse: bool = True
    state: RunState | None = None
    reason: str = ""
    planned_at: int = 0
    changed_at: int = 0
    green: bool | None = None
    size: int | None = None
    rows: int | None = None
    tables_rows: int | None = None
    seconds: float | None = None
    outage: float | None = None
    dag_id: str | None = None
    dag_run_id: str | None = None
    problem: str = ""
    # It is a rehearsal on which a cut-over was approved.
    approved: bool = False


@dataclass(frozen=True, slots=True)
class _Kept:
    stamp: tuple[object, ...]
    row: RunRow


class RunRows:
    """The runs of a home, the newest first. Many threads may ask at once; one of them reads."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._rows: tuple[RunRow, ...] = ()
        self._read_at = float("-inf")

    def rows(self) -> tuple[RunRow, ...]:
        """All runs."""
        with self._lock:
            fresh = _FRESH_SECONDS if Location.of(self._home).is_local else _REMOTE_SECONDS
            if time.monotonic() - self._read_at > fresh:
                self._read()
            return self._rows

    def _read(self) -> None:
        check_home(self._home)
        home = Location.of(self._home)
        looks = side_by_side(home, lambda one: (one[0].path, self._look(*one)), run_stamps(self._home))
        self._kept = kept = dict(looks)
        rows = (one.row for one in kept.values())
        self._rows = tuple(sorted(rows, key=lambda row: (row.planned_at, row.run_id), reverse=True))
        self._read_at = time.monotonic()

    def _look(self, folder: Location, stamp: tuple[object, ...]) -> _Kept:
        before = self._kept.get(folder.path)
        if before is not None and before.stamp == stamp:
            return before
        try:
            return _Kept(stamp, row_of(Run.open(folder)))
        except (StateferryError, OSError) as error:
            return _Kept((), RunRow(folder.parent.name, folder.name, folder.shown, problem=str(error)))


def row_of(run: Run) -> RunRow:
    """The run in short."""
    view, began = RunView.of(run), run.facts_if_sound(Began)
    return RunRow(
        view.plan.job,
        view.plan.run_id,
        view.folder,
        view.plan.rehearse,
        view.state,
        view.reason,
        view.changes[0].at if view.changes else 0,
        view.changes[-1].at if view.changes else 0,
        None if view.report is None else view.report.is_green,
        None if view.snapshot is None else view.snapshot.size,
        view.rows_written,
        None if view.tables is None else view.tables.rows,
        sum(view.seconds.values()) if view.seconds else None,
        view.outage,
        None if began is None else began.dag_id,
        None if began is None else began.dag_run_id,
        view.problems[0] if view.problems else "",
        is_approved(run),
    )
