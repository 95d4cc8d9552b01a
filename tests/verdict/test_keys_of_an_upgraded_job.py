"""Keys by Kryo 2 in a state of Flink 2 are found, whatever stands behind them: a job of Flink 2 doesn't find these."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from flinkstate.basics.array_types import Bytes, Positions
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.serializers.built_snapshots import kryo_snapshot
from flinkstate.serializers.types import FlinkType, KryoType, OpaqueType, Scalar, TupleType
from stateferry.verdict.journey import Journey, Part, Place
from stateferry.verdict.judge import _with_common_keys
from stateferry.verdict.key_parts import KeyParts
from stateferry.verdict.kryo_values import finding_of
from stateferry.verdict.outcomes import Outcome
from stateferry.verdict.sample import Finder
from stateferry.verdict.sampled_serializer import Sampled
from stateferry.verdict.versions import Line

_UUID, _OBJECT = (kryo_snapshot(name).type for name in ("java.util.UUID", "java.lang.Object"))
assert isinstance(_UUID, KryoType)
assert isinstance(_OBJECT, KryoType)
UUID, OBJECT = _UUID, _OBJECT
PAIR = TupleType((UUID, Scalar.LONG), "org.apache.flink.api.java.tuple.Tuple2")
VOID = Scalar.VOID_NAMESPACE
STAYS = Journey(Line.TWO, Line.TWO)
_ROOM = 64


def _number_by_2(number: int) -> bytes:
    left, out = (number << 1 ^ number >> 63) & (1 << 64) - 1, b""
    while left > 0x7F and len(out) < 8:
        left, out = left >> 7, out + bytes([left & 0x7F | 0x80])
    return out + bytes([left])


def uuid_by(kryo: int, numbers: random.Random) -> bytes:
    if kryo == 5:
        return b"\x54\x01" + numbers.randbytes(16)
    return b"\x54\x01" + b"".join(_number_by_2(numbers.getrandbits(64) - (1 << 63)) for _ in range(2))


def _state(key: FlinkType, namespace: FlinkType = VOID, user_key: FlinkType | None = None) -> KeyedState:
    kind = StateKind.VALUE if user_key is None else StateKind.MAP
    return KeyedState("s", kind, key, namespace, user_key, Scalar.LONG, ttl=False, asynchronous=False)


def _parts(state: KeyedState, keys: list[bytes]) -> tuple[KeyParts, Bytes, Positions, Positions]:
    ends = np.cumsum([len(key) for key in keys])
    data, starts = np.frombuffer(b"".join(keys) + bytes(_ROOM), np.uint8).copy(), np.append(0, ends[:-1])
    return KeyParts(state, data, starts, ends), data, starts, ends


@pytest.mark.parametrize(
    ("namespace", "user_key", "behind"),
    [
        (VOID, None, b"\0"),
        (VOID, Scalar.STRING, b"\0\x04abc"),
        (VOID, UUID, b"\0" + uuid_by(2, random.Random(1))),
        (VOID, OpaqueType("com.acme.Own", "a serializer of the job's own"), b"\0\x01"),
        (Scalar.TIME_WINDOW, None, bytes(16)),
    ],
)
@pytest.mark.parametrize("key", [UUID, PAIR])
def test_keys_by_kryo_2_are_counted(
    key: FlinkType, namespace: FlinkType, user_key: FlinkType | None, behind: bytes
) -> None:
    numbers = random.Random(5)
    inner = numbers.randbytes(8) if key is PAIR else b""
    for of_2, of_5 in ((200, 0), (1, 199), (0, 200)):
        keys = [uuid_by(2, numbers) + inner + behind for _ in range(of_2)]
        keys += [uuid_by(5, numbers) + inner + behind for _ in range(of_5)]
        state = _state(key, namespace, user_key)
        parts, data, starts, ends = _parts(state, keys)
        finder = Finder(key, True, 10_000, True)
        stops = finder.add(data, starts, ends, parts.may_end)
        assert (stops == ends - len(behind)).all()
        found = finder.results(True)
        finding = finding_of(Part(Place.KEY, key), STAYS, found)
        assert finding is not None
        assert finding.outcome is (Outcome.WRONG if of_2 else Outcome.RESTORES)
        assert found[0][1].found.kryo == {kryo: count for kryo, count in (("2", of_2), ("5", of_5)) if count}


def test_user_keys_stand_behind_keys_of_either_kryo() -> None:
    numbers = random.Random(6)
    keys = [uuid_by(kryo, numbers) + b"\0" for kryo in (2, 5) * 50]
    user_keys = [uuid_by(kryo, numbers) for kryo in (2, 5) * 50]
    state = _state(UUID, user_key=UUID)
    parts, _, starts, _ = _parts(state, [key + user_key for key, user_key in zip(keys, user_keys, strict=True)])
    for five in (False, True):
        assert (parts.user_keys(five) - starts).tolist() == [len(key) for key in keys]


def test_lengths_stand_behind_keys_and_namespaces_that_both_vary() -> None:
    numbers = random.Random(7)
    long_text = b"\x81\x02" + b"n" * 256
    for namespace, length in ((b"\x04abc", b"\x04"), (long_text, b"\x02\x01")):
        keys = [uuid_by(kryo, numbers) for kryo in (2, 5) * 50]
        heads = [key + bytes([len(key)]) + namespace + length for key in keys]
        state = _state(UUID, Scalar.STRING, Scalar.STRING)
        parts, data, starts, ends = _parts(state, [head + b"\x03de" for head in heads])
        assert (parts.user_keys(True) - starts).tolist() == [len(head) for head in heads]
        finder = Finder(UUID, True, 10_000, True)
        assert (finder.add(data, starts, ends, parts.may_end) - starts).tolist() == [len(key) for key in keys]


def test_where_lengths_are_not_known_no_user_key_is_found() -> None:
    state = replace(_state(OBJECT, OpaqueType("com.acme.Own", "a serializer of the job's own")), user_key=UUID)
    parts, _, starts, _ = _parts(state, [b"\x00\x00"])
    assert parts.user_keys(True).tolist() == [-1]
    assert parts.may_end(starts + 1).all()


def test_keys_that_cannot_be_read_stay_so_beside_others() -> None:
    states = tuple(replace(_state(UUID), name=name) for name in ("large", "small", "empty"))
    unread = Sampled(FoundClasses(), whole=False, why_not="a class")
    read = Sampled(FoundClasses(maps=3), whole=True)
    nothing = Sampled(FoundClasses(), whole=True)
    found = {
        (state.name, Place.KEY): ((UUID, one),) for state, one in zip(states, (unread, read, nothing), strict=True)
    }
    common = _with_common_keys(states, found)
    assert common["large", Place.KEY] == ((UUID, unread),)
    assert common["small", Place.KEY] == ((UUID, read),)
    assert common["empty", Place.KEY] == ((UUID, replace(read, whole=False)),)
