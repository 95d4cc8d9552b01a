"""Measures a catch-up beside a conversion of everything: from the command to the publication.

One key in a hundred was changed by RocksDB itself since the base. Each command begins with the start of Python and
Spark, which a catch-up has as well: the seconds of the steps are in the notes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.executing import execute, on_all_cores
from benchmarks.measuring import Comparison, Execution, Scale, Subject, expect
from benchmarks.native_nights import snapshots
from benchmarks.pipeline import entries_in, run_command
from benchmarks.sections import ENTRIES_PER_KEY, NOW
from flinkstate.metadata.file_names import METADATA
from stateferry.runs.predict.prediction import part_times
from stateferry.runs.record.facts import Step
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import Run, runs_of

_ROUNDS = 3
_JOB = "caught-up"
_BEFORE_PUBLICATION = (Step.SNAPSHOT, Step.MIGRATE, Step.RESCALE, Step.VALIDATE, Step.CUT_OVER)


def measure(scale: Scale) -> Iterator[Comparison]:
    """One line for each of the two, measured in turn."""
    with on_all_cores():
        first, second = snapshots(scale)
    home = scale.folder / "home"
    _ferried(scale, first, "--rehearse", "--now", str(NOW))
    (base,) = runs_of(str(home), _JOB)
    whole, caught_up, steps = list[Execution](), list[Execution](), dict[str, list[float]]()
    for _ in range(min(scale.rounds, _ROUNDS)):
        for what, found, options in (
            ("everything", whole, ("--now", str(NOW))), ("since", caught_up, ("--since", base.run_id)),
        ):  # fmt: skip
            target, began = scale.folder / "published", time.time()
            done = _ferried(scale, second, *options)
            found.append(replace(done, seconds=(target / METADATA).stat().st_mtime - began))
            expect(entries_in(target), scale.keys * ENTRIES_PER_KEY, f"entries in {target}")
            newest = next(one for one in runs_of(str(home), _JOB) if one.state is RunState.PUBLISHED)
            assert newest.plan is not None
            parts = {part.part: part.seconds for part in part_times(Run(newest.plan, newest.folder))}
            steps.setdefault(what, []).append(sum(parts.get(step, 0.0) for step in _BEFORE_PUBLICATION))
            newest.remove()
            shutil.rmtree(target)
    for folder in (first, second, home):
        shutil.rmtree(folder)
    before = Comparison(f"everything{_note(steps['everything'])}", tuple(whole))
    line = Comparison(f"since a base, 1 % of the keys changed{_note(steps['since'])}", tuple(caught_up))
    yield before
    yield replace(line, speed=line.faster_than(before))


def _ferried(scale: Scale, source: Path, *options: str) -> Execution:
    command = run_command(
        source, scale.folder / "published", "--format", "native", "--no-timers", "--job", _JOB, *options
    )
    return execute(command, scale.folder / "log", environment={"STATEFERRY_HOME": str(scale.folder / "home")})


def _note(seconds: list[float]) -> str:
    return f" (its steps: {', '.join(f'{one:.2f}' for one in seconds)} s)"


SUBJECT = Subject(
    f"A catch-up beside a conversion of everything, {ENTRIES_PER_KEY} entries a key, on all cores", measure
)
