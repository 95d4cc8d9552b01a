"""Keys found again by 128 bits, and what a ledger says of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import Scalar
from flinkstate.serializers.walker import Flags
from flinkstate.values.codecs import encode
from stateferry.changes import kernels
from stateferry.changes.key_hashes import Lanes, hash_lanes, key_lanes
from stateferry.tables.iceberg.key_index import KeyIndex, lanes_of_parts
from stateferry.tables.iceberg.ledger import KeyStates, Ledger, fingerprint_array, first_of_each


def lanes(*pairs: tuple[int, int]) -> Lanes:
    both = np.array(pairs, np.uint64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


# Few different ones, alike in one half, and such that their slots lie at the table's end.
PAIRS = st.tuples(st.sampled_from([0, 1, 15, 16, 31, 2**64 - 1]), st.sampled_from([0, 1, 2**63]))


@given(st.lists(PAIRS, max_size=40), st.lists(PAIRS, max_size=10))
def test_an_index_numbers_keys_as_they_first_come(known: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    index = KeyIndex(lanes(*known))
    different = list(dict.fromkeys(known))
    assert len(index) == len(different)
    assert index.numbers.tolist() == [different.index(pair) for pair in known]
    assert index.firsts.tolist() == [known.index(pair) for pair in different]
    found = index.find(lanes(*asked)).tolist()
    assert found == [different.index(pair) if pair in different else -1 for pair in asked]
    values = np.arange(len(known), dtype=np.uint64)
    chosen = values % 2 == 0
    sums = [sum(at for at, pair in enumerate(known) if pair == key and at % 2 == 0) for key in different]
    assert index.sums(values, chosen).tolist() == sums


def test_runs_begin_wherever_either_half_changes() -> None:
    assert first_of_each(lanes((1, 1), (1, 1), (1, 2), (3, 2), (3, 2), (1, 1))).tolist() == [0, 2, 3, 5]


def whole_key(state: KeyedState, key: bytes, namespace: bytes) -> bytes:
    """As Flink writes it behind the key group."""

    def suffix(part: bytes) -> bytes:
        found, rest = b"", len(part)
        while True:
            found += bytes([rest & 0xFF])
            rest >>= 8
            if not rest:
                return found

    if state.has_suffixes:
        return key + suffix(key) + namespace + suffix(namespace)
    return key + namespace


@pytest.mark.parametrize("namespace_type", [Scalar.VOID_NAMESPACE, Scalar.STRING, Scalar.TIME_WINDOW])
@pytest.mark.parametrize("key_type", [Scalar.STRING, Scalar.LONG])
def test_parts_in_a_table_are_the_key_they_were_in_the_savepoint(key_type: Scalar, namespace_type: Scalar) -> None:
    state = KeyedState("s", StateKind.VALUE, key_type, namespace_type, None, None, False, False)
    texts = ["", "a", "é" * 40, "x" * 300, "y" * 70_000]
    keys = [encode(key_type, text if key_type is Scalar.STRING else len(text)) for text in texts]
    namespaces = {
        Scalar.VOID_NAMESPACE: [b"\0"] * len(texts),
        Scalar.STRING: [encode(Scalar.STRING, text) for text in reversed(texts)],
        Scalar.TIME_WINDOW: [number.to_bytes(16, "big") for number in range(len(texts))],
    }[namespace_type]
    wholes = [whole_key(state, *parts) for parts in zip(keys, namespaces, strict=True)]
    ends = np.cumsum([len(whole) for whole in wholes])
    starts = ends - np.array([len(whole) for whole in wholes])
    wanted = key_lanes(np.frombuffer(b"".join(wholes), np.uint8), starts, ends)
    column = None if namespace_type is Scalar.VOID_NAMESPACE else pa.array(namespaces, pa.binary())
    found = lanes_of_parts(state, pa.array(keys, pa.binary()), column)
    assert [lane.tolist() for lane in found] == [lane.tolist() for lane in wanted]
    # Also where the column is a part of a larger one.
    sliced = lanes_of_parts(state, pa.array(keys, pa.binary())[2:4], None if column is None else column[2:4])
    assert sliced[0].tolist() == wanted[0][2:4].tolist()


def _nobody(count: int) -> tuple[Flags, Flags]:
    """No key is migrated, none came from a blob."""
    return np.zeros(count, np.bool_), np.zeros(count, np.bool_)


def states(keys: Lanes, prints: Lanes) -> KeyStates:
    count = len(keys[0])
    return KeyStates(KeyIndex(keys), prints, np.ones(count, np.uint8), np.zeros(count, np.int64))


def test_the_highest_run_of_a_key_holds_wherever_it_lies() -> None:
    keys = lanes((1, 0), (2, 0), (1, 0), (3, 0), (3, 0))
    ledger = Ledger(
        keys, lanes((7, 7), (8, 8), (6, 6), (9, 9), (0, 0)), np.array([5, 5, 4, 5, 6]), _gone(4, 5), *_nobody(5)
    )
    assert ledger.keys == 2
    new, changed = ledger.compare(states(lanes((1, 0), (3, 0), (4, 0)), lanes((7, 7), (9, 9), (1, 1))))
    assert new.tolist() == [False, True, True]
    assert changed.tolist() == [False, False, False]
    assert ledger.vanished().tolist() == [1]


def test_half_of_a_fingerprint_is_not_enough() -> None:
    ledger = Ledger(lanes((1, 1), (2, 2)), lanes((7, 8), (7, 8)), np.array([1, 1]), _gone(count=2), *_nobody(2))
    _, changed = ledger.compare(states(lanes((1, 1), (2, 2)), lanes((7, 9), (6, 8))))
    assert changed.tolist() == [True, True]


def test_only_what_the_last_run_of_a_key_wrote_is_current() -> None:
    ledger = Ledger(lanes((1, 0), (1, 0), (2, 0)), lanes(*[(0, 0)] * 3), np.array([1, 3, 2]), _gone(2, 3), *_nobody(3))
    asked = lanes((1, 0), (1, 0), (2, 0), (5, 0))
    assert ledger.are_current(asked, np.array([3, 1, 2, 3])).tolist() == [True, False, False, False]


def test_fingerprints_come_back_out_of_a_table() -> None:
    key = encode(Scalar.STRING, "k")
    state = KeyedState("s", StateKind.VALUE, Scalar.STRING, Scalar.VOID_NAMESPACE, None, None, False, False)
    table = pa.table(
        {
            "key_raw": pa.array([b"other", key]),
            "fingerprint": fingerprint_array(lanes((1, 2), (2**64 - 1, 3))),
            "run": pa.array([1, 1]),
            "origin": pa.array(["tombstone", "ferry"]),
            "is_migrated": pa.array([False, True]),
        }
    )
    ledger = Ledger.of(table[1:], state, "tombstone")
    whole = np.frombuffer(key + b"\0", np.uint8)
    keys = key_lanes(whole, np.zeros(1, np.int64), np.array([len(whole)]))
    new, changed = ledger.compare(states(keys, lanes((2**64 - 1, 3))))
    assert (new.tolist(), changed.tolist()) == ([False], [False])


def _gone(*at: int, count: int | None = None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """All there (`count`), or of the last argument many all but those before it."""
    gone = np.zeros(at[-1] if count is None else count, np.bool_)
    gone[list(at[:-1])] = True
    return gone


@pytest.mark.parametrize("count", [1, 2, 3, 200])
def test_two_hashes_at_once_are_those_of_one_after_the_other(count: int) -> None:
    random = np.random.default_rng(count)
    data = random.integers(0, 256, 1 << 17, dtype=np.uint8)
    data.flags.writeable = False
    # Long ones go beside the next, whatever that is; some begin or end where the data does.
    sizes = random.choice([0, 1, 7, 8, 9, 17, 127, 128, 129, 135, 136, 500, 1003], count)
    starts = random.integers(0, len(data) - sizes + 1)
    starts[0], starts[-1] = 0, len(data) - sizes[-1]
    found = hash_lanes(data, starts, starts + sizes, (3, 5))
    for seed, hashes in zip((3, 5), found, strict=True):
        expected = np.empty(count, np.uint64)
        kernels.hash_each(data, starts, starts + sizes, np.full(count, seed, np.uint64), expected)
        assert hashes.tolist() == expected.tolist()
