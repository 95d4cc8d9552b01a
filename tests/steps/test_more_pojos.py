"""A run on maps by Kryo whose objects become POJOs with fields that Flink leaves to Kryo, or to its collections."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import PojoType
from tests.kryo.examples import VERSIONS, compiled
from tests.kryo.kept import FOLDER
from tests.kryo.test_more_pojos import examples, known
from tests.rocksdb.goldens import contents
from tests.steps.test_kept_values import KEYS, wanted, write
from tests.steps.test_native_source import run

JAR = FOLDER / "more-pojo-classes.jar"


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("name", ["lists that share", "maps", "sets", "mixed that share", "nested", "dates"])
@pytest.mark.parametrize("version", VERSIONS)
def test_objects_become_what_flink_writes(version: str, name: str, tmp_path: Path) -> None:
    one, _ = examples(version)[name]
    type_ = known(one, version)
    assert isinstance(type_.value, PojoType)
    write(tmp_path / "source", one, version=4 if version < "2" else 5)
    told = wanted(classes=[str(JAR)], as_type=f"Map<String, Pojo<{type_.value.class_name}>>")
    report, _ = run(tmp_path / "source", tmp_path / "run", **told)
    assert {check.outcome.value for check in report.checks} == {"passed"}, report.checks
    found = contents(Savepoint.open(str(tmp_path / "run" / "target")))
    values = Counter(value for state, _, value in found.elements() if state == "entries")
    made = compiled(one.kryo, type_, [one.written])
    spans = zip(made.entries.key_ends, made.entries.ends, strict=True)
    assert values == Counter([made.data[start:end].tobytes() for start, end in spans] * KEYS)
