"""What real Flink does with null values in rows: the table of `null_values.py`, and types that can write null."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import MapType
from stateferry.changes.rules import NullsNeedAWordError, null_under_ttl
from stateferry.runs.guards.null_values import OF_ONE_VALUE
from tests.flink.harness import FlinkError, FlinkHarness, Made
from tests.flink.jars import VERSIONS
from tests.flink.jobs import Job, Operator, State
from tests.flink.judge import Make, check_restored
from tests.flink.scenarios import ARRAYS, AVRO, BACKENDS, COMPOSITES, SCALA, SCALARS, SINCE_FLINK_2
from tests.flink.test_pipeline import expected
from tests.support.legacy_states import LEGACY, NEW
from tests.support.verified_runs import verified

pytestmark = [pytest.mark.flink, pytest.mark.timeout(900)]

Flink = Callable[[str], FlinkHarness]
FORMATS = ("CHECKPOINT", "NATIVE", "CANONICAL")
# A type whose rows can't be made: its serializer isn't Flink's own.
_REFUSED = ("Try<Long>",)
_TYPES = (*SCALARS, *ARRAYS, *COMPOSITES)
TYPES = [
    *(("1.20.0", type_) for type_ in (*_TYPES, *SCALA) if type_ not in _REFUSED),
    *(("2.3.0", type_) for type_ in (*_TYPES, *SINCE_FLINK_2, *AVRO)),
]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))


def job(type_: str, backend: str, *, of: str = NEW) -> Job:
    state = State(of, f"Map{{4-6}}<Long,{type_}?>", kind="MAP" if of == NEW else "VALUE")
    return Job((Operator("main", key="Long", keys=6, states=(state,)),), parallelism=1, backend=backend)


def failure(call: Callable[..., object], *arguments: object, **options: object) -> str | None:
    """The method in which Flink fails; None if it doesn't."""
    try:
        call(*arguments, **options)
    except FlinkError as error:
        places = ("RocksDBMapState.put", "HeapKeyValueStateIterator")
        return next((place for place in places if place in str(error)), str(error))
    return None


def foreseen(version: str, backend: str, format_: str, *, puts: bool) -> str | None:
    """Where Flink fails with a null that its serializer can't write; `puts` says that the job puts it itself."""
    if backend == "hashmap" and format_ == "CANONICAL":
        return "HeapKeyValueStateIterator"
    return "RocksDBMapState.put" if puts and (version, backend) == ("1.20.0", "rocksdb") else None


def nulls(made: Made) -> int:
    return sum(line["value"] is None for line in expected(made.lines))


@pytest.mark.matrix
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("type_", ["Long", "Tuple2<String?,Long>", "String", "Person"])
def test_what_a_job_can_do_with_nulls_that_a_run_has_left(
    type_: str, backend: str, version: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    check_type(version, backend, type_, made, flink, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("version", "type_"), TYPES)
def test_it_is_the_same_for_every_type(
    version: str, type_: str, backend: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    check_type(version, backend, type_, made, flink, tmp_path)


def check_type(version: str, backend: str, type_: str, made: Make, flink: Flink, tmp_path: Path) -> None:
    source = made(version, job(type_, "rocksdb", of=LEGACY))
    assert nulls(source) > 0
    can = is_never_asked_about(source)
    new = tmp_path / "new"
    if not can:
        with pytest.raises(NullsNeedAWordError):
            verified(source.path, new, flag=None)
    verified(source.path, new, flag=None, nulls="stop" if can else "keep")
    check_restored(flink(version), new, job(type_, backend), Made(new, expected(source.lines)), moved=False)
    for format_ in FORMATS:
        wanted = None if can else foreseen(version, backend, format_, puts=False)
        assert failure(flink(version).carry, new, job(type_, backend), format_=format_) == wanted
        wanted = None if can else foreseen(version, backend, format_, puts=True)
        target = tmp_path / format_
        assert failure(flink(version).make, job(type_, backend), target, format_=format_) == wanted


def is_never_asked_about(made: Made) -> bool:
    """Whether we say that a job can do everything with null values of the map, without time to live."""
    opened = Savepoint.open(str(made.path))
    (state,) = opened.keyed_states(opened.operator("main"))
    assert isinstance(state.value, MapType)
    return null_under_ttl(state.value.value) is not None or state.value.value in OF_ONE_VALUE


@pytest.mark.parametrize("version", VERSIONS)
def test_a_native_result_is_for_rocksdb_alone_and_asks_only_where_that_fails(
    version: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    source, new = made(version, job("Long", "rocksdb", of=LEGACY)), tmp_path / "new"
    if version == "1.20.0":
        with pytest.raises(NullsNeedAWordError, match="a job on RocksDB can't put null itself"):
            verified(source.path, new, flag=None, output_format="native")
    nulls = "keep" if version == "1.20.0" else "stop"
    verified(source.path, new, flag=None, output_format="native", nulls=nulls)
    check_restored(flink(version), new, job("Long", "rocksdb"), Made(new, expected(source.lines)), moved=False)
    for format_ in FORMATS:
        assert failure(flink(version).carry, new, job("Long", "rocksdb"), format_=format_) is None


@pytest.mark.parametrize(("version", "backend"), [("1.20.0", "rocksdb"), ("2.3.0", "hashmap")])
def test_without_the_nulls_the_job_can_do_all(
    version: str, backend: str, made: Make, flink: Flink, tmp_path: Path
) -> None:
    source, new = made(version, job("Long", "rocksdb", of=LEGACY)), tmp_path / "new"
    verified(source.path, new, flag=None, nulls="drop")
    left = [line for line in expected(source.lines) if line["value"] is not None]
    check_restored(flink(version), new, job("Long", backend), Made(new, left), moved=False)
    for format_ in FORMATS:
        assert failure(flink(version).carry, new, job("Long", backend), format_=format_) is None
