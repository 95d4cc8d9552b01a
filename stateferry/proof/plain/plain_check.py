"""Compares what plain code has read of a sample of keys in the source and in the staged savepoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from stateferry.basics.quantities import noun
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.proof.expected.sample_text import MOST_SAMPLES
from stateferry.proof.expected.sampling import EVERYTHING
from stateferry.proof.plain.plain_state import KeyAccount, Line, SampledKeys


@dataclass(slots=True)
class PlainTally:
    """The sampled keys of one migrated state, from all chunks."""

    expected: dict[int, KeyAccount] = field(default_factory=dict)
    found: dict[int, KeyAccount] = field(default_factory=dict)
    below: int = EVERYTHING
    too_large: set[int] = field(default_factory=set)

    def take(self, is_source: bool, sampled: SampledKeys) -> None:
        """Adds the keys of one chunk."""
        self.below = min(self.below, sampled.below)
        self.too_large.update(sampled.too_large)
        side = self.expected if is_source else self.found
        for hash_, account in sampled.keys.items():
            side.setdefault(hash_, KeyAccount()).add(account)

    def check(self, name: str, seed: int, is_complete: bool) -> Check:
        """The check of this state; `is_complete` says that all of the staged savepoint could be read."""
        sides = self._in_sample(self.expected), self._in_sample(self.found)
        judged = [
            _judged(*(side.get(hash_, KeyAccount()) for side in sides)) for hash_ in sorted({*sides[0], *sides[1]})
        ]
        left_out = sum(hash_ < self.below for hash_ in self.too_large)
        whole = self.below == EVERYTHING and not left_out
        expected, actual = (_in_words(side.values()) for side in sides)
        why = noun(left_out, "it is too large", "they are too large")
        too_large = f"; {left_out} {noun(left_out, 'key')} left out, because {why}" if left_out else ""
        of = f"{'all keys' if whole else 'a sample'} (seed {seed:016x})"
        expected = f"{of}: {expected}{too_large}"
        twice = _in_two_forms(self.expected.values())
        texts = [*twice, *(text for one in judged for text in one.texts)]
        groups = tuple(sorted({group for one in judged for group in one.key_groups}))
        refusals = [one.refusal for one in judged if one.refusal is not None]
        if not is_complete:
            return Check(name, Outcome.COULD_NOT_TELL, expected, f"{actual}, as far as it could be read", groups)
        if texts:
            wrong = len(twice) + sum(bool(one.texts) for one in judged)
            return Check(
                name,
                Outcome.FAILED,
                expected,
                f"{actual}; {wrong} {noun(wrong, 'key differs', 'keys differ')}",
                groups,
                tuple(texts[:MOST_SAMPLES]),
            )
        if refusals:
            actual = f"{len(refusals)} {noun(len(refusals), 'key')} can't be decoded, among them {refusals[0]}"
            return Check(name, Outcome.COULD_NOT_TELL, expected, actual)
        if not judged and not whole:
            return Check(name, Outcome.COULD_NOT_TELL, expected, "no key of the sample is small enough")
        return Check(name, Outcome.PASSED, expected, actual)

    def _in_sample(self, side: dict[int, KeyAccount]) -> dict[int, KeyAccount]:
        """The keys of which both sides have all rows."""
        return {hash_: one for hash_, one in side.items() if hash_ < self.below and hash_ not in self.too_large}


def _in_words(accounts: Iterable[KeyAccount]) -> str:
    lines = [line for account in accounts for line in account.lines]
    keys = len({line[2] for line in lines})
    return f"{len(lines)} {noun(len(lines), 'entry', 'entries')} of {keys} {noun(keys, 'key')}"


def _in_two_forms(accounts: Iterable[KeyAccount]) -> list[str]:
    """Says which keys have other bytes in the maps than in rows or flags: the job may take both for one key."""
    found: dict[str, tuple[set[bytes], set[bytes]]] = {}
    for text, is_of_a_map, raw in sorted(form for account in accounts for form in account.forms):
        found.setdefault(text, (set(), set()))[is_of_a_map].add(raw)
    return [
        f"{text}: expected the same bytes in all states, found {_hex(maps)} in the maps and {_hex(others)} elsewhere"
        for text, (others, maps) in found.items()
        if maps and others and maps != others
    ]


def _hex(keys: Iterable[bytes]) -> str:
    return ", ".join(key.hex() for key in sorted(keys))


@dataclass(frozen=True, slots=True)
class _Judged:
    """What is wrong with one key, and where; `refusal` says why that isn't known."""

    texts: list[str]
    key_groups: list[int]
    refusal: str | None = None


def _judged(expected: KeyAccount, found: KeyAccount) -> _Judged:
    if found.damage is not None and expected.damage is None:
        return _Judged([found.damage], [])
    # Plain code may be stricter than the code that converted the source. Such a problem says nothing about the result.
    unread = f"in the source: {expected.damage}" if expected.damage is not None else None
    if refusal := expected.refusal or unread or found.refusal:
        return _Judged([], [], refusal)
    undecided = set(expected.undecided)
    one, other = (Counter(line for line in of.lines if line[2:4] not in undecided) for of in (expected, found))
    missing, surplus = one - other, other - one
    return _Judged(list(_differences(missing, surplus)), [line[1] for line in (*missing, *surplus)])


def _differences(missing: Counter[Line], surplus: Counter[Line]) -> Iterator[str]:
    found = list(surplus.elements())
    for line in missing.elements():
        twin = next((other for other in found if _place(other) == _place(line)), None)
        if twin is not None:
            found.remove(twin)
        yield f"key group {line[1]}: {_named(line)}: expected {_words(line, twin)}, found {_words(twin, line)}"
    for line in found:
        yield f"key group {line[1]}: {_named(line)}: expected nothing, found {_words(line, None)}"


def _place(line: Line) -> tuple[str, str, str]:
    return line[0], line[2], line[3]


def _named(line: Line) -> str:
    return f"{line[2]}, user key {line[3]}" if line[3] else f"{line[2]}, state {line[0]}"


def _words(line: Line | None, beside: Line | None) -> str:
    """The line's value in words; its key group is named only if `beside` has another one."""
    if line is None:
        return "nothing"
    _, group, _, _, is_null, value, stamp, _ = line
    text = f"{value}{' by its flag' if is_null else ''}{f' of {stamp}' if stamp is not None else ''}"
    return text if beside is None or beside[1] == group else f"{text} in key group {group}"
