"""The validation: compares a staged savepoint with its source, from the bytes of both and nothing else.

Pieces of work (`plan_checks`, `run_check`) may run anywhere and return small facts. `validate` adds up the facts and
judges them. Only where they differ, the savepoints are read twice more: first to find the slices that differ, then to
find the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from stateferry.errors import DamagedError, RefusedError
from stateferry.savepoint.chunks import TARGET_BYTES, plan_chunks
from stateferry.savepoint.file_names import METADATA
from stateferry.savepoint.header import KeyedHeader
from stateferry.savepoint.metadata import Operator, parse_metadata
from stateferry.savepoint.reader import Savepoint, has_keyed_state
from stateferry.savepoint.storage import Location
from stateferry.validation.carried_check import CarriedSpec, has_carried_state
from stateferry.validation.check_result import Check, Outcome
from stateferry.validation.content import Account
from stateferry.validation.judgement import OperatorJudge, Samples, TableAccount, Tally
from stateferry.validation.keyed_check import Facts, KeyedSpec, Probe, Side, as_error
from stateferry.validation.metadata_check import (
    Difference,
    compare_headers,
    compare_metadata,
    expected_header,
    moving,
)
from stateferry.validation.promise import Promise
from stateferry.validation.sample_text import MOST_SAMPLES, compare, name_of
from stateferry.validation.sampling import SampleSpec, seed_of

CheckSpec = KeyedSpec | CarriedSpec
Run = Callable[[Sequence[CheckSpec]], Iterable[Facts]]

_MOST_GROUPS_PROBED = 32
_MOST_BITS = 16
_ENTRIES_OF_A_SLICE = 64
_MOST_ITEMS = 20_000


def run_check(spec: CheckSpec) -> Facts:
    """Does one piece of work."""
    return spec.run()


def run_here(specs: Sequence[CheckSpec]) -> Iterator[Facts]:
    """Does pieces of work in this process."""
    return map(run_check, specs)


def open_staged(name: str) -> Savepoint | Check:
    """The staged savepoint, or a failed check if it can't be read."""
    try:
        try:
            return Savepoint.open(name)
        except DamagedError:
            # Contradictions inside `_metadata` are found by later checks, which name them.
            folder = Location.of(name)
            file = folder.child(METADATA)
            return Savepoint(folder, parse_metadata(file.read(), file.shown))
    except (DamagedError, RefusedError) as error:
        return Check("readable", Outcome.FAILED, "a savepoint", f"{error}")


def plan_checks(
    source: Savepoint, staged: Savepoint, promise: Promise, *, target_bytes: int = TARGET_BYTES
) -> list[CheckSpec]:
    """All pieces of work.

    Keyed state of the staged savepoint that can't be cut into chunks gets none; `tally_up` records it as damage.
    """
    specs: list[CheckSpec] = []
    for pair in _pairs(source, staged):
        specs += pair.keyed(promise, target_bytes)
        if has_carried_state(pair.old) or has_carried_state(pair.new):
            specs.append(CarriedSpec(source.folder, pair.old, staged.folder, pair.new))
    return specs


@dataclass(frozen=True, slots=True)
class _Pair:
    """An operator in the source and in the staged savepoint."""

    source: Savepoint
    staged: Savepoint
    old: Operator
    new: Operator

    def keyed(
        self,
        promise: Promise,
        target_bytes: int,
        wanted: Callable[[int], bool] | None = None,
        sides: Sequence[Side] = tuple(Side),
    ) -> list[CheckSpec]:
        """Pieces of work for keyed state; `wanted` chooses key groups of the new savepoint."""
        if not (has_keyed_state(self.old) or has_keyed_state(self.new)):
            return []
        promised, seed = promise.of(self.source, self.old), seed_of(self.source)
        everything = wanted is None or promised.moves
        specs: list[CheckSpec] = []
        for side, savepoint, operator in (
            (Side.SOURCE, self.source, self.old),
            (Side.STAGED, self.staged, self.new),
        ):
            if side not in sides:
                continue
            chosen = (lambda _: True) if wanted is None or (side is Side.SOURCE and everything) else wanted
            try:
                chunks = plan_chunks(operator, chosen, target_bytes=target_bytes)
            except DamagedError:
                if side is Side.SOURCE:
                    raise
                continue
            total = sum(chunk.size for chunk in chunks)
            specs += [
                KeyedSpec(
                    side,
                    savepoint.folder,
                    self.old.hex_id,
                    chunk,
                    promised,
                    self.checks_keys(promise),
                    sample=SampleSpec(seed, chunk.size / total) if wanted is None and promised.rules else None,
                )
                for chunk in chunks
            ]
        return specs

    def checks_keys(self, promise: Promise) -> bool:
        """Whether to check that each key is in the key group of its hash.

        Without a migration or a new max parallelism this isn't needed: equal content proves that each key is where it
        was.
        """
        rehashed = promise.layout.rehashes(self.old)
        return has_keyed_state(self.old) and (rehashed or bool(promise.rules.get(self.old.id)))

    def uncuttable(self) -> DamagedError | None:
        """Why the staged operator's keyed state can't be cut into chunks, or None."""
        try:
            plan_chunks(self.new)
        except DamagedError as error:
            return error
        return None


