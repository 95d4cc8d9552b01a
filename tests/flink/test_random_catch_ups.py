"""Chains of catch-ups of jobs at random, by seed: the result is what a whole conversion gives, and what is expected.

RocksDB writes, clears, expires, flushes and compacts. What is expected is kept apart, and RocksDB opens the results.
One in five migrates some keys alone.
How many and from which seed: `STATEFERRY_CHAINS` and `STATEFERRY_CHAIN_SEED`.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RejectedError
from flinkstate.files.storage import Location
from flinkstate.keyed.native_difference import ChangedFiles, whole_difference
from flinkstate.rocksdb.prefixes import Prefixes
from stateferry.changes.changed_keys import read_changed_keys
from stateferry.proof.changed_rows import ChangedRows, changed_rows
from stateferry.runs.record.runs import Run
from stateferry.runs.record.steps import Step
from stateferry.runs.report.report import Report
from stateferry.steps.pipeline import Pipeline
from tests.flink.harness import FlinkHarness
from tests.flink.jars import VERSIONS
from tests.flink.judge import raw_entries
from tests.flink.random_job import Kind, RandomOperator, options, random_job
from tests.flink.random_snapshots import difference, of_lazy_run, read_expected, shown, snapshots
from tests.steps.test_nights_since import at_work
from tests.support.lazy_choices import choosing_as
from tests.support.verified_runs import STAGED

CHAINS = int(os.environ.get("STATEFERRY_CHAINS", "30"))
SEED = int(os.environ.get("STATEFERRY_CHAIN_SEED", "0"))
pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]
Flink = Callable[[str], FlinkHarness]


def staged(source: Path, folder: Path, number: int, steps: tuple[Step, ...] = STAGED, **options: Any) -> Run:
    with at_work(source, folder, number, options.pop("job", "chain"), {"output_format": "native", **options}) as work:
        Pipeline(work).carry_out(*steps)
        if Step.VALIDATE in steps:
            assert Report.read(work.run.report).is_green
        return work.run


def whole(source: Path, folder: Path, number: int, job: list[RandomOperator], base: Run) -> Path:
    """A conversion of everything; if it is lazy, of the keys that the base moves."""
    with choosing_as(base):
        return Path(staged(source, folder, number, STAGED[:-1], job="whole", **options(job)).staged.path)


def drawn(seed: int) -> tuple[random.Random, list[RandomOperator], str]:
    """What follows from a seed: the job, and the version of Flink whose RocksDB it has."""
    chosen = random.Random(seed)
    job, version = random_job(chosen), VERSIONS[seed % len(VERSIONS)]
    if seed % 5 == 2 and job[0].kind.migrates:
        for one in job:
            one.kind, one.keeps_legacy = one.kind.lazily, False
    sys.stdout.write(f"STATEFERRY_CHAIN_SEED={seed}: RocksDB of Flink {version}, {[one.kind for one in job]}\n")
    return chosen, job, version


@pytest.mark.parametrize("seed", range(SEED, SEED + CHAINS))
def test_a_chain_of_catch_ups_is_what_is_expected(
    seed: int, flink: Flink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, job, version = drawn(seed)
    if seed % 2:
        # As of a large state, of which no key group is read whole.
        monkeypatch.setattr("stateferry.proof.catch_up._MOST_WHOLE", 0)
    if seed % 3:
        # As in a long chain, one newer file takes the place of those below it.
        monkeypatch.setattr("flinkstate.writing.newer_files.JOINED_FROM", seed % 3)
    counts = [200, *(chosen.randrange(1, 80) for _ in range(chosen.choice((1, 1, 2, 4))))]
    sources = snapshots(flink(version), job, counts, tmp_path)
    base = staged(sources[0], tmp_path, 0, **options(job))
    for number, source in enumerate(sources[1:], 1):
        run = staged(source, tmp_path, number, since=f"chain-{number - 1}", **options(job))
        caught_up = Path(run.staged.path)
        assert raw_entries(caught_up) == raw_entries(whole(source, tmp_path, number, job, base))
        found = shown(flink(version), caught_up, tmp_path / f"shown-{number}")
        is_lazy = job[0].kind.is_lazy
        expected = of_lazy_run(source, found, base) if is_lazy else read_expected(source.with_suffix(".expected"))
        assert difference(expected, found) == []


class Alteration:
    """Takes a key, a key group or a file from what is said to have changed, once."""

    def __init__(self, chosen: random.Random, kind: Kind) -> None:
        self.what = chosen.choice(("key", "key group", "file"))
        self.where = chosen.choice(("snapshot", "conversion", "validation"))
        self.is_done, self._chosen, self._width = False, chosen, 1 if kind.max_parallelism <= 128 else 2

    def put_in(self, patch: pytest.MonkeyPatch) -> None:
        if self.what == "file":
            patch.setattr("stateferry.inventory.inventory_change.whole_difference", self._without_a_file)
        elif self.where == "conversion":
            patch.setattr("stateferry.steps.catch_up.read_changed_keys", self._converted)
        elif self.where == "snapshot":
            every = ChangedFiles.changed
            patch.setattr(ChangedFiles, "changed", lambda *of: self._without_some(every(*of) or {}))
        else:
            patch.setattr("stateferry.proof.changed_rows._MOST_LISTED", 100.0)
            patch.setattr("stateferry.proof.catch_up.changed_rows", self._listed)

    def _converted(self, file: Location) -> dict[tuple[str, int], dict[str, Prefixes]]:
        return {of: self._without_some(lists) for of, lists in read_changed_keys(file).items()}

    def _listed(self, *of: Any) -> ChangedRows:
        found = changed_rows(*of)
        found.keys = self._without_some(found.keys or {})
        return found

    def _without_some(self, found: Mapping[Any, Prefixes]) -> dict[Any, Prefixes]:
        of_states = {state: _keys(keys) for state, keys in found.items()}
        every = [key for keys in of_states.values() for key in keys]
        if self.is_done or not every:
            return dict(found)
        self.is_done = True
        gone = self._chosen.choice(every)
        if self.what == "key group":
            gone = gone[: self._width]
        return {
            state: Prefixes.of(key for key in keys if key != gone and key[: self._width] != gone)
            for state, keys in of_states.items()
        }

    def _without_a_file(self, *of: Any) -> ChangedFiles:
        found = whole_difference(*of)
        every = [(state, table) for state, tables in found.added.items() for table in tables]
        if self.is_done or not every:
            return found
        self.is_done = True
        state, gone = self._chosen.choice(every)
        return replace(
            found, added={**found.added, state: [table for table in found.added[state] if table is not gone]}
        )


def _keys(of: Prefixes) -> list[bytes]:
    return [of.keys[start:end].tobytes() for start, end in pairwise(of.bounds.tolist())]


@pytest.mark.parametrize("seed", range(SEED, SEED + max(3, CHAINS // 10)))
def test_without_a_key_a_key_group_or_a_file_the_report_is_red(
    seed: int, flink: Flink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, job, version = drawn(seed)
    sources = snapshots(flink(version), job, [200, chosen.randrange(20, 80)], tmp_path)
    base = staged(sources[0], tmp_path, 0, **options(job))
    alteration = Alteration(chosen, job[0].kind)
    with monkeypatch.context() as patch:
        alteration.put_in(patch)
        try:
            found = staged(sources[1], tmp_path, 1, since="chain-0", **options(job))
        except RejectedError:
            assert alteration.is_done
            return
    # What a compaction has written anew needn't have changed, and to miss that does no harm.
    assert alteration.where != "conversion" or alteration.what == "file" or not alteration.is_done
    assert raw_entries(Path(found.staged.path)) == raw_entries(whole(sources[1], tmp_path, 1, job, base))


def test_keys_that_are_rewritten_in_other_bytes_are_found(
    flink: Flink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conversion and the validation have the bytes of changed keys in the result from the same function."""
    _, job, version = drawn(next(seed for seed in range(100) if random_job(random.Random(seed))[0].kind.for_flink_2))
    sources = snapshots(flink(version), job, [200, 80], tmp_path)
    staged(sources[0], tmp_path, 0, **options(job))
    monkeypatch.setattr("stateferry.changes.changed_keys._for_other_kryo", lambda keys, *of: keys)
    with pytest.raises(RejectedError, match="changed keys as they"):
        staged(sources[1], tmp_path, 1, since="chain-0", **options(job))
