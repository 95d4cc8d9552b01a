"""The plain form of the choice of a lazy run says the same as the compiled one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import Scalar
from stateferry.changes.lazy_cut import LazyCut, Order
from stateferry.proof.plain.plain_lazy_cut import is_moved

FLAG = KeyedState("flag", StateKind.VALUE, Scalar.STRING, Scalar.VOID_NAMESPACE, None, Scalar.BOOLEAN, False, False)


@pytest.mark.parametrize("order", Order)
@given(st.binary(max_size=40), st.one_of(st.integers(0, 300), st.integers(0, 1 << 20)))
def test_a_key_is_chosen_up_to_its_rank(order: Order, key: bytes, size: int) -> None:
    data = np.frombuffer(key + bytes(8), np.uint8).copy()
    rank = int(order.ranks(data, np.zeros(1, np.int64), np.array([len(key)]), np.array([size]))[0])
    assert is_moved(LazyCut(order, rank, FLAG), key, bytes(size))
    assert not is_moved(LazyCut(order, rank - 1, FLAG), key, bytes(size))