def _pairs(source: Savepoint, staged: Savepoint) -> list[_Pair]:
    new = {operator.id: operator for operator in staged.metadata.operators}
    return [
        _Pair(source, staged, operator, new[operator.id])
        for operator in source.metadata.operators
        if operator.id in new
    ]


def validate(
    source: Savepoint,
    staged: Savepoint,
    promise: Promise,
    *,
    run: Run = run_here,
    tables: Sequence[TableAccount] = (),
    target_bytes: int = TARGET_BYTES,
) -> list[Check]:
    """Does all checks. Damage in the source raises an error; damage in the staged savepoint is a failed check."""
    tallies = tally_up(source, staged, promise, run(plan_checks(source, staged, promise, target_bytes=target_bytes)))
    samples = find_samples(source, staged, promise, tallies, run, target_bytes)
    return judge(source, staged, promise, tallies, samples, tables)


def tally_up(source: Savepoint, staged: Savepoint, promise: Promise, facts: Iterable[Facts]) -> dict[str, Tally]:
    """Adds up the facts of each operator."""
    tallies = {}
    for pair in _pairs(source, staged):
        # The staged savepoint may have another max parallelism than promised.
        promised = promise.layout.of(pair.old).max_parallelism
        tallies[pair.old.hex_id] = Tally(max(promised, pair.new.max_parallelism))
    for one in facts:
        tallies[one["operator"]].take(one)
    for pair in _pairs(source, staged):
        error = pair.uncuttable()
        if error is not None:
            tallies[pair.old.hex_id].damage.append((error.key_group, str(error)))
    return tallies


def judge(
    source: Savepoint,
    staged: Savepoint,
    promise: Promise,
    tallies: dict[str, Tally],
    samples: Samples,
    tables: Sequence[TableAccount] = (),
) -> list[Check]:
    """The checks that follow from the facts."""
    checks = [_of_differences("_metadata", list(compare_metadata(source.metadata, staged.metadata, promise.layout)))]
    for pair in _pairs(source, staged):
        tally = tallies[pair.old.hex_id]
        promised, label = promise.of(source, pair.old), pair.old.label
        seed, checks_keys = seed_of(source), pair.checks_keys(promise)
        of_operator = OperatorJudge(pair.old.hex_id, label, promised, checks_keys, seed, tally, samples, tables)
        keyed = has_keyed_state(pair.old) or has_keyed_state(pair.new)
        carried = has_carried_state(pair.old) or has_carried_state(pair.new)
        if keyed:
            checks.append(_headers(pair, promise))
        if keyed or tally.damage:
            checks.append(of_operator.readable())
        checks += [*(of_operator.checks() if keyed else ()), *(of_operator.carried() if carried else ())]
    return checks


def _of_differences(name: str, found: list[Difference]) -> Check:
    if not found:
        return Check(name, Outcome.PASSED, "as planned", "as planned")
    groups = tuple(sorted({group for difference in found for group in difference.key_groups}))
    texts = tuple(f"{one.what}: expected {one.expected}, found {one.found}" for one in found)
    return Check(name, Outcome.FAILED, "as planned", texts[0], groups, texts[:MOST_SAMPLES])


