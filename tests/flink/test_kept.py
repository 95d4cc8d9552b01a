"""Flink's own Kryo reads the values that were made whole as the objects that were in the old maps."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter

import pytest

from flinkstate.kryo import to_flink_maps
from flinkstate.serializers.built_snapshots import snapshot_of
from tests.flink import kryo
from tests.kryo import test_collections_of_flink_2
from tests.kryo.examples import by_compiled_code, compiled
from tests.kryo.kept import VERSIONS, kept
from tests.kryo.test_kept import damaged
from tests.kryo.test_to_other_kryo import WERE_ONE

pytestmark = pytest.mark.flink
# With a LinkedHashSet or a LinkedList, of which Flink 2 makes a HashSet or an ArrayList; and each JVM has an order of
# its own for the constants of an enum in a HashSet.
_MADE_ANEW = ("lists", "lists that share", "sets", "mixed", "mixed that share", "registered HashSet")


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_flink_writes_what_the_golden_file_says(version: str) -> None:
    golden = gzip.decompress(kryo.golden_kept(version).read_bytes()).decode("ascii").splitlines()
    written = kryo.kept_examples(version).splitlines()
    # Each JVM has an order of its own for the elements of `Set.copyOf` and `Map.of`.
    differing = [one for one, other in zip(written, golden, strict=True) if one != other]
    assert [one for one in differing if "copyOf" not in one and "Map.of" not in one] == []
    assert [json.loads(line)["name"] for line in written] == [json.loads(line)["name"] for line in golden]


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_flink_writes_the_same_fields(version: str) -> None:
    for of_golden, examples in (
        (kryo.golden_fields, kryo.field_examples),
        (kryo.golden_more_pojos, kryo.more_pojo_examples),
    ):
        golden = gzip.decompress(of_golden(version).read_bytes()).decode("ascii").splitlines()
        written = examples(version).splitlines()
        differing = [json.loads(one)["name"] for one, other in zip(written, golden, strict=True) if one != other]
        # Each JVM has an order of its own for the constants of an enum in a HashMap.
        assert [name for name in differing if not name.startswith("concrete")] == []


@pytest.mark.matrix(most=1)
@pytest.mark.parametrize("version", VERSIONS)
def test_flink_reads_the_same(version: str) -> None:
    assert_flink_agrees(version, count=1000, seed=5)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", VERSIONS)
def test_flink_reads_the_same_of_many(version: str) -> None:
    assert_flink_agrees(version, count=20_000, seed=6)


def test_kryo_2_reads_what_was_written_of_collections_of_flink_2() -> None:
    """The MapSerializer of Flink 2.3 wrote the maps; Flink 1.20 has written the same by both of its serializers."""
    asked = [(one, made) for one, made in test_collections_of_flink_2.written() if one.name not in WERE_ONE]
    questions = [(snapshot_of(one.kryo_2).raw.hex(), made, one.snapshot.hex(), one.by_flink_1) for one, made in asked]
    answers = kryo.kept_judged("1.20.0", questions)
    differing = [one.name for (one, _), answer in zip(asked, answers, strict=True) if answer != "equal"]
    # Of this one Flink 1.20 doesn't read what it has written itself: a box behind another one in a field.
    differing.remove("type arguments: one box in two objects")
    assert [name for name in differing if name not in _MADE_ANEW] == []
    assert len(answers) > 700


def assert_flink_agrees(version: str, count: int, seed: int) -> None:
    """Asks Flink about all whole maps that are read, and about damaged ones."""
    wrote = to_flink_maps.KRYO_2 if version == "1.20.0" else to_flink_maps.KRYO_5
    chosen = random.Random(seed)
    # Kryo 5 reads a second reference to a `List.of` or `Set.of` as another class.
    some = [one for one in kept(version).values() if len(one.written) < 4000 and one.flink == one.again]
    asked = [(one, one.written) for one in some]
    asked += [(one, damaged(chosen, one.written)) for one in chosen.choices(some, k=count)]
    questions, whole = [], []
    for one, written in asked:
        made = by_compiled_code(one.kryo, one.map, written)
        if isinstance(made, bytes) and compiled(one.kryo, one.map, [written]).kinds[0] & wrote:
            questions.append((one.snapshot, written, one.flink_snapshot, made))
            whole.append((one, written))
    answers = kryo.kept_judged(version, questions)
    assert len(answers) == len(questions)
    for (one, written), answer in zip(whole, answers, strict=True):
        # What Flink itself can't read, such as a number that no constant of an enum has, stays as it is.
        refused = answer.startswith("refused") and written != one.written
        assert answer == "equal" or refused, (one.name, written.hex(), answer)
    assert Counter(answers)["equal"] > len(some) / 2
