"""Ten kinds of savepoints, migrated, and alterations of what came out of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from flinkstate.keyed.compression import Compression
from flinkstate.reading.reader import operator_id
from flinkstate.writing.operator_rewrite import Layout
from stateferry.proof.checks import open_staged, validate
from stateferry.proof.expected.check_result import Check, Outcome
from tests.support.alterations import HARMFUL, HARMLESS, NotApplicableError, Place, Scene
from tests.validation.test_checks import Case, migrated


@dataclass(frozen=True)
class Result:
    """A golden savepoint and how it was migrated."""

    golden: str
    uid: str = "main"
    layout: Layout = field(default_factory=Layout)
    keep_legacy: bool = False


def made_of(source: Path, result: Result, folder: Path) -> Case:
    expires = "-ttl" in result.golden
    return migrated(source, folder, result.uid, result.layout, result.keep_legacy, keep_expired=expires)


RESULTS = {
    "plain": Result("legacy-2.3-rocksdb"),
    "time to live": Result("legacy-ttl-2.3-rocksdb"),
    "compressed": Result("legacy-snappy-2.3-rocksdb", layout=Layout(compression=Compression.SNAPPY)),
    "long key groups": Result("legacy-wide-1.20-rocksdb"),
    "files and inlined": Result("legacy-files-and-inlined-1.20-rocksdb", keep_legacy=True),
    "inlined": Result("legacy-ttl-inlined-2.3-hashmap"),
    "operator state and timers": Result("operator-state-2.3-rocksdb", "keyed"),
    "several operators": Result("several-operators-2.3-hashmap"),
    "finished subtasks": Result("finished-2.3-rocksdb"),
    "another layout": Result("legacy-tuple-pojo-2.3-rocksdb", "main", Layout({operator_id("main"): 5}, 300)),
}


@dataclass(frozen=True)
class Altered:
    """One alteration of one result, and what validation said of it."""

    result: str
    kind: str
    place: Place
    folder: Path
    checks: list[Check]

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.outcome is Outcome.FAILED]

    @property
    def names_the_place(self) -> bool:
        texts = [text for one in self.failed for text in (one.name, one.expected, one.actual, *one.samples)]
        groups = {group for one in self.failed for group in one.key_groups}
        named = any(word in text for word in self.place.words for text in texts)
        return named or self.place.key_group in groups


def alter(kind: str, results: dict[str, Case], folder: Path, random: Random) -> Altered:
    """An alteration of that kind of the first result, in the order given, that has something of the kind."""
    change = HARMFUL.get(kind) or HARMLESS[kind]
    for number, (name, case) in enumerate(results.items()):
        copy = folder / f"{number}"
        try:
            place = change(Scene(case.folder, copy, random))
        except NotApplicableError:
            continue
        return Altered(name, kind, place, copy, checks_of(case, copy))
    raise NotApplicableError(kind)


def checks_of(case: Case, folder: Path) -> list[Check]:
    staged = open_staged(str(folder))
    return [staged] if isinstance(staged, Check) else validate(case.source, staged, case.conversion)


def draw(seed: int, count: int) -> Iterator[tuple[str, Random]]:
    """So many kinds, each as often as the others, with what decides about the rest."""
    kinds = [*HARMFUL, *HARMLESS]
    Random(seed).shuffle(kinds)
    for number in range(count):
        yield kinds[number % len(kinds)], Random(f"{seed}-{number}")
