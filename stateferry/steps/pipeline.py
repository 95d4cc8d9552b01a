"""Carries out a run: does each step once, in order, and skips the steps that an earlier try has finished."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flinkstate.errors import MissingHereError, RejectedError, StateferryError, TransientError
from flinkstate.files.digests import digest_of_bytes
from flinkstate.files.storage import Location
from flinkstate.files.stores import reaching
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.bytes_read import BytesRead
from flinkstate.metadata.file_names import drafts
from flinkstate.reading.reader import Savepoint
from stateferry.basics.durations import now_ms
from stateferry.changes.staging import with_absolute_files
from stateferry.inventory.blob_times import read_blob_times, write_blob_times
from stateferry.proof.checks import StagedStates
from stateferry.proof.expected.check_result import Outcome
from stateferry.proof.judgement import Derived
from stateferry.runs.catalog.lease import Lease, LeaseLostError, LeaseRenewal
from stateferry.runs.catalog.publications import Control, Publication
from stateferry.runs.checks.apart import check_apart
from stateferry.runs.checks.plan_check import ResolvedPlan, claim_target, open_source, resolve, target_content
from stateferry.runs.checks.space import check_files, check_room, estimate
from stateferry.runs.control.rejecting import check_may_continue
from stateferry.runs.control.target_metadata import TargetMetadata
from stateferry.runs.guards.cleanup_promise import check_promises
from stateferry.runs.guards.expiry_guard import check_ages
from stateferry.runs.guards.lazy_choice import choose, measured_rate
from stateferry.runs.guards.migrated_before import check_migrated_before
from stateferry.runs.guards.option_notes import option_notes
from stateferry.runs.guards.timer_guard import check_timers
from stateferry.runs.guards.timers import shown_timers
from stateferry.runs.predict.differences import layout_of
from stateferry.runs.predict.earlier_night import earlier_night
from stateferry.runs.predict.estimates import Prediction
from stateferry.runs.predict.prediction import predicted
from stateferry.runs.record.facts import (
    ENDED_AT,
    FACTS_OF,
    OF_TABLES,
    Advance,
    Claim,
    CutOverFacts,
    MigrateFacts,
    RescaleFacts,
    SnapshotFacts,
    StagedAccounts,
    StagedDigests,
    Step,
    TablesFacts,
    TablesProblem,
    TimedFacts,
    ValidateFacts,
)
from stateferry.runs.record.key_group_sizes import SourceSizes, StagedSizes
from stateferry.runs.record.run_states import RunState, check_change
from stateferry.runs.record.runs import Run
from stateferry.runs.record.target_access import TargetAccess
from stateferry.runs.report import source_check
from stateferry.runs.report.balance_facts import balance_of
from stateferry.runs.report.report import FileDigest, Report
from stateferry.show.run_page import run_page
from stateferry.show.run_view import RunView
from stateferry.steps import cut_over, key_groups, movement, rescale, snapshot, tables, validate
from stateferry.steps.tables import TablesPendingError
from stateferry.steps.workers import Workers
from stateferry.tables.account import AccountTask

if TYPE_CHECKING:
    # This module needs the library of Iceberg, whose import takes as long as all others together. So it is imported
    # where it is used: several steps do without it.
    from stateferry.steps import migrate

# The many digests of what the snapshot read, and moments in milliseconds.
_NOT_REPORTED = ("read", ENDED_AT)
_TO_BE_PUBLISHED = (RunState.VERIFIED, RunState.APPROVED)


@dataclass(slots=True)
class Pipeline:
    """The work on one run, under its job's lease; `say` gets notes for people."""

    workers: Workers
    run: Run
    # The plan and its source, if they are open; else they are opened when a step needs them.
    opened: ResolvedPlan | None
    control: Control
    lease: Lease
    say: Callable[[str], None] = lambda _: None
    _renewal: LeaseRenewal = field(init=False)
    _has_chosen: bool = False
    # The catalog is asked while the snapshot step's tasks are at work, as it may be slow to answer.
    _known_keys: Future[list[migrate.KnownKeys]] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._renewal = LeaseRenewal(self.control, self.lease)
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

    def carry_out(self) -> Report:
        """Does all steps that aren't done, and publishes the result unless the run is a rehearsal.

        After a publication the tables are pending: `bring_tables` does the rest.
        """
        with self._at_work():
            self._begin()
            self._ask_for_known_keys()
            for step in self._before_publication:
                self._once(step)
            report = self._verified()
            if not self.run.plan.rehearse:
                self.cut_over()
            return report

    @property
    def _before_publication(self) -> tuple[Step, ...]:
        """All steps but the publication and what follows it."""
        plan = self.run.plan
        return Step.CUT_OVER.earlier(rehearses=plan.rehearse, rescales_only=plan.rescales_only)

    def carry_out_step(self, step: Step) -> None:
        """Does one step; the steps before it must be done."""
        rehearses, rescales_only = self.run.plan.rehearse, self.run.plan.rescales_only
        earlier = step.earlier(rehearses=rehearses, rescales_only=rescales_only)
        missing = [one for one in earlier if not self.run.has_done(one)]
        if step is Step.CUT_OVER and rehearses:
            raise RejectedError(f"run {self.run.plan.run_id} is a rehearsal: there is nothing to cut over to")
        if missing:
            raise RejectedError(f"run {self.run.plan.run_id}: {step} comes after {', '.join(missing)}: do that first")
        if rescales_only and step in OF_TABLES:
            raise RejectedError(f"run {self.run.plan.run_id} migrates no state: there are no tables to write")
        if step is Step.TABLES:
            self.bring_tables()
            return
        with self._at_work():
            if step is Step.CUT_OVER:
                if self.run.state not in _TO_BE_PUBLISHED:
                    # The validation was killed after it had written its report, or an earlier cut-over failed.
                    self._verified()
                self.cut_over()
                return
            self._begin()
            self._once(step)
            if step is Step.VALIDATE:
                self._verified()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        with self._renewal:
            try:
                with reaching():
                    yield
            except TransientError:
                # The run has not failed: the next try of this driver, or another driver, continues it.
                raise
            except StateferryError as error:
                self._fail(error)
                self._write_page()
                raise
            self._write_page()

    def _write_page(self) -> None:
        """Writes the report as a page. Nothing depends on the page, so a run doesn't fail without it."""
        try:
            if self.run.report.is_file():
                self.run.report_page.write_atomically(run_page(RunView.of(self.run, nights=True)).encode())
        except Exception as error:  # noqa: BLE001 whatever is wrong with the page, the migration goes on
            self.say(f"note: the page {self.run.report_page.shown} could not be written: {error}")

    def _fail(self, error: StateferryError) -> None:
        try:
            self.control.renew(self.lease)
        except LeaseLostError as lost:
            # Another driver continues the run and may have caused the error by removing drafts. It records how the run
            # ends.
            raise lost from error
        except Exception:  # noqa: BLE001 the first error is the one that counts
            return
        with suppress(Exception):
            self.run.enter(RunState.FAILED, now_ms(), str(error))

    def _begin(self) -> None:
        self.check_may_become(RunState.RUNNING)
        self.run.enter(RunState.RUNNING, now_ms())
        self._forget_copy()

    def _forget_copy(self) -> None:
        """Removes the canonical copy of a native source, which earlier versions read instead of the source itself.

        The digests of what the snapshot read are of the copy then.
        """
        if self.run.canonical.exists():
            if (facts := self.run.facts(SnapshotFacts)) is not None:
                self.run.keep(replace(facts, read=None))
            self.run.canonical.remove()

    def _verified(self) -> Report:
        """Checks that the report is green. In a rehearsal it then moves the tables' `main` to this run."""
        self.check_may_become(RunState.VERIFIED)
        report = self._green_report()
        if self.run.plan.rehearse and not self.run.plan.rescales_only:
            from stateferry.tables.iceberg.commits import TableConflictError

            try:
                self._advance()
            except TableConflictError:
                # The report compares the tables as the run has written them, so it is made again with them.
                self.run.forget(ValidateFacts)
                raise
        self.run.enter(RunState.VERIFIED, now_ms())
        return report

    def _advance(self) -> bool:
        """Moves the tables' `main` to this run, so that the next run compares with it; not if `main` is newer."""
        from stateferry.steps import migrate

        moved = migrate.advance(self.resolved, self._migrated)
        self.run.keep(Advance(moved))
        return moved

    def _keep_tables_on_main(self) -> None:
        """Does the migrate step again if another writer has changed `main`, which couldn't be moved to this run then.

        The facts are replaced, not removed, so that steps which need them can be tried again after a kill.
        """
        from stateferry.steps import migrate

        if migrate.withdraw_if_cut_off(self.resolved, self._migrated):
            self._renewal.check()
            began = time.monotonic()
            facts = self.migrate()
            self._renewal.check()
            self.run.keep(_timed(facts, began))

    def _green_report(self) -> Report:
        report = cut_over.proven_report(self.run)
        if report.is_green:
            return report
        # The cause may be fixed, so the next try rescales and validates again.
        self.run.forget(RescaleFacts, ValidateFacts)
        if (changed := source_check.changed_source(report.failed)) is not None:
            raise RejectedError(f"{changed} ({self.run.report.shown})")
        failed = ", ".join(check.name for check in report.failed)
        raise RejectedError(
            f"the staged savepoint failed its checks, so nothing is published: {failed} ({self.run.report.shown})"
        )

    def _steps(self) -> dict[Step, Callable[[], TimedFacts]]:
        return {
            Step.SNAPSHOT: self.snapshot,
            Step.MIGRATE: self.migrate,
            Step.RESCALE: self.rescale,
            Step.VALIDATE: self.validate,
        }

    def _once(self, step: Step, leads_to: RunState = RunState.RUNNING) -> None:
        self.check_may_become(leads_to)
        if not self.run.has_done(step):
            began = self.workers.begin(step)
            facts = self._steps()[step]()
            self._renewal.check()
            self.run.keep(_timed(facts, began))
        if self.run.stored(Prediction) is None and self.run.has_done(Step.SNAPSHOT):
            # Now the size is known. What is predicted stays as it is, whatever becomes known later.
            self.run.keep(predicted(self.run))

    def check_may_become(self, state: RunState) -> None:
        """Raises an error if this driver has lost the lease, the run was rejected, or the state may not follow.

        It is called before any work that leads to the state.
        """
        self._renewal.check()
        check_change(check_may_continue(self.run, self.control), state)

    @property
    def files(self) -> Location:
        """The folder of the new savepoint's files: the target, or in a rehearsal the run's own folder."""
        return self.run.staged if self.run.plan.rehearse else Location.of(self.run.plan.target)

    def snapshot(self) -> SnapshotFacts:
        """Does the snapshot step and returns its facts."""
        self._check_room()
        check_timers(self.run.plan, self.resolved.source)
        check_migrated_before(self.resolved)
        rate = measured_rate(self.run.plan)
        counts = snapshot.run(self.workers, self.resolved, earlier_night(self.resolved))
        inventory = counts.inventory
        ages = snapshot.ages(self.resolved, inventory)
        check_ages(self.run.plan, ages)
        check_promises(self.resolved, ages, inventory.promised)
        source_check.note_metadata(self.resolved.source, inventory.read, self.run.plan.files_from)
        notes = option_notes(self.resolved, inventory, ages)
        if counts.since is not None:
            notes = [*notes, f"the snapshot read only the keys that have changed since run {counts.since.run_id}"]
        if counts.counted is not None and counts.times:
            write_blob_times(self.run.blob_times, counts.times)
        sizes = SourceSizes(key_groups.sizes_of(self.resolved.source, inventory))
        metadata = self.resolved.source.metadata
        kept = (counts.counted, layout_of(metadata), shown_timers(metadata), sizes)
        self.run.keep(*(one for one in kept if one is not None))
        for note in notes:
            self.say(f"note: {note}")
        choices = choose(self.run.plan, inventory.ranks, rate) if self.run.plan.lazy else None
        for choice in choices or ():
            self.say(f"lazy: {choice.line}")
        facts = snapshot.facts(self.resolved, inventory, ages, notes, choices)
        if counts.since is not None:
            facts = replace(facts, of_all=round(counts.since.seconds_per_byte * facts.size, 3))
        return facts

    def _ask_for_known_keys(self) -> None:
        plan = self.run.plan
        if not (plan.rehearse or plan.rescales_only or any(map(self.run.has_done, (Step.MIGRATE, Step.RESCALE)))):
            catalog = ThreadPoolExecutor(1, "known-keys")
            self._known_keys = catalog.submit(_plan_known_keys, self.resolved)
            catalog.shutdown(wait=False)

    def _check_known_keys(self) -> None:
        from stateferry.steps import migrate

        asked = self._known_keys
        known = asked.result() if asked is not None else _plan_known_keys(self.resolved)
        migrate.check_known_keys(self.workers, self.resolved, known)

    def _check_room(self) -> None:
        check_files(self.resolved, self.files)
        places = (self.files, self.run.exchange, Location.of(self.run.plan.warehouse))
        if not any(place.is_local for place in places) and self.run.plan.output_format != "native":
            # Nothing is known of the room in an object store, and nothing waits on a disk.
            return
        room = estimate(self.resolved, self.workers.at_once)
        # What of a key group was written before it is merged stays until then.
        needs = Counter({self.files.shown: room.bytes + room.merged})
        if not self.run.plan.rescales_only:
            # The tables hold the entries of the staged savepoint once more, compressed.
            needs[self.run.plan.warehouse] += room.bytes // 2
        if self.workers.temporary_folder is not None:
            # Files on an object store can't be drafts there, so these are here too.
            needs[self.workers.temporary_folder] += room.merged if self.files.is_local else 2 * room.merged
        if any(map(self.resolved.layout.changes_key_groups, self.resolved.source.metadata.operators)):
            needs[self.run.exchange.shown] += room.bytes
        check_room(needs, room.how)

    def migrate(self) -> MigrateFacts:
        """Does the migrate step and returns its facts."""
        from stateferry.steps import migrate

        return migrate.facts(migrate.run(self.workers, self.resolved, earlier_night(self.resolved)))

    def rescale(self) -> RescaleFacts:
        """Does the rescale step and returns its facts."""
        if not (self.run.plan.rescales_only or self.run.has_done(Step.MIGRATE)):
            self._check_known_keys()
        claim = self.run.facts(Claim)
        if not self.run.plan.rehearse:
            check_apart(self.run.plan)
            of_run = (self.run.plan.target, self.run.plan.run_id)
            target_content(of_run[0], claimed=claim is not None, run_id=of_run[1])
            source = self.resolved.source
            access = TargetAccess.like(source.folder, source.metadata, self.files, claim.access if claim else None)
            claim_target(*of_run, claimed=claim is not None)
            self.run.keep(Claim(self.run.plan.target, access))
        self._remove_drafts()
        self.run.exchange.remove()
        # An earlier try that was stopped or failed the validation left this `_metadata`; its files are about to change.
        self.run.staged_metadata.remove()
        movements = movement.movement(self.resolved)
        self.run.rescale_plan.write_atomically(movement.to_json(movements))
        for line in movement.movement_lines(movements):
            self.say(f"rescale plan: {line}")
        staged = rescale.run(self.workers, self.resolved, self.files.shown, self.run.exchange)
        self._remove_drafts()
        if self.run.plan.rehearse:
            described = staged.metadata
        else:
            TargetMetadata(self.run).keep(build_metadata(staged.metadata))
            described = with_absolute_files(staged.metadata, self.files)
        self.run.staged.make_folder()
        self.run.staged_metadata.write_atomically(build_metadata(described))
        self.run.keep(staged.digests)
        self.run.enter(RunState.STAGED, now_ms())
        return replace(staged.facts, layout=movement.changes(self.resolved) or None)

    def _remove_drafts(self) -> None:
        """Removes drafts in the folder of the new savepoint's files, both before the step writes and afterwards.

        They come from earlier drivers, which can't commit any more, or from tasks whose result isn't used. A driver
        that has lost the lease removes nothing.
        """
        self._renewal.check()
        for draft in drafts(self.files):
            draft.remove()

    def validate(self) -> ValidateFacts:
        """Does the validate step, writes the report, and returns the step's facts."""
        rehearses, rescales_only = self.run.plan.rehearse, self.run.plan.rescales_only
        if rehearses and not rescales_only:
            self._keep_tables_on_main()
        account_tasks: list[AccountTask] = []
        if rehearses:
            from stateferry.steps import migrate

            account_tasks = migrate.accounts(self.resolved)
        read, accounts = BytesRead(), StagedStates()
        checks = validate.run(
            self.workers, self.resolved, self.run.staged.shown, account_tasks, read, accounts, self._derived()
        )
        source_check.note_metadata(self.resolved.source, read, self.run.plan.files_from)
        checks.append(source_check.check_source((self.run.facts(SnapshotFacts) or SnapshotFacts()).read, read))
        staged, foreseen = Savepoint.open(self.run.staged.shown, places=(self.run.plan.target,)), predicted(self.run)
        sizes = StagedSizes()
        with suppress(StateferryError):  # A damaged savepoint has a red report, and no picture.
            sizes = StagedSizes(key_groups.sizes_of(staged))
            self.run.keep(sizes)
        report = Report(
            self.run.plan.job,
            self.run.plan.run_id,
            self.run.plan.fingerprint,
            now_ms(),
            cut_over.metadata_digest(self.resolved.source),
            cut_over.digests_of(self.workers, staged, self._written()),
            tuple(checks),
            self._reported_facts(Step.VALIDATE.earlier(rehearses=rehearses, rescales_only=rescales_only)),
            foreseen.seconds,
            tables_pending=not rehearses and not rescales_only,
            prediction=foreseen,
            balance=balance_of(self.run.facts_if_sound(SourceSizes), sizes),
        )
        report.write(self.run.report)
        if report.tables_pending:
            self.run.keep(tables.to_facts(accounts))
        return ValidateFacts(green=report.is_green, report=digest_of_bytes(self.run.report.read()))

    def _derived(self) -> dict[str, Derived]:
        """What the snapshot has not read but derived from an earlier night, by operator and legacy state."""
        facts = self.run.facts(SnapshotFacts)
        if facts is None or facts.of_all is None:
            return {}
        times = read_blob_times(self.run.blob_times) or {}
        sums = {}
        for name, of_state in times.items():
            operator, _, state = name.partition("/")
            sums[f"{self.resolved.source.operator(operator).label}/{state}"] = of_state.sum()
        return {name: Derived(counts, sums.get(name)) for name, counts in facts.met.items()}

    def _reported_facts(self, steps: Iterable[Step]) -> dict[str, dict[str, Any]]:
        """The facts of these steps, as they are stored, without what isn't for people."""
        stored = {step.value: self.run.stored(FACTS_OF[step]) or {} for step in steps}
        return {
            step: {name: fact for name, fact in facts.items() if name not in _NOT_REPORTED}
            for step, facts in stored.items()
        }

    def _written(self) -> dict[str, FileDigest]:
        """The size and digest of each staged file as it was written, by address.

        The files that the validation reads, and that the cut-over finds, must have the same.
        """
        digests = self.run.facts(StagedDigests) or StagedDigests({})
        return {self.files.child(name).uri: FileDigest(*digest) for name, digest in digests.files.items()}

    @property
    def _migrated(self) -> MigrateFacts:
        return self.run.facts(MigrateFacts) or MigrateFacts()

    def cut_over(self) -> Publication:
        """Publishes the staged savepoint, and records that in the run's folder."""
        self.check_may_become(RunState.PUBLISHED)
        began = self.workers.begin(Step.CUT_OVER)
        # An earlier version has brought the tables before the publication. Without a migration there are none.
        has_tables = self.run.stored(Advance) is not None or self.run.plan.rescales_only
        snapshots = self._migrated.snapshots if has_tables else None
        published = cut_over.publish(self.workers, self.run, self.control, self.lease, snapshots)
        self.run.keep(_timed(CutOverFacts(), began))
        self.run.note(RunState.PUBLISHED, now_ms())
        return published

    def bring_tables(self) -> None:
        """Brings the tables to what the run has published, compares them, and moves their `main`.

        What fails here changes nothing of the publication. The run keeps the reason, and the next try goes on.
        """
        run_id = self.run.plan.run_id
        if check_may_continue(self.run, self.control).state is not RunState.PUBLISHED:
            raise RejectedError(f"run {run_id}: {Step.TABLES} comes after {Step.CUT_OVER}: do that first")
        with self._at_work():
            self.check_may_become(RunState.PUBLISHED)
            self.run.forget(TablesProblem)
            try:
                with reaching():
                    self._bring_tables()
            except (MissingHereError, TransientError):
                raise
            except StateferryError as error:
                self.run.keep(TablesProblem(f"{error}"))
                raise TablesPendingError(
                    f"run {run_id} is published, and a job may run from {self.run.plan.target}. The "
                    f"tables are pending: {error}"
                ) from error

    def _bring_tables(self) -> None:
        self._once(Step.MIGRATE, RunState.PUBLISHED)
        self._keep_tables_on_main()
        began = self.workers.begin(Step.TABLES)
        report, accounts = Report.read(self.run.report), self.run.facts(StagedAccounts)
        if accounts is not None:
            checks = tables.check(self.workers, self.resolved, accounts)
            report = report.with_tables(checks, self._reported_facts([Step.MIGRATE]))
            report.write(self.run.report)
        if report.tables_pending:
            failed = ", ".join(check.name for check in report.tables if check.outcome is Outcome.FAILED)
            raise RejectedError(
                f"they failed their checks, so their branch main stays where it was: {failed} "
                f"({self.run.report.shown}). The next run or rehearsal of the job writes them on from main"
            )
        if not self._advance():
            self.say(f"the tables' main shows a newer savepoint; what run {self.run.plan.run_id} has is on its branch")
        self._renewal.check()
        self.control.complete(self.lease, self.run.plan.run_id, self._migrated.snapshots)
        self.run.keep(_timed(TablesFacts(), began))


def _plan_known_keys(resolved: ResolvedPlan) -> list[migrate.KnownKeys]:
    from stateferry.steps import migrate

    return migrate.plan_known_keys(resolved)


def _timed(facts: TimedFacts, began: float) -> TimedFacts:
    """The facts of what is done now and began at this time of the monotonic clock."""
    return replace(facts, seconds=round(time.monotonic() - began, 3), ended_at=now_ms())
