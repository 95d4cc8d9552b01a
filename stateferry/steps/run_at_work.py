"""The work on one run, as its steps see it: the workers, the run with its plan, and the job's lease."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import drafts
from stateferry.basics.durations import now_ms
from stateferry.runs.catalog.lease import Lease, LeaseRenewal
from stateferry.runs.catalog.publications import Control
from stateferry.runs.checks.plan_check import open_source, resolve
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.control.rejecting import check_may_continue
from stateferry.runs.record.facts import TimedFacts
from stateferry.runs.record.run_states import RunState, check_change
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts
from stateferry.steps.workers import Workers


@dataclass(slots=True)
class RunAtWork:
    """The work on one run, under its job's lease; `say` gets notes for people."""

    workers: Workers
    run: Run
    # The plan and its source, if they are open; else they are opened when a step needs them.
    opened: ResolvedPlan | None
    control: Control
    lease: Lease
    say: Callable[[str], None] = lambda _: None
    renewal: LeaseRenewal = field(init=False)
    # The catalog is asked while the snapshot step's tasks are at work, as it may be slow to answer.
    known_keys: Future[Any] | None = field(init=False, default=None)
    _has_chosen: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.renewal = LeaseRenewal(self.control, self.lease)
        # Only the holder of the lease changes the facts of steps.
        self.run = self.run.read_ahead()

    @property
    def resolved(self) -> ResolvedPlan:
        """The plan and its source, with what the snapshot of a lazy run has chosen. To publish needs neither."""
        if self.opened is None:
            self.opened = resolve(self.run.plan, open_source(self.run.plan))
        if self.run.plan.lazy and not self._has_chosen and (facts := self.run.facts(SnapshotFacts)) is not None:
            self.opened, self._has_chosen = self.opened.moving(facts.lazy or ()), True
        return self.opened

    def plan_anew(self, run: Run, resolved: ResolvedPlan | None) -> None:
        """Goes on with the run as it is with another plan, which is opened already or will be."""
        self.run, self.opened, self._has_chosen = run, resolved, False

    @property
    def files(self) -> Location:
        """The folder of the new savepoint's files: the target, or in a rehearsal the run's own folder."""
        return self.run.staged if self.run.plan.rehearse else Location.of(self.run.plan.target)

    def check_may_become(self, state: RunState) -> None:
        """Raises an error if this driver has lost the lease, the run was rejected, or the state may not follow.

        It is called before any work that leads to the state.
        """
        self.renewal.check()
        check_change(check_may_continue(self.run, self.control), state)

    def remove_drafts(self) -> None:
        """Removes drafts in the folder of the new savepoint's files, both before a step writes and afterwards.

        They come from earlier drivers, which can't commit any more, or from tasks whose result isn't used. A driver
        that has lost the lease removes nothing.
        """
        self.renewal.check()
        for draft in drafts(self.files):
            draft.remove()

    def keep(self, facts: TimedFacts, began: float) -> None:
        """Keeps the facts of a step, which is done now and began at this time of the monotonic clock."""
        self.renewal.check()
        self.run.keep(replace(facts, seconds=round(time.monotonic() - began, 3), ended_at=now_ms()))
