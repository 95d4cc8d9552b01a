"""What validation says of entries that are wrong: each is named, and told for what it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.serializers.types import FlinkType, Scalar
from flinkstate.values.codecs import encode
from stateferry.proof.expected.content import Entries
from stateferry.proof.expected.expected_entries import EXPIRED
from stateferry.proof.expected.sample_text import ProbedEntry, compare, describe

ENTRY = ProbedEntry(7, {"key": '"a"', "user_key": '"b"'}, False, "5", 55, 1000, 1, 100, None)
NAME = 'key "a", user key "b"'
OTHER = replace(ENTRY, value="6", value_hash=66, hash=101)


@pytest.mark.parametrize(
    ("source", "staged", "texts"),
    [
        ([ENTRY], [ENTRY], []),
        ([ENTRY], [], [(7, f"{NAME}: missing (alive, of 1000), with the value 5")]),
        ([replace(ENTRY, timestamp=None)], [], [(7, f"{NAME}: missing, with the value 5")]),
        ([], [ENTRY], [(7, f"{NAME}: not in the source")]),
        ([ENTRY], [ENTRY, ENTRY], [(7, f"{NAME}: doubled")]),
        ([ENTRY], [OTHER], [(7, f"{NAME}: value: expected 5, found 6")]),
        (
            [ENTRY],
            [replace(OTHER, timestamp=1001)],
            [(7, f"{NAME}: timestamp: expected 1000, found 1001; value: expected 5, found 6")],
        ),
        (
            [ENTRY],
            [replace(ENTRY, timestamp=1001, hash=102)],
            [(7, f"{NAME}: timestamp: expected 1000, found 1001")],
        ),
        (
            [ENTRY],
            [replace(ENTRY, is_null=True, value="null", value_hash=0, hash=103)],
            [(7, f"{NAME}: null: expected 5, found null")],
        ),
        ([ENTRY], [replace(ENTRY, is_null=True, hash=103)], [(7, f"{NAME}: null: expected 5, found 5")]),
        (
            [ENTRY],
            [replace(ENTRY, key_group=8, hash=104)],
            [(8, f"{NAME}: in a wrong key group: it belongs to 7")],
        ),
        (
            [ENTRY],
            [ENTRY, replace(ENTRY, key_group=8, hash=104)],
            [(8, f"{NAME}: doubled, the second time in a wrong key group")],
        ),
        ([replace(ENTRY, why=EXPIRED)], [ENTRY], [(7, f"{NAME}: expired, and kept")]),
        ([replace(ENTRY, why="superseded")], [ENTRY], [(7, f"{NAME}: there, but should not be: superseded")]),
        ([replace(ENTRY, why=EXPIRED)], [OTHER], [(7, f"{NAME}: not in the source")]),
        ([replace(ENTRY, why=EXPIRED)], [], []),
        (
            [ENTRY],
            [replace(OTHER, key_group=9)],
            [
                (9, f"{NAME}: not in the source"),
                (7, f"{NAME}: missing (alive, of 1000), with the value 5"),
            ],
        ),
    ],
)
def test_each_entry_is_told_for_what_it_is(
    source: list[ProbedEntry], staged: list[ProbedEntry], texts: list[tuple[int, str]]
) -> None:
    assert compare(source, staged) == texts


def test_ten_are_enough() -> None:
    many = [replace(ENTRY, pair=pair // 2, hash=pair) for pair in range(22)]
    assert len(compare(many, [])) == 10
    assert len(compare(many[:9], [])) == 9
    assert len(compare([ENTRY], [replace(OTHER, hash=number) for number in range(12)])) == 10


def entries_of(key: bytes, user_key: bytes, value: bytes, null: int, stamp: int | None) -> Entries:
    """One entry in the middle of others' bytes."""
    data = np.frombuffer(b"xyz" + key + user_key + value + b"zyx", np.uint8).copy()
    ends = np.cumsum([3, len(key), len(user_key), len(value)])
    start, key_end, user_end, value_end = (ends[at : at + 1] for at in range(4))
    one, none = np.ones(1, np.int64), np.empty(0, np.int64)
    stamps = none if stamp is None else one * stamp
    return Entries(
        data, data, one * 5, start, key_end, one * 0, key_end, user_end, one.astype(np.uint64),
        np.array([77], np.uint64), np.array([null], np.uint8),
        np.frombuffer(encode(Scalar.LONG, 3), np.uint8).copy(), stamps, user_end, value_end,
    )  # fmt: skip


