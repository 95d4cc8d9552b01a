"""Flink's own Kryo of both versions: it writes what the golden files say, and reads what we read as the same."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from flinkstate.kryo import to_flink_maps
from flinkstate.serializers.types import MapType
from flinkstate.values.codecs import decode_whole
from flinkstate.values.value_json import value_json
from tests.flink import kryo
from tests.kryo.damage import damaged_examples
from tests.kryo.examples import VERSIONS, Example, by_compiled_code, compiled, with_type

pytestmark = pytest.mark.flink


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_flink_writes_what_the_golden_file_says(version: str) -> None:
    written = kryo.examples(version).splitlines()
    golden = gzip.decompress(kryo.golden(version).read_bytes()).decode("ascii").splitlines()
    # Each JVM has an order of its own for the entries of `Map.copyOf`.
    differing = [one for one, other in zip(written, golden, strict=True) if one != other]
    assert [one for one in differing if "copyOf of" not in one] == []
    assert [json.loads(line)["name"] for line in written] == [json.loads(line)["name"] for line in golden]


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("version", VERSIONS)
def test_flink_reads_damaged_values_as_we_do(version: str) -> None:
    assert_flink_agrees(version, count=1500, seed=3)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", VERSIONS)
def test_flink_reads_many_damaged_values_as_we_do(version: str) -> None:
    assert_flink_agrees(version, count=20_000, seed=4)


def assert_flink_agrees(version: str, count: int, seed: int) -> None:
    """Asks Flink about each damaged value that we read, and about whole ones."""
    wrote = to_flink_maps.KRYO_2 if version == "1.20.0" else to_flink_maps.KRYO_5
    asked: list[tuple[Example, bytes]] = []
    for one in (*with_type(version), *damaged_examples(count, seed)):
        assert one.map is not None
        made = by_compiled_code(one.kryo, one.map, one.written)
        # Snapshots name classes that the other version doesn't have.
        if one.version == version and isinstance(made, bytes):
            (kind,) = compiled(one.kryo, one.map, [one.written]).kinds.tolist()
            if kind & wrote:
                asked.append((one, made))
    answers = kryo.judged(version, [(one.snapshot, one.flink_snapshot, one.written) for one, _ in asked])
    assert len(answers) == len(asked)
    for (one, made), answer in zip(asked, answers, strict=True):
        assert one.map is not None
        if answer.startswith("refused") and any(name in named(one) for name in NOT_BY_FLINK):
            continue
        # The array of an `Arrays.asList` may be of any class of the job; its elements have their own.
        if "Unable to find class" in answer and "Arrays.asList" in one.name:
            continue
        assert not answer.startswith("refused"), (str(one), one.written.hex(), answer)
        read = b"\0\0\0\0" if answer == "null" else bytes.fromhex(answer)
        assert unordered(one.map, made) == unordered(one.map, read), (str(one), one.written.hex())


# Flink can write maps and lists of these classes, but not read them again. We can.
NOT_BY_FLINK = (
    *(b"Unmodifiable", b"Synchronized", b"Checked", b"CopiesLis", b"ImmutableCollection", b"SubLis", b"SubMa"),
    b"EnumMa",
)


def named(one: Example) -> bytes:
    """Where the names of classes are."""
    return one.kryo.class_name.encode() + one.written


def unordered(map_: MapType, written: bytes) -> Any:
    """The map without the order of its entries; of equal keys the last one counts, as in Java."""
    return sorted_maps(json.loads(value_json(map_, decode_whole(map_, written)), object_pairs_hook=_pairs))


def _pairs(pairs: list[tuple[str, Any]]) -> list[list[Any]]:
    return [list(pair) for pair in pairs]


def sorted_maps(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    parts = [sorted_maps(part) for part in value]
    if all(isinstance(part, list) and len(part) == 2 for part in parts):
        return sorted({json.dumps(key): part for key, part in parts}.items())
    return parts