def _headers(pair: _Pair, promise: Promise) -> Check:
    name = f"{pair.old.label}: headers"
    merged = pair.source.keyed_header(pair.old)
    if merged is None:
        return Check(name, Outcome.FAILED, "no keyed state", "some")
    moved = moving(pair.old, promise.layout)
    own = {} if moved else _headers_by_subtask(pair.source, pair.old)
    try:
        found = _headers_by_subtask(pair.staged, pair.new)
    except (DamagedError, RefusedError) as error:
        return Check(name, Outcome.FAILED, "as planned", f"{error}")
    expected = expected_header(merged, promise.of(pair.source, pair.old))
    return _of_differences(name, list(compare_headers(pair.old.label, expected, own, found)))


def _headers_by_subtask(savepoint: Savepoint, operator: Operator) -> dict[int, KeyedHeader]:
    return {file.subtask_file.subtask: file.header for file in savepoint.open_files(operator)}


def find_samples(
    source: Savepoint, staged: Savepoint, promise: Promise, tallies: dict[str, Tally], run: Run, target_bytes: int
) -> Samples:
    """Finds up to ten wrong entries in each state that differs, and says what is wrong with them."""
    samples: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for pair in _pairs(source, staged):
        tally = tallies[pair.old.hex_id]
        if tally.damage:
            continue
        search = _Search(pair, promise, run, target_bytes)
        differing = tally.differing()
        for state, groups in differing.items():
            samples[pair.old.hex_id, state] = search.differences(state, groups, tally)
        for state, strays in tally.strays.items():
            if strays and state not in differing:
                samples[pair.old.hex_id, state] = search.strays(state, sorted(strays))
    return samples


@dataclass(frozen=True, slots=True)
class _Search:
    """Finds the wrong entries of one operator."""

    pair: _Pair
    promise: Promise
    run: Run
    target_bytes: int

    def _facts(self, probe: Probe, sides: Sequence[Side] = tuple(Side)) -> Iterator[Facts]:
        wanted = set(probe.key_groups)
        specs = self.pair.keyed(self.promise, self.target_bytes, wanted.__contains__, sides)
        for facts in self.run([replace(spec, probe=probe) for spec in specs if isinstance(spec, KeyedSpec)]):
            if facts["damage"] is not None:
                raise as_error(facts["damage"])
            yield facts

    def differences(self, state: str, groups: list[int], tally: Tally) -> list[tuple[int, str]]:
        """Finds differing entries in the state's key groups: by slices first, then by entries."""
        probed = tuple(groups[:_MOST_GROUPS_PROBED])
        entries = max(int(book.of(state).counts[list(probed)].sum()) for book in (tally.expected, tally.found))
        bits = min(max((entries // _ENTRIES_OF_A_SLICE).bit_length(), 1), _MOST_BITS)
        probe = Probe(state, probed, bits)
        accounts = {side.value: Account.of(1 << bits) for side in Side}
        for facts in self._facts(probe):
            accounts[facts["side"]].add_facts(facts["slices"])
        slices = self._differing_slices(accounts[Side.SOURCE.value], accounts[Side.STAGED.value])
        items: dict[str, list[dict[str, object]]] = {side.value: [] for side in Side}
        for facts in self._facts(replace(probe, slices=slices)) if slices else ():
            items[facts["side"]] += facts["items"]
        return compare(items[Side.SOURCE.value], items[Side.STAGED.value])

    @staticmethod
    def _differing_slices(one: Account, other: Account) -> tuple[int, ...]:
        """Up to ten differing slices, fewer if they hold too many entries."""
        different = one.differences(other)[:MOST_SAMPLES]
        sizes = np.cumsum(one.counts[different] + other.counts[different])
        return tuple(different[: max(int(np.searchsorted(sizes, _MOST_ITEMS)), 1)].tolist())

    def strays(self, state: str, groups: list[int]) -> list[tuple[int, str]]:
        """Names entries whose key belongs to another key group."""
        probe = Probe(state, tuple(groups[:_MOST_GROUPS_PROBED]), strays=True)
        with suppress(DamagedError):
            items = [item for facts in self._facts(probe, (Side.STAGED,)) for item in facts["items"]]
            return [
                (item["group"], f"{name_of(item)}: its hash leads to another key group")
                for item in items[:MOST_SAMPLES]
            ]
        return []
