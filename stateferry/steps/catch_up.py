"""Writes what has changed since the base of a catch-up, for the step migrate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from flinkstate.writing.newer_files import NewerCounts
from flinkstate.writing.operator_rewrite import OperatorRewrite
from stateferry.basics.durations import now_ms
from stateferry.basics.state_ref import StateRef
from stateferry.changes.catch_up import CatchUpTask, CaughtUpFile, ChangedPart, SendChangesTask
from stateferry.changes.changed_keys import read_changed_keys
from stateferry.changes.counts import ConversionCounts
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.record.facts import CaughtUp, ChangedKeys, HeldFiles
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import NewerRows, SnapshotFacts, StateSize
from stateferry.runs.record.steps import Step
from stateferry.steps import new_files
from stateferry.steps.base_run import BaseRun
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import Measure

_WRITTEN: Measure[CaughtUpFile] = Measure("B", lambda one: one.file.size)


@dataclass(frozen=True, slots=True)
class CaughtUpOperators:
    """The databases that were written, and what their changes were counted to be."""

    files: Sequence[CaughtUpFile] = ()
    counts: Sequence[dict[str, ConversionCounts]] = ()


def write(work: RunAtWork, base: BaseRun, rewrites: Sequence[OperatorRewrite]) -> CaughtUpOperators:
    """Writes the databases of the operators that are caught up with, and keeps the lists of their changed keys.

    It also keeps what tells the files of the base from any that come into their places later.
    """
    began = now_ms()
    stay = [one for one in rewrites if not one.moves]
    found = list(work.workers.do(Step.MIGRATE, list(_tasks(work, base, stay)), CatchUpTask.write, _WRITTEN))
    changed, counts = [one.changed for one in found if one.changed is not None], [one.file.counts for one in found]
    for rewrite in rewrites:
        if rewrite.moves:
            parts = list(_parts(work, base, rewrite))
            exchange = new_files.new_exchange(work.run.exchange.child(rewrite.old.hex_id), len(parts), rewrite)
            sending = [SendChangesTask(part, exchange.file(number)) for number, part in enumerate(parts)]
            for sent in new_files.through(work.workers, Step.MIGRATE, exchange, sending, SendChangesTask.send):
                changed.append(sent.changed)
                counts.append(sent.counts)
            receive, tasks = partial(CatchUpTask.receive, exchange=exchange), list(_tasks(work, base, [rewrite]))
            found += work.workers.do(Step.MIGRATE, tasks, receive, _WRITTEN)
            exchange.folder.remove()
    lists = (
        ChangedKeys(one.operator.hex(), one.subtask, state, keys.keys, keys.digest)
        for one in changed
        for state, keys in one.lists.items()
    )
    held = {name: identity for one in found for name, identity in one.identities.items() if identity}
    depth = (base.run.facts(CaughtUp) or CaughtUp(depth=0)).depth + 1
    work.run.keep(CaughtUp(tuple(lists), depth), HeldFiles(began, held))
    return CaughtUpOperators(found, counts)


def _parts(work: RunAtWork, base: BaseRun, rewrite: OperatorRewrite) -> Iterator[ChangedPart]:
    """What finds the changes of each subtask of the source."""
    changed, earlier = read_changed_keys(work.run.changed_keys), base.earlier(rewrite.old)
    held = [(one.index, one.native_keyed.range) for one in rewrite.old.subtasks if one.native_keyed is not None]
    for (subtask, _), part in zip(held, rewrite.of_key_groups(range_ for _, range_ in held), strict=True):
        yield ChangedPart(part, subtask, earlier[subtask], changed[rewrite.old.hex_id, subtask])


def _tasks(work: RunAtWork, base: BaseRun, rewrites: Sequence[OperatorRewrite]) -> Iterator[CatchUpTask]:
    """What writes each of the new subtasks; in another layout, they get their changes by the exchange."""
    for rewrite in rewrites:
        there = base.parts(rewrite.old)
        changes = {} if rewrite.moves else {part.subtask: part for part in _parts(work, base, rewrite)}
        for subtask, part in zip(rewrite.ranges(), rewrite.of_key_groups(rewrite.ranges().values()), strict=True):
            yield CatchUpTask(part, work.files.shown, subtask, there[subtask], changes.get(subtask))


def may_lack_keys(work: RunAtWork, base: BaseRun) -> bool:
    """Whether more of the keys that the tables know may have vanished than a run accepts.

    The tables have the keys of the run that wrote them last: the base or, if that is a catch-up without tables, one on
    which it builds. Unless another run of the job came after that one, only keys that have changed since can have
    vanished. To know that is less than to look for all of them in a state that hasn't changed.
    """
    since = [work.run]
    last: Run | None = base.run
    while last is not None and not last.has_done(Step.TABLES):
        since.append(last)
        last = _base_of(last)
    if last is None or _came_after(last, since):
        return True
    facts = last.facts(SnapshotFacts) or SnapshotFacts()
    lists = [one for run in since for one in (run.facts(CaughtUp) or CaughtUp()).lists]
    for one, rules in work.resolved.migrations:
        changed = sum(of.keys for of in lists if StateRef(of.operator, of.state) == one.ref(rules.legacy.name))
        before = facts.states.get(f"{one.operator.label}/{rules.legacy.name}", StateSize()).entries
        if changed > work.run.plan.vanish_threshold * before:
            return True
    return False


def _base_of(run: Run) -> Run | None:
    """The run on which a catch-up builds; None if it is none, or that run was removed."""
    since, plan = run.plan.since, run.plan
    return None if since is None else Run.if_there(run_folder(plan.home, plan.job, since))


def _came_after(last: Run, since: Sequence[Run]) -> bool:
    """Whether a run of the job other than these came after the last one."""
    runs = {one.run_id: one for one in runs_of(last.plan.home, last.plan.job)}
    for one in since:
        runs.pop(one.plan.run_id, None)
    its = runs.pop(last.plan.run_id)
    return any(one.changed_at >= its.changed_at for one in runs.values())


def newer_rows(resolved: ResolvedPlan, files: Iterable[CaughtUpFile]) -> dict[str, NewerRows]:
    """What was written above the base, by operator and state."""
    labels = {one.operator.id: one.operator.label for one in resolved.operators}
    counts: dict[str, NewerCounts] = {}
    for one in files:
        for state, written in one.written.items():
            counts.setdefault(f"{labels[one.file.operator]}/{state}", NewerCounts()).add(written)
    return {name: NewerRows(one.put, one.deleted) for name, one in counts.items()}
