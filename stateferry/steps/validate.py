"""Validate: reads the staged savepoint and the source anew, compares them, and writes the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict

from flinkstate.errors import StateferryError
from flinkstate.metadata.bytes_read import BytesRead
from flinkstate.reading.reader import Savepoint
from stateferry.basics.durations import now_ms
from stateferry.basics.state_ref import StateRef
from stateferry.inventory.blob_times import read_blob_times
from stateferry.proof.checks import (
    BaseStates,
    CatchUp,
    CheckResult,
    CheckTask,
    StagedStates,
    do_check,
    open_staged,
    validate,
)
from stateferry.proof.expected.check_result import Check
from stateferry.proof.expected.content import Account
from stateferry.proof.tally import Derived
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.predict.prediction import predicted
from stateferry.runs.record.facts import (
    BaseAccounts,
    BaseState,
    StagedAccount,
    StagedAccounts,
    StagedDigests,
)
from stateferry.runs.record.key_group_sizes import SourceSizes, StagedSizes
from stateferry.runs.record.step_facts import SnapshotFacts, ValidateFacts
from stateferry.runs.record.steps import Step
from stateferry.runs.report import source_check
from stateferry.runs.report.balance_facts import balance_of
from stateferry.runs.report.proven import digest_of_report, reported_facts
from stateferry.runs.report.report import FileDigest, Report
from stateferry.steps import cut_over, key_groups
from stateferry.steps.base_run import base_of
from stateferry.steps.other_sources import read_others
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import Measure, Workers

_BYTES: Measure[CheckResult] = Measure("B", lambda result: result.size)


def do(work: RunAtWork) -> ValidateFacts:
    """Does the step, writes the report, and returns the step's facts."""
    run, resolved = work.run, work.resolved
    # The new files are made of them.
    run.exchange.remove()
    read, accounts, base = BytesRead(), StagedStates(), base_of(resolved)
    catch_up = CatchUp(None if base is None else base.validated(run))
    checks = check(work.workers, resolved, run.staged.shown, read, accounts, _derived(work), catch_up)
    source_check.note_metadata(resolved.source, read, run.plan.files_from)
    read.take(read_others(work.workers, resolved))
    checks.append(source_check.check_source((run.facts(SnapshotFacts) or SnapshotFacts()).read, read))
    report = _report(work, tuple(checks))
    report.write(run.report)
    if report.tables_pending:
        run.keep(_to_facts(accounts))
    if report.is_green and run.plan.rehearse and run.plan.output_format == "native":
        run.keep(_to_base(catch_up.found))
    return ValidateFacts(green=report.is_green, report=digest_of_report(report))


def _report(work: RunAtWork, checks: tuple[Check, ...]) -> Report:
    run, resolved = work.run, work.resolved
    staged, foreseen = Savepoint.open(run.staged.shown, places=(run.plan.target,)), predicted(run)
    sizes = StagedSizes()
    with suppress(StateferryError):  # A damaged savepoint has a red report, and no picture.
        sizes = StagedSizes(key_groups.sizes_of(staged))
        run.keep(sizes)
    return Report(
        run.plan.job,
        run.plan.run_id,
        run.plan.fingerprint,
        now_ms(),
        cut_over.metadata_digest(resolved.source),
        cut_over.digests_of(work.workers, staged, _written(work)),
        checks,
        reported_facts(run, Step.VALIDATE.earlier(rehearses=True)),
        tables_pending=Step.TABLES in run.steps,
        prediction=foreseen,
        balance=balance_of(run.facts_if_sound(SourceSizes), sizes),
    )


def _written(work: RunAtWork) -> dict[str, FileDigest]:
    """The size and digest of each staged file as it was written, by address.

    The files that the validation reads, and that the cut-over finds, must have the same.
    """
    digests = work.run.facts(StagedDigests) or StagedDigests({})
    return {work.files.child(name).uri: FileDigest(*digest) for name, digest in digests.files.items()}


def _derived(work: RunAtWork) -> dict[str, Derived]:
    """What the snapshot has not read but derived from an earlier night, by operator and legacy state."""
    facts = work.run.facts(SnapshotFacts)
    if facts is None or facts.of_all is None:
        return {}
    times = read_blob_times(work.run.blob_times) or {}
    labels = {one.hex_id: one.label for one in work.resolved.source.metadata.operators}
    sums = {state.shown(labels): of_state.sum() for state, of_state in times.items()}
    return {name: Derived(counts, sums.get(name)) for name, counts in facts.met.items()}


def _to_facts(accounts: Mapping[StateRef, Account]) -> StagedAccounts:
    """The accounts of the staged savepoint as facts of the run, by operator and new state."""
    return StagedAccounts(
        tuple(
            StagedAccount(*state, tuple(account.counts.tolist()), tuple(account.sums.tolist()))
            for state, account in accounts.items()
        )
    )


def _to_base(bases: BaseStates) -> BaseAccounts:
    """What a catch-up needs of the staged savepoint, as facts of the run."""
    return BaseAccounts(
        tuple(
            BaseState(
                *state,
                tuple(one.account.counts.tolist()),
                tuple(one.account.sums.tolist()),
                None if one.of_source is None else asdict(one.of_source),
                None if one.aging is None else asdict(one.aging),
            )
            for state, one in bases.items()
        )
    )


def check(
    workers: Workers,
    resolved: ResolvedPlan,
    staged: str,
    read: BytesRead | None = None,
    accounts: StagedStates | None = None,
    derived: Mapping[str, Derived] | None = None,
    catch_up: CatchUp | None = None,
) -> list[Check]:
    """The checks of the staged savepoint.

    The bytes of the source that were read are added to `read`, the accounts of the new states in the staged savepoint
    to `accounts`. `derived` is what the snapshot didn't read, by operator and legacy state. For
    `catch_up` see `validate`.
    """
    opened = open_staged(staged, (resolved.plan.target,))
    if isinstance(opened, Check):
        return [opened]

    def on_workers(tasks: Sequence[CheckTask]) -> Iterator[CheckResult]:
        for one in workers.do(Step.VALIDATE, tasks, do_check, _BYTES):
            if read is not None and one.read is not None:
                read.take(one.read)
            yield one

    return validate(
        resolved.source,
        opened,
        resolved.conversion,
        do=on_workers,
        target_bytes=resolved.plan.chunk_bytes,
        accounts=accounts,
        derived=derived,
        catch_up=catch_up,
    )
