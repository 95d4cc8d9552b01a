"""The run that a command names: by its id, the beginning of one, or the run's folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flinkstate.errors import UsageError

if TYPE_CHECKING:
    from stateferry.runs.record.runs import Run


def named_run(name: str, job: str | None, home_of: Callable[[], str]) -> Run:
    """The run; the home is needed only for an id."""
    from flinkstate.files.storage import Location
    from stateferry.runs.record.run_list import find_run, runs_of, those_named
    from stateferry.runs.record.runs import Run

    if "/" in name:
        folder = Run.if_there(Location.of(name.rstrip("/")))
        if folder is None:
            raise UsageError(f"{name} is not the folder of a run: it has no plan.json")
        return folder
    home = home_of()
    if job is not None:
        return find_run(home, job, name)
    found = those_named(runs_of(home), name)
    if len(found) != 1:
        several = ", ".join(f"{one.run_id} of job {one.job}" for one in found)
        raise UsageError(
            f"{home} has {f'{len(found)} runs' if found else 'no run'} {name!r}"
            + (f": {several}. Name the job with --job, or more of the id" if found else ": `stateferry runs` lists all")
        )
    return Run.open(found[0].folder)
