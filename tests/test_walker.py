"""Walks over values of any type: where each one ends and where its parts begin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stateferry import walker
from stateferry.types import ArrayType, FlinkType, ListType, Scalar, SetType
from stateferry.values import encode


@pytest.mark.parametrize("type_", [ArrayType(Scalar.LONG, "java.lang.Long"), SetType(Scalar.LONG)])
@pytest.mark.parametrize("elements", [[None], [None, None], [1, None, None], [None, 2]])
def test_null_elements_have_no_bytes_but_their_flag(type_: ArrayType | SetType, elements: list[Any]) -> None:
    data, starts, limits = column(type_, elements)
    assert walker.skip_each(type_, data, starts, limits).tolist() == [len(data)]
    found = walker.walk_elements(type_, data, starts, limits)
    assert found.counts.tolist() == [len(elements)]
    assert found.present is not None
    assert found.present.tolist() == [element is not None for element in elements]
    assert found.stops.tolist() == [len(data)]


def test_null_elements_of_nested_arrays_are_walked_over() -> None:
    nested = ListType(ArrayType(Scalar.STRING, "java.lang.String"))
    data, starts, limits = column(nested, [[None, "a"], [], [None]])
    assert walker.skip_each(nested, data, starts, limits).tolist() == [len(data)]


def column(type_: FlinkType, value: object) -> tuple[walker.Bytes, walker.Positions, walker.Positions]:
    data = np.frombuffer(encode(type_, value), np.uint8).copy()
    return data, np.zeros(1, np.int64), np.full(1, len(data), np.int64)
