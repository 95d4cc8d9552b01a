"""Migrate: writes the new savepoint, in which the maps are rows, into the new ranges of key groups.

Where max parallelism changes it writes the files of the exchange, of which the step rescale makes the new ones.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from stateferry.changes.staging import add_counts, assemble
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.record.facts import SentFiles
from stateferry.runs.record.step_facts import MigrateFacts
from stateferry.runs.record.steps import Step
from stateferry.steps import catch_up, movement, new_files, sent_files
from stateferry.steps.base_run import base_of
from stateferry.steps.run_at_work import RunAtWork

if TYPE_CHECKING:
    from stateferry.steps.known_keys import KnownKeysTasks


def do(work: RunAtWork) -> MigrateFacts:
    """Does the step and returns its facts."""
    plan, run = work.run.plan, work.run
    if plan.rescales_only and plan.since is None:
        work.say(f"migrate: {MigrateFacts.nothing_to_do}")
        return MigrateFacts()
    base = base_of(work.resolved)
    if not plan.rehearse and base is None:
        _check_known_keys(work)
    new_files.begin(work)
    source, rewrites = work.resolved.described, work.resolved.rewrites()
    caught = frozenset[bytes]() if base is None else base.operators
    since = [one for one in rewrites if one.old.id in caught]
    whole, go = new_files.stay_and_go(one for one in rewrites if one.old.id not in caught)
    written = new_files.copy(work.workers, Step.MIGRATE, whole, work.files.shown)
    caught_up, changes = ([], []) if base is None else catch_up.write(work, base, since)
    written += [one.file for one in caught_up]
    if not plan.rehearse and base is not None and catch_up.may_lack_keys(work, base):
        _check_known_keys(work)
    sent = new_files.send(work.workers, Step.MIGRATE, go, run.exchange, plan.chunk_bytes)
    here = [one for one in rewrites if one.old.id in caught or not one.destination.changes_key_groups]
    metadata, digests = assemble(source, here, written, work.files.shown), new_files.digests_of(written)
    if go:
        run.keep(digests, sent_files.to_facts(run.exchange, metadata, sent))
    else:
        new_files.finish(work, metadata, digests)
    return MigrateFacts(
        files=sum(len(file.files) for file in written),
        bytes=sum(file.size for file in written),
        counts=add_counts([*(file.counts for file in written), *(one.counts for one in (*changes, *sent))]),
        layout=None if go else movement.changes(work.resolved) or None,
        sent=sum(sum(one.sizes) for one in sent) if go else None,
        newer=None if base is None else catch_up.newer_rows(work.resolved, caught_up),
    )


def stands(work: RunAtWork) -> bool:
    """Whether the files that the step has sent are there, if the step rescale still needs them."""
    run = work.run
    sent = None if run.has_done(Step.RESCALE) else run.facts(SentFiles)
    return sent is None or sent_files.are_there(run.exchange, sent)


def ask_ahead(work: RunAtWork) -> None:
    """Asks the catalog, in a thread of its own, for the keys that the tables know."""
    plan = work.run.plan
    if not (plan.rehearse or plan.rescales_only or work.run.has_done(Step.MIGRATE)):
        catalog = ThreadPoolExecutor(1, "known-keys")
        work.known_keys = catalog.submit(_known_keys_of, work.resolved)
        catalog.shutdown(wait=False)


def _known_keys_of(resolved: ResolvedPlan) -> list[KnownKeysTasks]:
    from stateferry.steps import known_keys

    return known_keys.known_keys_of_all(resolved)


def _check_known_keys(work: RunAtWork) -> None:
    from stateferry.steps import known_keys

    asked = work.known_keys
    known = asked.result() if asked is not None else known_keys.known_keys_of_all(work.resolved)
    known_keys.check(work.workers, work.resolved, known)
