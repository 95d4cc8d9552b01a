"""A number's noun."""

from __future__ import annotations

import pytest

from stateferry.quantities import noun


@pytest.mark.parametrize(("number", "expected"), [(0, "keys are"), (1, "key is"), (2, "keys are"), (11, "keys are")])
def test_one_is_the_only_number_of_one(number: int, expected: str) -> None:
    assert noun(number, "key is", "keys are") == expected


def test_several_are_named_with_an_s() -> None:
    assert [noun(number, "place") for number in range(3)] == ["places", "place", "places"]
