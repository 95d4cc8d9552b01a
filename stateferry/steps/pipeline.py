"""Carries out a run: does each step once, in order, and skips the steps that an earlier try has finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from flinkstate.errors import RejectedError, StateferryError, TransientError
from flinkstate.files.stores import reaching
from stateferry.basics.durations import now_ms
from stateferry.runs.catalog.lease import LeaseLostError
from stateferry.runs.control.rejecting import check_may_continue
from stateferry.runs.predict.estimates import Prediction
from stateferry.runs.predict.prediction import predicted
from stateferry.runs.record.facts import TimedFacts
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.step_facts import TablesFacts
from stateferry.runs.record.steps import Step
from stateferry.runs.report.proven import green_report
from stateferry.show.run_page import run_page
from stateferry.show.run_view import RunView
from stateferry.steps import cut_over, migrate, nights, rescale, snapshot, validate
from stateferry.steps.claimable_copies import copy_ahead
from stateferry.steps.run_at_work import RunAtWork


def _tables(work: RunAtWork) -> TablesFacts:
    # This imports Iceberg's library, which takes as long as all others together. The other steps do without it.
    from stateferry.steps import tables

    return tables.do(work)


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A step: what does it, and whether what it has left still `stands` when it is done. Its facts are in `FACTS_OF`.

    It needs all steps of the run before it.
    """

    step: Step
    do: Callable[[RunAtWork], TimedFacts]
    stands: Callable[[RunAtWork], bool] = lambda _: True


STEPS = (
    StepSpec(Step.SNAPSHOT, snapshot.do),
    StepSpec(Step.MIGRATE, migrate.do, migrate.stands),
    StepSpec(Step.RESCALE, rescale.do),
    StepSpec(Step.VALIDATE, validate.do),
    StepSpec(Step.CUT_OVER, cut_over.do),
    StepSpec(Step.TABLES, _tables),
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Does the steps of one run: for a command, for an application of one step, and for one that steps share."""

    work: RunAtWork

    def carry_out(self, *wanted: Step) -> None:
        """Does those of the wanted steps that aren't done, in their order; by default all steps of the run."""
        work, run = self.work, self.work.run
        steps = wanted or run.steps
        for step in steps:
            self._check_is_of_run(step)
        if steps[0] is Step.MIGRATE and nights.has_begun_again(run) and not run.has_done(Step.SNAPSHOT):
            # An earlier try of this step was killed when it did the snapshot again.
            steps = (Step.SNAPSHOT, *steps)
        self._check_needs(steps[0])
        with self._at_work():
            if steps[0] is Step.SNAPSHOT and not run.has_done(Step.SNAPSHOT):
                nights.begin(work)
                run = work.run
            if self._leads_to(steps[0]) is RunState.RUNNING:
                work.check_may_become(RunState.RUNNING)
                run.enter(RunState.RUNNING, now_ms())
            if {Step.SNAPSHOT, Step.MIGRATE} <= set(steps):
                migrate.ask_ahead(work)
            for spec in STEPS:
                if spec.step in steps:
                    self._do(spec)

    def _leads_to(self, step: Step) -> RunState:
        publishes = step in (Step.CUT_OVER, Step.TABLES) and not self.work.run.plan.rehearse
        return RunState.PUBLISHED if publishes else RunState.RUNNING

    def _check_is_of_run(self, step: Step) -> None:
        run = self.work.run
        if step not in run.steps:
            why = "migrates no state: there are no tables to write"
            if step is Step.CUT_OVER:
                why = "is a rehearsal: there is nothing to cut over to"
            raise RejectedError(f"run {run.plan.run_id} {why}")

    def _check_needs(self, step: Step) -> None:
        run = self.work.run
        before = run.steps[: run.steps.index(step)]
        missing = [spec for spec in STEPS if spec.step in before and not self._is_done(spec)]
        if missing:
            names = ", ".join(spec.step for spec in missing)
            gone = ", whose files are not what it has written" if run.has_done(missing[0].step) else ""
            raise RejectedError(f"run {run.plan.run_id}: {step} comes after {names}{gone}: do that first")

    def _is_done(self, spec: StepSpec) -> bool:
        if spec.step is Step.CUT_OVER:
            return check_may_continue(self.work.run, self.work.control).state is RunState.PUBLISHED
        return self.work.run.has_done(spec.step) and spec.stands(self.work)

    def _do(self, spec: StepSpec) -> None:
        """Does a step if it isn't done, and puts the run into the state to which it leads."""
        work, step = self.work, spec.step
        if step is Step.CUT_OVER and work.run.state not in (RunState.VERIFIED, RunState.APPROVED):
            # The validation was killed after it had written its report, or an earlier cut-over failed.
            self._verify()
        work.check_may_become(self._leads_to(step))
        if step is Step.CUT_OVER or not self._is_done(spec):
            began = work.workers.begin(step)
            work.keep(self._facts_of(spec), began)
        run = work.run
        if run.stored(Prediction) is None:
            # Now the size is known. What is predicted stays as it is, whatever becomes known later.
            run.keep(predicted(run))
        if step is Step.CUT_OVER:
            run.note(RunState.PUBLISHED, now_ms())
        if step is Step.VALIDATE or (step is Step.TABLES and run.plan.rehearse):
            self._verify()
        if step is Step.VALIDATE:
            # This is no part of an outage, so its time isn't the validation's.
            copy_ahead(work)

    def _facts_of(self, spec: StepSpec) -> TimedFacts:
        """Does the step. A night that can't go on as a catch-up does all steps up to this one for everything."""
        try:
            return spec.do(self.work)
        except StateferryError as error:
            if spec.step not in (Step.SNAPSHOT, Step.MIGRATE) or not nights.becomes_whole(self.work, error):
                raise
        for earlier in STEPS[: STEPS.index(spec)]:
            self._do(earlier)
        return spec.do(self.work)

    def _verify(self) -> None:
        """Checks that the report is green; a rehearsal is verified when its tables have followed, too."""
        work, run = self.work, self.work.run
        work.check_may_become(RunState.VERIFIED)
        green_report(run)
        is_verified = not run.plan.rehearse or run.has_done(run.steps[-1])
        run.enter(RunState.VERIFIED if is_verified else RunState.STAGED, now_ms())

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        with self.work.renewal:
            try:
                with reaching():
                    yield
            except TransientError:
                # The run has not failed: the next try of this driver, or another driver, continues it.
                raise
            except StateferryError as error:
                self._fail(error)
                _write_page(self.work)
                raise
            _write_page(self.work)

    def _fail(self, error: StateferryError) -> None:
        try:
            self.work.control.renew(self.work.lease)
        except LeaseLostError as lost:
            # Another driver continues the run and may have caused the error by removing drafts. It records how the run
            # ends.
            raise lost from error
        except Exception:  # noqa: BLE001 the first error is the one that counts
            return
        with suppress(Exception):
            self.work.run.enter(RunState.FAILED, now_ms(), str(error))


def _write_page(work: RunAtWork) -> None:
    """Writes the report of the run as a page. Nothing depends on it, so a run doesn't fail without it."""
    page = work.run.report_page
    try:
        if work.run.report.is_file():
            page.write_atomically(run_page(RunView.of(work.run, nights=True)).encode())
    except Exception as error:  # noqa: BLE001 whatever is wrong with the page, the migration goes on
        work.say(f"note: the page {page.shown} could not be written: {error}")
