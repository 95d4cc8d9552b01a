"""Keys in the key group that their hashes lead to: what is checked in one go against the look at one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError
from flinkstate.hashing.key_groups import assign_to_key_group
from flinkstate.keyed import kernels
from flinkstate.keyed.header import NAMESPACE_SERIALIZER, VALUE_SERIALIZER, BackendKind, KeyedHeader, StateMeta
from flinkstate.keyed.key_group_check import Membership
from flinkstate.serializers.built_snapshots import simple_snapshot
from flinkstate.serializers.types import Scalar
from flinkstate.serializers.walker import new_failure
from flinkstate.values.codecs import encode
from tests.support.keyed_blobs import key_group_of

MAX_PARALLELISM = 4
BEFORE_KEY = 4 + 1
KEYS = {
    Scalar.STRING: st.text(st.characters(codec="utf-8"), max_size=20) | st.text("ab", max_size=9),
    Scalar.LONG: st.integers(-(2**63), 2**63 - 1),
    Scalar.INTEGER: st.integers(-(2**31), 2**31 - 1),
}
LONG_KEYS = {Scalar.STRING: st.text("ab", min_size=14, max_size=130)}


class OneByOne(Membership):
    def _belong_at_once(self, *_: object) -> bool:
        return False


def member(kind: type[Membership], type_: Scalar, max_parallelism: int = MAX_PARALLELISM) -> Membership:
    snapshot = simple_snapshot(type_)
    void = simple_snapshot(Scalar.VOID_NAMESPACE)
    meta = StateMeta("s", BackendKind.KEY_VALUE, (), ((VALUE_SERIALIZER, snapshot), (NAMESPACE_SERIALIZER, void)))
    return kind(KeyedHeader(False, snapshot, (meta,)), max_parallelism, 1)


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
    belonging = [key for key in keys if key_group_of(type_, key, MAX_PARALLELISM) == key_group]
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


LONG_STRING = "ab" * 64


@pytest.mark.parametrize("value", ["", "a", "日本", "customer-1", LONG_STRING])
def test_texts_that_belong_need_no_second_look(value: str) -> None:
    own = key_group_of(Scalar.STRING, value, MAX_PARALLELISM)
    for key_group in range(MAX_PARALLELISM):
        data, starts, ends = entries([encode(Scalar.STRING, value)] * 2, key_group)
        section = np.array([[key_group, 0, 0, 2]])
        found = member(Membership, Scalar.STRING)._belong_at_once(section, data, starts, ends)
        assert found == (key_group == own)


@given(st.sampled_from(sorted(KEYS, key=str)), st.data())
def test_the_scan_is_certain_of_keys_that_belong_and_of_no_others(type_: Scalar, data: st.DataObject) -> None:
    keys = data.draw(st.lists(KEYS[type_] | LONG_KEYS.get(type_, st.nothing()), min_size=1, max_size=6))
    max_parallelism = data.draw(st.sampled_from([1, 2, 3, MAX_PARALLELISM, 100]))
    groups = [key_group_of(type_, key, max_parallelism) for key in keys]
    key_group = data.draw(st.sampled_from(groups))
    all_belong = set(groups) == {key_group}
    simple = type_ is not Scalar.STRING or all(str(key).isascii() and len(str(key)) < 127 for key in keys)
    before = [b"\0" * data.draw(st.integers(1, 20))] * data.draw(st.integers(0, 1))
    serialized = [encode(type_, key) for key in keys]
    checked = member(Membership, type_, max_parallelism)
    certain = scanned([*before, *serialized], key_group, checked, len(before))
    assert certain == (all_belong and simple)


@pytest.mark.parametrize("type_", sorted(KEYS, key=str))
@given(
    raw=st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=3),
    key_group=st.integers(0, MAX_PARALLELISM - 1),
)
def test_the_scan_is_never_certain_of_damage(type_: Scalar, raw: list[bytes], key_group: int) -> None:
    checked = member(OneByOne, type_)
    window, starts, ends = framed(raw, key_group)
    if scanned(raw, key_group, checked):
        assert verdict(checked, key_group, window, starts, ends - 4) is None


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 24, 25, 126, 127])
def test_a_null_is_no_text_that_the_scan_is_certain_of(size: int) -> None:
    own = assign_to_key_group(0, MAX_PARALLELISM)
    assert not scanned([b"\1" + b"a" * size, b"\0"], own, member(Membership, Scalar.STRING))


def framed(keys: list[bytes], key_group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Entries of empty values as they lie in a section, with its end."""
    sizes = np.array([4 + 1 + len(key) + 4 for key in keys], np.int64)
    ends = np.cumsum(sizes)
    parts = [(1 + len(key)).to_bytes(4) + bytes([key_group]) + key + bytes(4) for key in keys]
    parts[-1] = parts[-1][:4] + bytes([key_group | 0x80]) + parts[-1][5:]
    return np.frombuffer(b"".join(parts) + b"\xff\xff", np.uint8).copy(), ends - sizes, ends


def scanned(keys: list[bytes], key_group: int, checked: Membership, first: int = 0) -> bool:
    """Whether the scan is certain of all keys from the first on."""
    data, begins, ends = framed(keys, key_group)
    found = np.empty((3, len(keys)), np.int64)
    result, failure = np.zeros(4, np.int64), new_failure()
    kind, offset = checked.keys[0].tolist()
    count = kernels.scan_entries(
        data,
        int(begins[first]),
        len(data),
        key_group,
        1,
        kind,
        offset,
        checked.max_parallelism,
        *found,
        result,
        failure,
    )
    assert count == len(keys) - first
    assert found[2, :count].tolist() == ends[first:].tolist()
    return bool(result[3])
