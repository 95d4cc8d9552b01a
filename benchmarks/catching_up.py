"""Measures a catch-up beside a conversion of everything, without Spark: from the snapshot to the publication.

One key in a hundred was changed by RocksDB itself since the base, and what was there before stays in its files; or a
compaction has written all files anew. Both are done by this process, one after the other.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.executing import on_all_cores
from benchmarks.measuring import Duration, Scale, Subject, expect, in_memory
from benchmarks.native_nights import CHANGED_EVERY, Timed, next_night, snapshots
from benchmarks.pipeline import entries_in
from benchmarks.sections import ENTRIES_PER_KEY, NOW
from stateferry.demo import MAIN_STATE, NEW_MAIN_STATE, OPERATOR
from stateferry.runs.catalog.publications import Control
from stateferry.runs.checks.plan_check import open_source, planned, resolve
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import FACTS_OF
from stateferry.runs.record.steps import Step
from stateferry.steps.pipeline import Pipeline
from stateferry.steps.run_at_work import RunAtWork

_ROUNDS = 3
# The smaller state has a tenth of the keys, and the same number of changed ones.
_TIMES, _MAY_GROW = 10, 1.2
_STEPS = (Step.SNAPSHOT, Step.MIGRATE, Step.RESCALE, Step.VALIDATE, Step.CUT_OVER)


def measure(scale: Scale) -> Iterator[Duration]:
    """Two durations, and two where all files were written anew."""
    for compacts in (False, True):
        yield from _measure(scale, compacts=compacts)


def _measure(scale: Scale, *, compacts: bool) -> Iterator[Duration]:
    with on_all_cores():
        first, second = snapshots(scale, compacts=compacts)
    rehearse(scale, first, "base")
    found: dict[str, list[tuple[float, float, dict[str, float]]]] = {"everything": [], "since": []}
    for number in range(1 + min(scale.rounds, _ROUNDS)):
        for what, options in (("everything", {}), ("since", {"since": "base"})):
            in_memory(first)
            in_memory(second)
            done = _run(scale, second, f"{what}-{number}", rehearse=False, **options)
            found[what] += [done] if number else []
    for folder in (first, second, scale.folder / "home"):
        shutil.rmtree(folder)
    anew = ", all files written anew" if compacts else ""
    whole, since = (_duration(what, of, anew) for what, of in found.items())
    ratio = median(one[1] for one in found["everything"]) / median(one[1] for one in found["since"])
    yield whole
    what = f"{since.what}: everything takes {ratio:.1f} × the processor time"
    yield replace(since, what=what)


def grow(scale: Scale) -> Iterator[Duration]:
    """Two durations: of a state, and of one that is ten times as large, in which as many keys have changed."""
    small = _since(replace(scale, keys=scale.keys // _TIMES), CHANGED_EVERY)
    yield small
    large = _since(scale, CHANGED_EVERY * _TIMES)
    what = f"{large.what}: {large.median / small.median:.2f} × the time"
    yield replace(large, what=what, at_most=_MAY_GROW * small.median)


def _since(scale: Scale, every: int) -> Duration:
    """A final catch-up. The one before it has digested the files of the base while the job ran."""
    third = scale.folder / "third"
    with on_all_cores():
        first, second = snapshots(scale, every=every)
        next_night(second, third, every)
        rehearse(scale, first, "base")
        rehearse(scale, second, "before", since="base")
    found = []
    for number in range(1 + min(scale.rounds, _ROUNDS)):
        in_memory(third)
        found.append(_run(scale, third, f"since-{number}", rehearse=False, since="before"))
    for folder in (first, second, third, scale.folder / "home"):
        shutil.rmtree(folder)
    entries, changed = scale.keys * ENTRIES_PER_KEY, scale.keys // every * ENTRIES_PER_KEY
    return replace(_duration("since", found[1:], ""), what=f"{changed:,} of {entries:,} entries changed")


def rehearse(scale: Scale, source: Path, run_id: str, **options: str) -> None:
    """Makes a base."""
    _run(scale, source, run_id, rehearse=True, **options)


def _run(
    scale: Scale, source: object, run_id: str, *, rehearse: bool, **options: str
) -> tuple[float, float, dict[str, float]]:
    """Seconds by the clock, processor seconds, and those of each step by the clock."""
    target = scale.folder / f"published-{run_id}"
    values: dict[str, object] = {
        "source": str(source),
        "target": str(target),
        "home": str(scale.folder / "home"),
        "run_id": run_id,
        "now": NOW,
        "rehearse": rehearse,
        "no_timers": True,
        "output_format": "native",
        "operators": [
            {"operator": OPERATOR, "states": [{"legacy": MAIN_STATE, "new": NEW_MAIN_STATE, "no_flag": True}]}
        ],
        **options,
    }
    plan = planned(values)
    run = Run.create(plan, time.time_ns() // 1_000_000)
    with Control(plan.catalog_uri) as control:
        lease = control.acquire(plan.job, plan.run_id)
        began, cpu = time.monotonic(), time.process_time()
        try:
            pipeline = Pipeline(RunAtWork(Timed(), run, resolve(plan, open_source(plan)), control, lease))
            # The report alone makes a base, so it needs no tables.
            pipeline.carry_out(*(Step.TABLES.earlier(rehearses=True) if rehearse else _STEPS))
        finally:
            control.release(lease)
    took = time.monotonic() - began, time.process_time() - cpu
    facts = {step: of.seconds or 0.0 for step in _STEPS if (of := run.facts(FACTS_OF[step])) is not None}
    if not rehearse:
        expect(entries_in(target), scale.keys * ENTRIES_PER_KEY, f"entries in {target}")
        shutil.rmtree(target)
    return *took, {str(step): seconds for step, seconds in facts.items()}


def _duration(what: str, runs: list[tuple[float, float, dict[str, float]]], anew: str) -> Duration:
    shown = {"everything": f"everything{anew}", "since": f"since a base, 1 % of the keys changed{anew}"}[what]
    steps = ", ".join(f"{step} {median(one[2][step] for one in runs):.2f}" for step in runs[0][2])
    note = f"{median(one[1] for one in runs):.2f} processor seconds; by the clock {steps}"
    return Duration(shown, tuple(one[0] for one in runs), note=note)


SUBJECT = Subject(
    f"A catch-up beside a conversion of everything, {ENTRIES_PER_KEY} entries a key, to the publication, without Spark",
    measure,
)

GROWTH = Subject(
    f"A catch-up of a state and of one {_TIMES} times as large, of which as much has changed, to the publication",
    grow,
)
