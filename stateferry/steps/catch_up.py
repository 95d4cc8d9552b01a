"""Writes what has changed since the base of a catch-up, for the step migrate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from flinkstate.metadata.metadata import Operator
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.writing.newer_files import NewerCounts
from flinkstate.writing.operator_rewrite import OperatorRewrite
from stateferry.basics.durations import now_ms
from stateferry.basics.state_ref import StateRef
from stateferry.changes.catch_up import CatchUpTask, CaughtUpFile
from stateferry.changes.changed_keys import KeyList, in_result, joined, read_changed_keys
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.record.facts import CaughtUp, ChangedKeys, HeldFiles
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.record.run_list import runs_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import NewerRows, SnapshotFacts, StateSize
from stateferry.runs.record.steps import Step
from stateferry.steps import new_files
from stateferry.steps.base_run import BaseRun
from stateferry.steps.new_files import Sent
from stateferry.steps.run_at_work import RunAtWork
from stateferry.steps.workers import Measure

_WRITTEN: Measure[CaughtUpFile] = Measure("B", lambda one: one.file.size)


def write(work: RunAtWork, base: BaseRun, rewrites: Sequence[OperatorRewrite]) -> tuple[list[CaughtUpFile], list[Sent]]:
    """Writes the databases of the operators that are caught up with, and keeps the lists of their changed keys.

    It also keeps what tells the files of the base from any that come into their places later. Operators that get
    another max parallelism have their entries sent first.
    """
    began, changed = now_ms(), read_changed_keys(work.run.changed_keys)
    lists = {one.old.id: _lists_of(one.old, changed) for one in rewrites}
    stay, go = new_files.stay_and_go(replace(one, only=lists[one.old.id]) for one in rewrites)
    tasks = [task for one in stay for task in _tasks(work, base, one)]
    found = list(work.workers.do(Step.MIGRATE, tasks, CatchUpTask.write, _WRITTEN))
    sent = new_files.send(work.workers, Step.MIGRATE, go, work.run.exchange, work.run.plan.chunk_bytes)
    for one in sent:
        receive = partial(CatchUpTask.receive, exchange=one.exchange)
        found += work.workers.do(Step.MIGRATE, list(_tasks(work, base, one.rewrite)), receive, _WRITTEN)
        one.exchange.folder.remove()
    kept = (
        ChangedKeys(rewrite.old.hex_id, subtask, state, len(keys), KeyList.of(keys).digest)
        for rewrite in rewrites
        for subtask, of_states in lists[rewrite.old.id].items()
        for state, keys in of_states.items()
    )
    if joined := sum(one.joined for one in found):
        work.say(f"migrate: {joined} newer files of the base are joined, into one for each state of a subtask")
    held = {name: identity for one in found for name, identity in one.identities.items() if identity}
    depth = (base.run.facts(CaughtUp) or CaughtUp(depth=0)).depth + 1
    work.run.keep(CaughtUp(tuple(kept), depth, joined), HeldFiles(began, held))
    return found, sent


def _lists_of(
    operator: Operator, changed: Mapping[tuple[str, int], Mapping[str, Prefixes]]
) -> dict[int, Mapping[str, Prefixes]]:
    """The changed keys of the operator, by subtask and state; each subtask's are above those of the one before."""
    subtasks = sorted(operator.subtasks, key=lambda one: one.index)
    return {one.index: changed[operator.hex_id, one.index] for one in subtasks if one.keyed is not None}


def _tasks(work: RunAtWork, base: BaseRun, rewrite: OperatorRewrite) -> Iterator[CatchUpTask]:
    """What writes each of the new subtasks, with the changed keys of its key groups."""
    parts, ranges = base.parts(rewrite.old), rewrite.ranges()
    changed = in_result(joined(rewrite.only), work.resolved.conversion.of(rewrite.old))
    for (subtask, own), part in zip(ranges.items(), rewrite.of_key_groups(ranges.values()), strict=True):
        mine = {state: keys.within(own, rewrite.destination.prefix) for state, keys in changed.items()}
        # While a job may stand still, as little as can be is written.
        yield CatchUpTask(part, work.files.shown, subtask, mine, parts[subtask], joins=work.run.plan.rehearse)


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
        if changed > work.run.plan.accept_vanished * before:
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
    labels = {one.operator.id: one.operator.label for one in resolved.changes}
    counts: dict[str, NewerCounts] = {}
    for one in files:
        for state, written in one.written.items():
            counts.setdefault(f"{labels[one.file.operator]}/{state}", NewerCounts()).add(written)
    return {name: NewerRows(one.put, one.deleted) for name, one in counts.items()}
