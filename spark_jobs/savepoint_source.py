"""Spark's data source `flink_savepoint`: reads a keyed state of a savepoint as a table, or lists a savepoint's states.

    spark.read.format("flink_savepoint").option("path", …).option("operator", …).option("state", …).load()

Options: `path`; `operator` by id, uid or unique name; `state`; `raw` (bytes instead of decoded columns); `targetBytes`
and `minPartitions`, by which key groups are combined to partitions; `filesFrom`, for a checkpoint that was moved, as
`OLD=NEW` (several with commas between them). Without `state`, the source lists the states of one
operator or of all. Filters on the key group limit what is read, if the setting
`spark.sql.python.filterPushdown.enabled` is true. If it isn't, Spark refuses the source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from flinkstate.basics.did_you_mean import there_are
from flinkstate.errors import UsageError
from flinkstate.files.storage import Location
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.chunks import TARGET_BYTES, Chunk, plan_chunks
from flinkstate.metadata.moved_files import ADDRESS, root_of
from flinkstate.reading import batches, state_list
from flinkstate.reading.reader import Savepoint

FORMAT = "flink_savepoint"
OPTIONS = ("path", "operator", "state", "raw", "targetBytes", "minPartitions", "filesFrom")


def register(spark: SparkSession) -> None:
    """Makes the data source known to the session."""
    spark.dataSource.register(FlinkSavepointSource)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The values of the options."""

    path: str
    operator: str | None
    state: str | None
    raw: bool
    target_bytes: int
    least_partitions: int
    files_from: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadRequest:
        """The request in these options; refuses unknown or contradictory ones."""
        known = {name.lower(): name for name in OPTIONS}
        given = {}
        for name, value in options.items():
            if name.lower() not in known:
                raise UsageError(f"{FORMAT} has no option {name!r}. {there_are(name, OPTIONS)}")
            given[known[name.lower()]] = value
        if not given.get("path"):
            raise UsageError(f"{FORMAT} needs the option path: the savepoint's folder")
        if given.get("state") and not given.get("operator"):
            raise UsageError(
                f"{FORMAT} needs the option operator (id, uid or unique name) for state {given['state']!r}"
            )
        return cls(
            given["path"],
            given.get("operator"),
            given.get("state"),
            _boolean("raw", given.get("raw", "false")),
            _positive("targetBytes", given.get("targetBytes", str(TARGET_BYTES))),
            _positive("minPartitions", given.get("minPartitions", str(os.cpu_count() or 1))),
            _roots("filesFrom", given.get("filesFrom", "")),
        )

    def open(self) -> Savepoint:
        """The savepoint that is to be read."""
        return Savepoint.open(self.path, files_from=self.files_from)


def _boolean(option: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise UsageError(f"option {option}: expected true or false, found {value!r}")
    return value.lower() == "true"


def _roots(option: str, value: str) -> dict[str, str]:
    # A comma that is part of a path has no address behind it.
    pairs = re.split(f",(?={ADDRESS.pattern})", value) if value else []
    return dict(root_of(pair, option) for pair in pairs)


def _positive(option: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise UsageError(f"option {option}: expected a number of at least 1, found {value!r}")
    return int(value)


@dataclass(frozen=True, slots=True)
class Table:
    """A state in its savepoint: the facts that a task needs.

    It doesn't contain the operator itself, which may be large because of inlined state.
    """

    folder: Location
    operator_id: str
    state: KeyedState
    raw: bool


class FlinkSavepointSource(DataSource):
    """Finds the state once, while Spark analyses the query, and sends what it found to the tasks."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @cached_property
    def _request(self) -> ReadRequest:
        return ReadRequest.of(self.options)

    @cached_property
    def _table(self) -> Table | None:
        request = self._request
        if request.operator is None or request.state is None:
            return None
        savepoint = request.open()
        operator = savepoint.operator(request.operator)
        return Table(savepoint.folder, operator.hex_id, savepoint.state(operator, request.state), request.raw)

    def schema(self) -> StructType:
        table = self._table
        columns = state_list.SCHEMA if table is None else batches.schema(table.state, raw=table.raw)
        return from_arrow_schema(columns, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        table = self._table
        return StateListReader(self._request) if table is None else StateReader(table, self._request)


class StateListReader(DataSourceReader):
    """Reads the list of states."""

    def __init__(self, request: ReadRequest) -> None:
        self._request = request

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield state_list.list_states(self._request.open(), self._request.operator)


@dataclass(frozen=True)
class ChunkPartition(InputPartition):
    """A partition: one chunk of the state."""

    chunk: Chunk


class StateReader(DataSourceReader):
    """Reads the entries of a state, one chunk for each partition."""

    def __init__(self, table: Table, request: ReadRequest) -> None:
        self._table, self._request = table, request
        self._wanted: list[Callable[[int], bool]] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for filter_ in filters:
            wanted = _on_key_group(filter_)
            if wanted is None:
                yield filter_
            else:
                self._wanted.append(wanted)

    def partitions(self) -> list[InputPartition]:
        savepoint = self._request.open()
        operator = savepoint.operator(self._table.operator_id)
        chunks = plan_chunks(
            operator,
            savepoint.placed(operator),
            [group for group in range(operator.max_parallelism) if all(wanted(group) for wanted in self._wanted)],
            target_bytes=self._request.target_bytes,
            at_least=self._request.least_partitions,
        )
        return [ChunkPartition(chunk) for chunk in chunks]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Without any partition, Spark calls this once with None.
        if isinstance(partition, ChunkPartition):
            table = self._table
            yield from batches.read_chunk(table.folder, partition.chunk, table.state, raw=table.raw)


def _on_key_group(filter_: Filter) -> Callable[[int], bool] | None:
    """The condition on a key group that the filter states; None if the filter is about anything else."""
    if isinstance(filter_, Not):
        child = _on_key_group(filter_.child)
        return None if child is None else lambda key_group: not child(key_group)
    if getattr(filter_, "attribute", None) != (batches.KEY_GROUP,):
        return None
    given = getattr(filter_, "value", ())
    if given is None or (isinstance(filter_, In) and None in given):
        # Neither a comparison with NULL nor its negation is true, which Python's would be.
        return None
    match filter_:
        case IsNotNull():
            return lambda _: True
        case In(_, values):
            return lambda key_group: key_group in values
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return lambda key_group: key_group == value
        case LessThan(_, value):
            return lambda key_group: key_group < value
        case LessThanOrEqual(_, value):
            return lambda key_group: key_group <= value
        case GreaterThan(_, value):
            return lambda key_group: key_group > value
        case GreaterThanOrEqual(_, value):
            return lambda key_group: key_group >= value
    return None
