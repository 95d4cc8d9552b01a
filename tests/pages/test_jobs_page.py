"""The page of all jobs, in parts."""

from __future__ import annotations

from stateferry.runs.record.catch_ups import catch_up_id
from stateferry.runs.record.run_states import RunState
from stateferry.show.jobs_page import Job, jobs_page
from stateferry.show.run_rows import RunRow


def row(run_id: str, state: RunState) -> RunRow:
    return RunRow("orders", run_id, f"/home/runs/orders/{run_id}", True, state, green=True)


def test_catch_ups_for_a_cut_over_are_no_nights() -> None:
    catch_ups = [row(catch_up_id("second", number), RunState.STAGED) for number in (2, 1)]
    rows = (*catch_ups, row("second", RunState.VERIFIED), row("first", RunState.VERIFIED))
    page = jobs_page([Job("orders", "/jobs/orders", rows)], [], top=None)
    assert "2 of 2 green" in page
