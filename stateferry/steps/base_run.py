"""The rehearsal on which a catch-up builds: its source, its result with what is proven of it, and what it counted.

It must be a green rehearsal of the same plan, with native files, whose source is still there as it was. Everything else
is refused by name, before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from flinkstate.errors import DamagedError, RefusedError, RejectedError, UsageError
from flinkstate.files.digests import digest_of_bytes
from flinkstate.files.storage import Location
from flinkstate.files.stores import MOST_COPIED_BY_S3
from flinkstate.keyed.native_difference import EarlierPart
from flinkstate.keyed.stored_files import stored_files
from flinkstate.metadata.bytes_read import BytesRead
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.rocksdb.database import Database
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.writing.newer_files import MOST_NEWER, KnownFiles
from flinkstate.writing.operator_rewrite import changes_layout
from stateferry.basics.durations import now_ms
from stateferry.basics.state_ref import StateRef
from stateferry.changes.catch_up import BasePart
from stateferry.changes.changed_keys import KeyList, read_changed_keys
from stateferry.proof.catch_up import BaseAccount, BaseOperator, BaseSubtask
from stateferry.proof.changed_layout import Databases
from stateferry.proof.changed_rows import Snapshot
from stateferry.proof.expected.aging_content import AgingCounts
from stateferry.proof.expected.content import Account
from stateferry.proof.expected.expected_entries import SourceCounts
from stateferry.runs.checks.plan_check import open_source, resolve
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.predict.earlier_night import EarlierNight, night_of
from stateferry.runs.record.facts import BaseAccounts, CaughtUp, HeldFiles, StagedAccount, StagedAccounts
from stateferry.runs.record.run_list import find_run
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import LazyChoice, SnapshotFacts
from stateferry.runs.record.steps import Step
from stateferry.runs.report.proven import proven_report

# A native savepoint shows no timers on the heap, a checkpoint does.
_MAY_DIFFER = {
    "run_id",
    "source",
    "target",
    "rehearse",
    "claimable",
    "since",
    "full_every",
    "now_from",
    "no_timers",
    "accept_vanished",
}
_WHOLE = "leave --since out, which converts everything"


@dataclass(frozen=True, slots=True)
class BaseRun:
    """A base: the night from which the counts go on, its result, what its files must be, its accounts.

    `operators` are the ids of the operators that a catch-up writes as newer files; others are converted whole.
    """

    run: Run
    night: EarlierNight
    staged: Savepoint
    known: KnownFiles
    accounts: Mapping[StateRef, BaseAccount]
    read: BytesRead
    operators: frozenset[bytes]

    def earlier(self, operator: Operator) -> dict[int, EarlierPart]:
        """The databases that the operator's subtasks had in the source of the base."""
        return self.night.parts(operator)

    @property
    def choices(self) -> tuple[LazyChoice, ...]:
        """What the base moves, if it is lazy: its catch-ups move the keys of the same ranks."""
        return (self.run.facts(SnapshotFacts) or SnapshotFacts()).lazy or ()

    def parts(self, operator: Operator) -> dict[int, BasePart]:
        """The databases of the operator's subtasks in the result of the base."""
        there = next((one for one in self.staged.metadata.operators if one.id == operator.id), None)
        return {
            subtask.index: BasePart(self.staged.folder, subtask.native_keyed, self.known)
            for subtask in (there.subtasks if there is not None else ())
            if subtask.native_keyed is not None
        }

    def validated(self, run: Run) -> dict[bytes, BaseOperator]:
        """What the validation of a catch-up, whose run this is, needs of the base."""
        lists, changed = run.facts(CaughtUp) or CaughtUp(), read_changed_keys(run.changed_keys)
        found = {}
        for operator in self.night.source.metadata.operators:
            if operator.id in self.operators:
                accounts = {state: one for (id_, state), one in self.accounts.items() if id_ == operator.hex_id}
                subtasks = dict(self._subtasks(operator, lists, changed))
                handles = {index: part.handle for index, part in self.parts(operator).items()}
                found[operator.id] = BaseOperator(subtasks, accounts, Databases(self.staged.folder, handles))
        return found

    def _subtasks(
        self, operator: Operator, lists: CaughtUp, changed: Mapping[tuple[str, int], Mapping[str, Prefixes]]
    ) -> Iterator[tuple[int, BaseSubtask]]:
        for index, earlier in self.earlier(operator).items():
            converted = {
                one.state: KeyList(one.keys, one.digest)
                for one in lists.lists
                if (one.operator, one.subtask) == (operator.hex_id, index)
            }
            read = self.read.files.get(earlier.handle.meta.name, {})
            sums = {part: digest for part, digest in read.items() if part >= 0}
            source = Snapshot(earlier.folder, earlier.handle, earlier.identities)
            yield index, BaseSubtask(source, converted, sums, changed[operator.hex_id, index])