def state_of(
    kind: StateKind,
    namespace: FlinkType = Scalar.VOID_NAMESPACE,
    user_key: FlinkType | None = None,
    *,
    ttl: bool = False,
) -> KeyedState:
    value = None if kind is StateKind.TIMERS else Scalar.LONG
    return KeyedState("state", kind, Scalar.STRING, namespace, user_key, value, ttl, False)


A, B, NAMESPACE = encode(Scalar.STRING, "a"), encode(Scalar.STRING, "b"), b"\0"
FIVE = encode(Scalar.LONG, 5)
MAP = state_of(StateKind.MAP, user_key=Scalar.STRING)


@pytest.mark.parametrize(
    ("parts", "state", "is_new", "name", "value", "is_null"),
    [
        ((A + NAMESPACE, B, FIVE, 0, None), MAP, True, 'key "a", user key "b"', "5", False),
        ((A + NAMESPACE, B, b"", 1, None), MAP, True, 'key "a", user key "b"', "null", True),
        # A null of a time to live has bytes, those that all nulls of the state have.
        ((A + NAMESPACE, B, FIVE, 2, 12), MAP, True, 'key "a", user key "b"', "3", False),
        ((A + NAMESPACE + B, b"", b"\0" + FIVE, 0, None), MAP, False, 'key "a", user key "b"', "5", False),
        ((A + NAMESPACE + B, b"", b"\1\0", 0, None), MAP, False, 'key "a", user key "b"', "null", False),
        ((A + NAMESPACE, b"", FIVE, 0, None), state_of(StateKind.VALUE), False, 'key "a"', "5", False),
        ((A + FIVE, b"", FIVE, 0, None), state_of(StateKind.VALUE, Scalar.LONG), False,
         'key "a", namespace 5', "5", False),
        ((A + b"\2" + B + b"\2", b"q", FIVE, 0, None), state_of(StateKind.VALUE, Scalar.STRING), False,
         f'key "a", 0x02{B.hex()}0271', "5", False),
        ((b"\x80" + bytes(6) + b"\x09" + A + NAMESPACE, b"", b"", 0, None), state_of(StateKind.TIMERS), False,
         'timer of 9, key "a"', "0x", False),
        ((A + NAMESPACE, b"", FIVE, 0, None), state_of(StateKind.LIST), False, 'key "a"', f"0x{FIVE.hex()}", False),
        ((A + NAMESPACE, b"", b"\1\2", 0, None), state_of(StateKind.VALUE), False, 'key "a"', "0x0102", False),
        ((A, b"q", FIVE, 0, None), None, False, f"key 0x{A.hex()}", f"0x{FIVE.hex()}", False),
        # What does not end is shown as bytes.
        ((b"\x09a", b"b", FIVE, 0, None), MAP, True, "key 0x096162", "5", False),
    ],
)  # fmt: skip
def test_an_entry_in_words(
    parts: tuple[bytes, bytes, bytes, int, int | None],
    state: KeyedState | None,
    is_new: bool,
    name: str,
    value: str,
    is_null: bool,
) -> None:
    made = describe(entries_of(*parts), 0, 99, state, is_new, "why")
    assert (made.name, made.value, made.is_null) == (name, value, is_null)
    assert (made.key_group, made.timestamp, made.pair, made.hash, made.why) == (5, parts[4], 77, 99, "why")


def test_values_are_told_apart_by_all_their_bytes() -> None:
    text, hashes, texts = replace(state_of(StateKind.VALUE), value=Scalar.STRING), set(), []
    for length in (198, 199, 200, 65_533, 65_534):
        parts = A + NAMESPACE, b"", encode(Scalar.STRING, "v" * length), 0, None
        made = describe(entries_of(*parts), 0, 99, text, False, None)
        hashes.add(made.value_hash)
        texts.append(made.value)
    assert len(hashes) == 5
    cut = '"' + "v" * 199 + "..."
    assert texts == ['"' + "v" * 198 + '"', cut, cut, cut, "65537 bytes"]
    for first in (b"\1", b"\2"):
        made = describe(entries_of(A + NAMESPACE, b"", first + FIVE[1:], 0, None), 0, 99, MAP, True, None)
        hashes.add(made.value_hash)
    assert len(hashes) == 7
    nulls = {describe(entries_of(A + NAMESPACE, B, v, 2, 1), 0, 99, MAP, True, None).value_hash for v in (b"", b"x")}
    assert len(nulls) == 1
