"""What the page of a run shows, read from the run's folder.

A run that is at work or was killed has not all of its facts yet. What is missing is None; what can't be read is a
problem, which the page names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flinkstate.errors import StateferryError, TransientError
from stateferry.changes.counts import ConversionCounts
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.predict.convergence import Night, nights_of
from stateferry.runs.predict.prediction import PART_NAMES, outage_of, times_of
from stateferry.runs.record.facts import (
    NothingToDo,
    Returned,
    RunFacts,
    StagedAccounts,
    StagedDigests,
    TablesProblem,
)
from stateferry.runs.record.key_group_sizes import SourceSizes, StagedSizes
from stateferry.runs.record.run_states import RunState, StateChange
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import MigrateFacts, RescaleFacts, SnapshotFacts, TablesFacts
from stateferry.runs.report.report import Report

Read = TypeVar("Read")
Facts = TypeVar("Facts", bound=RunFacts)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as its folder describes it.

    `entries` are, of a catch-up, those that the validation has found in the new states, if it kept them for the tables.
    """

    plan: MigrationPlan
    folder: str
    changes: tuple[StateChange, ...] = ()
    report: Report | None = None
    snapshot: SnapshotFacts | None = None
    migrate: MigrateFacts | None = None
    rescale: RescaleFacts | None = None
    tables: TablesFacts | None = None
    digests: StagedDigests | None = None
    before: SourceSizes | None = None
    after: StagedSizes | None = None
    returned: Returned | None = None
    tables_problem: TablesProblem | None = None
    nothing_to_do: NothingToDo | None = None
    movements: tuple[dict[str, Any], ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    outage: float | None = None
    problems: tuple[str, ...] = ()
    nights: Mapping[str, tuple[Night, ...]] = field(default_factory=dict)
    entries: int | None = None

    @classmethod
    def of(cls, run: Run, *, nights: bool = False) -> RunView:
        """The run; never fails for a file that is missing or damaged.

        Its nights are read from all runs of the job, so only who shows them should ask for them.
        """
        problems: list[str] = []
        is_away = False

        def attempt(read: Callable[[], Read], otherwise: Read) -> Read:
            nonlocal is_away
            if is_away:
                return otherwise
            try:
                return read()
            except StateferryError as error:
                problems.append(str(error))
                # A store that is silent takes many seconds for each answer that doesn't come.
                is_away = isinstance(error, TransientError) and not run.folder.is_local
                return otherwise

        def facts(kind: type[Facts]) -> Facts | None:
            return attempt(lambda: run.facts(kind), None)

        run = attempt(run.looked_at, run)
        migrate = facts(MigrateFacts)
        # Those of a lazy run are of all keys, also of those whose maps have become no rows.
        accounts = facts(StagedAccounts) if _is_catch_up(migrate) and not run.plan.lazy else None
        return cls(
            plan=run.plan,
            folder=run.folder.shown,
            changes=attempt(run.changes, ()),
            report=attempt(lambda: _report(run), None),
            snapshot=facts(SnapshotFacts),
            migrate=migrate,
            rescale=facts(RescaleFacts),
            tables=facts(TablesFacts),
            digests=facts(StagedDigests),
            before=facts(SourceSizes),
            after=facts(StagedSizes),
            returned=facts(Returned),
            tables_problem=facts(TablesProblem),
            nothing_to_do=facts(NothingToDo),
            movements=attempt(lambda: _movements(run), ()),
            seconds=attempt(lambda: {part: taken.wall for part, taken in times_of(run).items()}, {}),
            outage=attempt(lambda: outage_of(run), None),
            nights=attempt(lambda: nights_of(run.plan.home, run.plan.job, run.plan.run_id) if nights else {}, {}),
            entries=None if accounts is None else sum(sum(one.counts) for one in accounts.states),
            problems=tuple(dict.fromkeys(problems)),
        )

    @property
    def state(self) -> RunState | None:
        """The present state; None if it isn't known."""
        return self.changes[-1].state if self.changes else None

    @property
    def reason(self) -> str:
        """The reason of the present state; of a run that had nothing to do, and so stays planned, why it had not."""
        if self.state is RunState.PLANNED and self.nothing_to_do is not None:
            return self.nothing_to_do.reason
        return self.changes[-1].reason if self.changes else ""

    @property
    def rows_written(self) -> int | None:
        """The entries that the new states have; None if they aren't written yet, or that isn't known."""
        if not self.is_written or self.is_catch_up:
            return self.entries
        return sum(one.rows for one in (self.migrate, self.rescale) if one is not None)

    @property
    def is_catch_up(self) -> bool:
        """Whether only entries of changed keys were converted, and the others are in the files of a base."""
        return _is_catch_up(self.migrate)

    @property
    def is_written(self) -> bool:
        """Whether the new savepoint is written."""
        return self.rescale is not None

    @property
    def converted(self) -> dict[str, ConversionCounts]:
        """What was converted, by state."""
        written = (self.migrate, self.rescale) if self.is_written else ()
        return {state: counts for one in written if one is not None for state, counts in one.counts.items()}

    @property
    def bytes_written(self) -> int | None:
        """The bytes of the new savepoint's keyed state; None if it isn't written yet."""
        if not self.is_written or self.digests is None:
            return None
        return sum(size for size, _ in self.digests.files.values())

    @property
    def times(self) -> tuple[tuple[str, float | None, float | None], ...]:
        """Each part with its seconds and its predicted seconds, in their order; parts without either are left out."""
        prediction = self.report.prediction if self.report is not None else None
        predicted = prediction.seconds if prediction is not None else {}
        rows = ((part, self.seconds.get(part), predicted.get(part)) for part in PART_NAMES)
        return tuple(row for row in rows if row[1] is not None or row[2] is not None)


def _is_catch_up(migrate: MigrateFacts | None) -> bool:
    return migrate is not None and migrate.newer is not None


def _report(run: Run) -> Report | None:
    content = run.content(run.report)
    return None if content is None else Report.of_json(content, run.report.shown)


def _movements(run: Run) -> tuple[dict[str, Any], ...]:
    text = run.content(run.rescale_plan)
    if text is None:
        return ()
    try:
        content = json.loads(text)
    except ValueError as error:
        raise StateferryError(f"{run.rescale_plan.shown}: expected JSON, found something else: {error}") from None
    return tuple(one for one in content if isinstance(one, dict)) if isinstance(content, list) else ()