def base_of(resolved: ResolvedPlan) -> BaseRun | None:
    """The base of a catch-up; None if the plan is of none."""
    plan = resolved.plan
    if plan.since is None:
        return None
    run = find_run(plan.home, plan.job, plan.since)
    where = _where(run)
    operators = frozenset(one.operator.id for one in resolved.changes if one.writes_rows)
    for one in resolved.changes:
        if one.rehashes:
            keys = f"operator {one.operator.label}: its keys are by flink-scala, and become others"
            raise RefusedError(f"{where}: {keys}: {_WHOLE}")
    _check_plan(plan, run, where)
    found = _opened(resolved, run, where, operators)
    for one in resolved.changes:
        if one.writes_rows and (why := _why_not(one.operator, resolved, found)) is not None:
            raise RefusedError(f"{where}: operator {one.operator.label}: {why}: {_WHOLE}")
    if resolved.source.metadata.checkpoint_id < found.night.source.metadata.checkpoint_id:
        raise RefusedError(f"{where}: {plan.source} is older than the savepoint that it read: {_WHOLE}")
    return found


def check_base(plan: MigrationPlan, since: str) -> None:
    """Refuses a base from which no savepoint can go on, before there is one: that of the base takes its place."""
    run = find_run(plan.home, plan.job, since)
    own = plan.model_copy(update={"source": run.plan.source})
    try:
        source = open_source(own)
    except (DamagedError, UsageError):
        raise _gone(run, _where(run)) from None
    base_of(resolve(own, source))


def _where(run: Run) -> str:
    return f"run {run.plan.run_id} can't be caught up with"


def _gone(run: Run, where: str) -> RefusedError:
    gone = f"its savepoint {run.plan.source} isn't there any more as it was"
    retained = (
        "a job retains no checkpoint after a stop with a savepoint, and before that as many as its "
        "execution.checkpointing.num-retained says"
    )
    return RefusedError(f"{where}: {gone} ({retained}): {_WHOLE}")


def _check_plan(plan: MigrationPlan, run: Run, where: str) -> None:
    # Its tables may follow later, or never.
    is_validated = run.state is RunState.VERIFIED or (run.state is RunState.STAGED and run.has_done(Step.VALIDATE))
    if not run.plan.rehearse or not is_validated:
        raise RefusedError(f"{where}: it isn't a green rehearsal: {_WHOLE}")
    if not run.staged.may_give_to(Location.of(plan.target)):
        both = "the home and the target must both be on disks, or both on S3"
        raise RefusedError(f"{where}: {both}, which copies the files of a base itself: {_WHOLE}")
    mine, its = (one.model_dump(exclude=_MAY_DIFFER) for one in (plan, run.plan))
    if other := sorted(name for name, value in mine.items() if its[name] != value):
        raise RefusedError(f"{where}: its plan has another {', '.join(other)}: {_WHOLE}")


