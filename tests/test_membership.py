"""Keys in the key group that their hashes lead to: what is checked in one go against the look at one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateferry.errors import DamagedError
from stateferry.key_groups import assign_to_key_group
from stateferry.savepoint.header import NAMESPACE_SERIALIZER, VALUE_SERIALIZER, BackendKind, KeyedHeader, StateMeta
from stateferry.savepoint.membership import Membership
from stateferry.serializers.snapshots import simple_snapshot
from stateferry.serializers.types import Scalar
from stateferry.values.values import encode
from tests import naive_java_hash

MAX_PARALLELISM = 4
BEFORE_KEY = 4 + 1
KEYS = {
    Scalar.STRING: st.text(st.characters(codec="utf-8"), max_size=20) | st.text("ab", max_size=9),
    Scalar.LONG: st.integers(-(2**63), 2**63 - 1),
    Scalar.INTEGER: st.integers(-(2**31), 2**31 - 1),
}


class OneByOne(Membership):
    def _belong_at_once(self, *_: object) -> bool:
        return False


def member(kind: type[Membership], type_: Scalar) -> Membership:
    snapshot = simple_snapshot(type_)
    void = simple_snapshot(Scalar.VOID_NAMESPACE)
    meta = StateMeta("s", BackendKind.KEY_VALUE, (), ((VALUE_SERIALIZER, snapshot), (NAMESPACE_SERIALIZER, void)))
    return kind(KeyedHeader(False, snapshot, (meta,)), MAX_PARALLELISM, 1)


def entries(keys: list[bytes], key_group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    sizes = np.array([BEFORE_KEY + len(key) + 1 for key in keys], np.int64)
    ends = np.cumsum(sizes)
    data = b"".join(bytes(4) + bytes([key_group]) + key + b"\0" for key in keys)
    return np.frombuffer(data, np.uint8).copy(), ends - sizes, ends


def verdict(checked: Membership, key_group: int, *where: np.ndarray) -> DamagedError | None:
    try:
        checked.check(0, key_group, *where)
    except DamagedError as error:
        return error
    return None


@given(st.sampled_from(sorted(KEYS, key=str)), st.data())
def test_both_ways_find_the_same(type_: Scalar, data: st.DataObject) -> None:
    keys = data.draw(st.lists(KEYS[type_], min_size=1, max_size=6))
    key_group = data.draw(st.integers(0, MAX_PARALLELISM - 1))
    belonging = [
        key for key in keys if assign_to_key_group(naive_java_hash.hash_code(type_, key), MAX_PARALLELISM) == key_group
    ]
    if data.draw(st.booleans()):
        keys = belonging
    repeated = [encode(type_, key) for key in keys for _ in range(data.draw(st.integers(1, 3)))]
    where = entries(repeated, key_group)
    if len(where[0]) and data.draw(st.booleans()):
        where[0][data.draw(st.integers(0, len(where[0]) - 1))] = data.draw(st.integers(0, 255))
    at_once, one_by_one = (verdict(member(kind, type_), key_group, *where) for kind in (Membership, OneByOne))
    assert (at_once is None) == (one_by_one is None)
    if at_once is not None and one_by_one is not None:
        assert (str(at_once), at_once.offset) == (str(one_by_one), one_by_one.offset)


@pytest.mark.parametrize("type_", sorted(KEYS, key=str))
def test_keys_that_belong_need_no_second_look(type_: Scalar) -> None:
    values = ["", "a", "日本", "customer-1"] if type_ is Scalar.STRING else [-1, 0, 7, 2**31 - 1]
    for value in values:
        own = assign_to_key_group(naive_java_hash.hash_code(type_, value), MAX_PARALLELISM)
        for key_group in range(MAX_PARALLELISM):
            data, starts, ends = entries([encode(type_, value)] * 2, key_group)
            section = np.array([[key_group, 0, 0, 2]])
            found = member(Membership, type_)._belong_at_once(section, data, starts, ends)
            assert found == (key_group == own)
