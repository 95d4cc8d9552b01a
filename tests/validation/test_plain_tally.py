"""What the check by plain code says of the keys that it has read in both savepoints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateferry.proof.expected.check_result import Outcome
from stateferry.proof.expected.sampling import EVERYTHING
from stateferry.proof.plain.plain_check import PlainTally
from stateferry.proof.plain.plain_state import KeyAccount, Line, SampledKeys

ONE: Line = ("new", 7, "key 1", "a", 0, "5", None, 11)
TWO: Line = ("new", 7, "key 1", "b", 0, "6", 1000, 12)
FAR: Line = ("new", 9, "key 2", "a", 0, "5", None, 13)
ALL = "all keys (seed 0000000000000001): "
PART = "a sample (seed 0000000000000001): "


def account(*lines: Line, **settings: object) -> KeyAccount:
    return replace(KeyAccount(list(lines)), **settings)  # type: ignore[arg-type]


def sampled(*accounts: KeyAccount, below: int = EVERYTHING, too_large: tuple[int, ...] = ()) -> SampledKeys:
    return SampledKeys(dict(enumerate(accounts)), below, too_large)


def tally(source: SampledKeys, staged: SampledKeys) -> PlainTally:
    found = PlainTally()
    found.take(True, source)
    found.take(False, staged)
    return found


@pytest.mark.parametrize(
    ("source", "staged", "outcome", "expected", "actual", "groups", "samples"),
    [
        (sampled(account(ONE, TWO), account(FAR)), sampled(account(TWO, ONE), account(FAR)), Outcome.PASSED,
         f"{ALL}3 entries of 2 keys", "3 entries of 2 keys", (), ()),
        (sampled(), sampled(), Outcome.PASSED, f"{ALL}0 entries of 0 keys", "0 entries of 0 keys", (), ()),
        (sampled(account(ONE)), sampled(), Outcome.FAILED, f"{ALL}1 entry of 1 key",
         "0 entries of 0 keys; 1 key differs", (7,), ("key group 7: key 1, user key a: expected 5, found nothing",)),
        (sampled(), sampled(account(TWO), account(FAR)), Outcome.FAILED, f"{ALL}0 entries of 0 keys",
         "2 entries of 2 keys; 2 keys differ", (7, 9),
         ("key group 7: key 1, user key b: expected nothing, found 6 of 1000",
          "key group 9: key 2, user key a: expected nothing, found 5")),
        (sampled(account(ONE)), sampled(account((*ONE[:2], "key 3", *ONE[3:]))), Outcome.FAILED,
         f"{ALL}1 entry of 1 key", "1 entry of 1 key; 1 key differs", (7,),
         ("key group 7: key 1, user key a: expected 5, found nothing",
          "key group 7: key 3, user key a: expected nothing, found 5")),
        (sampled(account(ONE, TWO)), sampled(account(ONE, ONE, TWO)), Outcome.FAILED, f"{ALL}2 entries of 1 key",
         "3 entries of 1 key; 1 key differs", (7,), ("key group 7: key 1, user key a: expected nothing, found 5",)),
        (sampled(account(ONE)), sampled(account(("new", 8, *ONE[2:]))), Outcome.FAILED, f"{ALL}1 entry of 1 key",
         "1 entry of 1 key; 1 key differs", (7, 8),
         ("key group 7: key 1, user key a: expected 5 in key group 7, found 5 in key group 8",)),
        (sampled(account(ONE, TWO)), sampled(account((*ONE[:4], 1, "null", None, 14), TWO)), Outcome.FAILED,
         f"{ALL}2 entries of 1 key", "2 entries of 1 key; 1 key differs", (7,),
         ("key group 7: key 1, user key a: expected 5, found null by its flag",)),
        (sampled(account(("flag", 7, "key 1", "", 0, "true", None, 3))), sampled(), Outcome.FAILED,
         f"{ALL}1 entry of 1 key", "0 entries of 0 keys; 1 key differs", (7,),
         ("key group 7: key 1, state flag: expected true, found nothing",)),
        # Only keys of which both sides have all rows count.
        (sampled(account(ONE), account(FAR), below=2), sampled(account(ONE), below=1), Outcome.PASSED,
         f"{PART}1 entry of 1 key", "1 entry of 1 key", (), ()),
        (sampled(account(ONE), account(FAR)), sampled(account(ONE), too_large=(1,)), Outcome.PASSED,
         f"{PART}1 entry of 1 key; 1 key left out, because it is too large", "1 entry of 1 key", (), ()),
        (sampled(account(ONE), too_large=(2, 3, 4)), sampled(account(ONE), below=4), Outcome.PASSED,
         f"{PART}1 entry of 1 key; 2 keys left out, because they are too large", "1 entry of 1 key", (), ()),
        (sampled(too_large=(0,)), sampled(too_large=(0,)), Outcome.COULD_NOT_TELL,
         f"{PART}0 entries of 0 keys; 1 key left out, because it is too large",
         "no key of the sample is small enough", (), ()),
        # What is not known is not red.
        (sampled(account(ONE, undecided=[("key 1", "a")])), sampled(account(ONE)), Outcome.PASSED,
         f"{ALL}1 entry of 1 key", "1 entry of 1 key", (), ()),
        (sampled(account(undecided=[("key 1", "a")])), sampled(account(ONE)), Outcome.PASSED,
         f"{ALL}0 entries of 0 keys", "1 entry of 1 key", (), ()),
        (sampled(account(ONE, refusal="no"), account(FAR)), sampled(account(), account(FAR)), Outcome.COULD_NOT_TELL,
         f"{ALL}2 entries of 2 keys", "1 key can't be decoded, among them no", (), ()),
        (sampled(account(ONE), account(FAR)), sampled(account(refusal="no"), account(refusal="nor")),
         Outcome.COULD_NOT_TELL, f"{ALL}2 entries of 2 keys", "2 keys can't be decoded, among them no", (), ()),
        (sampled(account(damage="hurt")), sampled(account(damage="too")), Outcome.COULD_NOT_TELL,
         f"{ALL}0 entries of 0 keys", "1 key can't be decoded, among them in the source: hurt", (), ()),
        (sampled(account(ONE)), sampled(account(damage="hurt")), Outcome.FAILED,
         f"{ALL}1 entry of 1 key", "0 entries of 0 keys; 1 key differs", (), ("hurt",)),
    ],
)  # fmt: skip
def test_two_readings_of_a_sample(
    source: SampledKeys,
    staged: SampledKeys,
    outcome: Outcome,
    expected: str,
    actual: str,
    groups: tuple[int, ...],
    samples: tuple[str, ...],
) -> None:
    check = tally(source, staged).check("name", 1, True)
    assert (check.name, check.outcome) == ("name", outcome)
    assert (check.expected, check.actual, check.key_groups, check.samples) == (expected, actual, groups, samples)


def test_a_part_cannot_be_told() -> None:
    check = tally(sampled(account(ONE)), sampled()).check("name", 1, False)
    assert check.outcome is Outcome.COULD_NOT_TELL
    assert check.actual == "0 entries of 0 keys, as far as it could be read"


def test_keys_from_several_chunks_are_one() -> None:
    found = tally(sampled(account(ONE)), sampled(account(TWO)))
    found.take(True, sampled(account(TWO, undecided=[("x", "y")], damage=None, refusal=None)))
    found.take(False, sampled(account(ONE)))
    assert found.check("name", 1, True).outcome is Outcome.PASSED
    found.take(True, sampled(account(undecided=[("key 1", "c")])))
    found.take(False, sampled(account((*ONE[:3], "c", *ONE[4:]))))
    assert found.check("name", 1, True).outcome is Outcome.PASSED
    found.take(False, sampled(account(refusal="first")))
    found.take(False, sampled(account(refusal="second", damage="hurt")))
    assert found.found[0].refusal == "first"
    assert found.check("name", 1, True).samples == ("hurt",)


def test_ten_differences_are_enough() -> None:
    lines = [(*ONE[:3], f"{number}", *ONE[4:]) for number in range(12)]
    check = tally(sampled(account(*lines)), sampled()).check("name", 1, True)
    assert len(check.samples) == 10