def _opened(resolved: ResolvedPlan, run: Run, where: str, operators: frozenset[bytes]) -> BaseRun:
    """The base, if its source is still there, and its result is what was validated."""
    night, facts, kept = night_of(run, resolved), run.facts(SnapshotFacts), run.facts(BaseAccounts)
    if night is None or facts is None:
        raise _gone(run, where)
    if night.counted is None or kept is None:
        why = "another version made it, or its maps by Kryo show another type"
        raise RefusedError(f"{where}: what it counted can't be gone on from: {why}: {_WHOLE}")
    try:
        staged, report = Savepoint.open(run.staged.shown), proven_report(run)
    except (DamagedError, RejectedError) as error:
        raise RefusedError(f"{where}: its result isn't what was validated ({error}): {_WHOLE}") from None
    digests = {name: (one.size, one.digest) for name, one in report.staged.files.items()}
    metadata = run.staged_metadata.read()
    if not report.is_green or digests.get(METADATA) != (len(metadata), digest_of_bytes(metadata)):
        raise RefusedError(f"{where}: its result isn't what was validated: {_WHOLE}")
    of_all = (run.facts(StagedAccounts) or StagedAccounts()).states if run.plan.lazy else ()
    whole = {StateRef(one.operator, one.state): _account(one) for one in of_all}
    accounts = {
        (state := StateRef(one.operator, one.state)): BaseAccount(
            _account(one),
            None if one.of_source is None else SourceCounts(**one.of_source),
            None if one.aging is None else AgingCounts(**one.aging),
            whole.get(state),
        )
        for one in kept.states
    }
    if run.staged.is_on_s3 and (large := [name for name, (size, _) in digests.items() if size > MOST_COPIED_BY_S3]):
        raise RefusedError(f"{where}: S3 copies no file of more than {MOST_COPIED_BY_S3:,} bytes: {large[0]}: {_WHOLE}")
    read, known = BytesRead.of_facts(facts.read), KnownFiles(digests, _held(resolved.plan, run))
    return BaseRun(run, night, staged, known, accounts, read, operators)


def _account(one: StagedAccount) -> Account:
    return Account(np.array(one.counts, np.int64), np.array(one.sums, np.uint64))


def _held(plan: MigrationPlan, run: Run) -> Mapping[str, str]:
    """The identities by which files of the base needn't be read again: while a job may stand still, shortly after."""
    held = run.facts(HeldFiles)
    return {} if plan.rehearse or held is None else held.of_late(now_ms())


def _why_not(operator: Operator, resolved: ResolvedPlan, base: BaseRun) -> str | None:
    """Why the operator can't be caught up with; None if it can become the new one, by `_metadata` and the MANIFESTs."""
    new = resolved.layout.of(operator)
    before = next((one for one in base.night.source.metadata.operators if one.id == operator.id), None)
    if before is None:
        return "the base doesn't know it"
    if (before.parallelism, before.max_parallelism) != (operator.parallelism, operator.max_parallelism):
        return "the job has another parallelism or max parallelism than in the base"
    earlier, there = base.earlier(operator), base.parts(operator)
    native = {subtask.index for subtask in operator.subtasks if subtask.native_keyed is not None}
    keyed = {subtask.index for subtask in operator.subtasks if subtask.keyed is not None}
    made = set(range(new.parallelism)) if changes_layout(operator, new) else keyed
    lacking = (native ^ keyed) | (native ^ earlier.keys()) | (made ^ there.keys())
    if lacking:
        return f"its subtask {min(lacking)} has no files of RocksDB, here or in the base or in its result"
    newer = max((_newer_files(part, base.staged) for part in there.values()), default=0)
    # The run while a job stands still has room for its own.
    if newer >= MOST_NEWER - resolved.plan.rehearse:
        return f"{newer} catch-ups lie above its first base, which are too large to be joined"
    return None


def _newer_files(part: BasePart, staged: Savepoint) -> int:
    """How many newer files a state of a subtask has at the most."""
    database = Database(stored_files(part.folder, part.handle), staged.folder.shown)
    return max((len(family.of_level(0)) for family in database.families.values()), default=0)
