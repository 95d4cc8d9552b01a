"""The public API: what `import flinkstate` offers. `docs/library.md` shows it, and says what of it is stable."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import index
from typing import SupportsIndex, TypeAlias

import pyarrow as pa

from flinkstate.basics.did_you_mean import there_are
from flinkstate.errors import UsageError
from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.batches import ROWS_PER_BATCH, read_batches, schema
from flinkstate.reading.entries import Entry, read_entries
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType, type_name
from flinkstate.writing.copy_savepoint import copy_with
from flinkstate.writing.new_entries import Given, NewRows, new_rows
from flinkstate.writing.new_savepoint import NewState, write_new

# A path or URI.
Place: TypeAlias = str | os.PathLike[str]


def open(path: Place, *, files_from: Mapping[str, str] | None = None) -> OpenSavepoint:
    """Opens a savepoint or checkpoint: the folder with its `_metadata`, as a path or URI.

    `files_from` has, for a checkpoint that was moved, the new beginnings of its files' addresses by the old ones.

    >>> savepoint = flinkstate.open("demo")
    >>> [operator.name for operator in savepoint.operators]
    ['main']
    """
    return OpenSavepoint(Savepoint.open(os.fspath(path), files_from=files_from))


def write(
    target: Place,
    uid: str,
    key: FlinkType,
    states: Sequence[NewState],
    *,
    parallelism: int = 1,
    max_parallelism: int = 128,
) -> None:
    """Writes a savepoint of one operator from entries alone, for Flink 1.20 and newer.

    `key` is the type of its keys. A job restores the states if it declares them with the same names, kinds and types.

    >>> counts = NewState("count", "VALUE", Scalar.LONG, entries=[{"key": "anna", "value": 3}])
    >>> flinkstate.write("fresh", "counter", Scalar.STRING, [counts])
    >>> [entry.value for entry in flinkstate.open("fresh").operator("counter").state("count").entries()]
    [3]
    """
    write_new(os.fspath(target), uid, key, states, parallelism, max_parallelism)


@dataclass(frozen=True, slots=True, repr=False)
class OpenSavepoint:
    """A savepoint that is open for reading. Nothing of it stays open between two calls."""

    _opened: Savepoint

    def __repr__(self) -> str:
        return f"<savepoint {self.path}>"

    @property
    def path(self) -> str:
        """Its folder."""
        return self._opened.folder.shown

    @property
    def format(self) -> str:
        """How its keyed state is stored: "canonical", or "native" (RocksDB's own files)."""
        return self._opened.format

    @property
    def checkpoint_id(self) -> int:
        """The number that Flink gave it in its job."""
        return self._opened.metadata.checkpoint_id

    @property
    def operators(self) -> tuple[OpenOperator, ...]:
        """Its operators, those without keyed state too."""
        return tuple(OpenOperator(self._opened, operator) for operator in self._opened.metadata.operators)

    def operator(self, name: str) -> OpenOperator:
        """Returns the operator with this uid, name or id. If there is none, the error says which one was meant."""
        return OpenOperator(self._opened, self._opened.operator(name))

    def copy(
        self, target: Place, replacing: Mapping[tuple[str, str], Given] | None = None, *, raw: bool = False
    ) -> None:
        """Writes the savepoint into a new folder, with the entries of some states replaced; the rest is carried over.

        `replacing` has the new entries by operator (uid, name or id) and state. They are `Entry` objects, mappings
        with the same fields, or a table, batch or reader of Arrow; with `raw`, those of a table that was read with
        `raw`. They are held in memory. The copy is in the source's format and layout; as any savepoint, it is complete
        when its `_metadata` is there.

        >>> totals = flinkstate.open("demo").operator("main").state("newMainState")
        >>> kept = [entry for entry in totals.entries() if entry.value >= 500_000]
        >>> flinkstate.open("demo").copy("pruned", {("main", "newMainState"): kept})
        >>> pruned = flinkstate.open("pruned").operator("main").state("newMainState")
        >>> sorted(entry.value for entry in pruned.entries()) == sorted(entry.value for entry in kept)
        True
        """
        new: dict[bytes, dict[str, NewRows]] = {}
        for pair, entries in (replacing or {}).items():
            of, name = _pair(pair)
            operator = self._opened.operator(of)
            described = self._opened.state(operator, name)
            of_operator = new.setdefault(operator.id, {})
            if name in of_operator:
                raise UsageError(f"state {name} of operator {operator.label} is given twice")
            of_operator[name] = new_rows(described, entries, operator.max_parallelism, raw=raw, may_be_read=True)
        copy_with(self._opened, os.fspath(target), new)


@dataclass(frozen=True, slots=True, repr=False)
class OpenOperator:
    """An operator of a savepoint."""

    _opened: Savepoint
    _operator: Operator

    def __repr__(self) -> str:
        return f"<operator {self._operator.label}>"

    @property
    def id(self) -> str:
        """Its id, in hexadecimal digits."""
        return self._operator.hex_id

    @property
    def uid(self) -> str | None:
        """The uid by which the job declared it, if the savepoint says it."""
        return self._operator.uid

    @property
    def name(self) -> str | None:
        """Its name in the job, if the savepoint says it."""
        return self._operator.name

    @property
    def parallelism(self) -> int:
        """The number of its subtasks."""
        return self._operator.parallelism

    @property
    def max_parallelism(self) -> int:
        """The number of its key groups."""
        return self._operator.max_parallelism

    @property
    def states(self) -> tuple[OpenState, ...]:
        """Its keyed states, timers too."""
        return tuple(OpenState(self, described) for described in self._opened.keyed_states(self._operator))

    def state(self, name: str) -> OpenState:
        """Returns the keyed state with this name. If there is none, the error says which one was meant."""
        return OpenState(self, self._opened.state(self._operator, name))


@dataclass(frozen=True, slots=True, repr=False)
class OpenState:
    """A keyed state of an operator."""

    operator: OpenOperator
    _described: KeyedState

    def __repr__(self) -> str:
        return f"<state {self.name} of {self.operator!r}: {self.kind} {self.type}>"

    @property
    def name(self) -> str:
        """Its name, as in the job's descriptor."""
        return self._described.name

    @property
    def kind(self) -> str:
        """VALUE, LIST, MAP, REDUCING, AGGREGATING or TIMERS."""
        return self._described.kind.value

    @property
    def type(self) -> str:
        """The type of its values as a Java developer writes it, such as `Map<String,Long>`."""
        return self._described.type_name

    @property
    def key_type(self) -> str:
        """The type of the keys."""
        return type_name(self._described.key)

    @property
    def namespace_type(self) -> str:
        """The type of the namespaces: `VoidNamespace` unless the state is that of windows."""
        return type_name(self._described.namespace)

    @property
    def has_ttl(self) -> bool:
        """Whether it is under time to live, so that values have timestamps. How long they live, no savepoint says."""
        return self._described.ttl

    def schema(self, *, raw: bool = False) -> pa.Schema:
        """Returns the columns that `to_arrow` gives. Refuses types that Arrow has no form for, and names them."""
        return schema(self._described, raw=raw)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        key_groups: tuple[SupportsIndex, SupportsIndex] | None = None,
        raw: bool = False,
        rows_per_batch: int = ROWS_PER_BATCH,
    ) -> pa.RecordBatchReader:
        """Reads the entries as Arrow record batches, in bounded memory; `read_all()` makes one table of them.

        `columns` are those that are wanted, in their order; `key_groups` the first and the last one. With `raw`, key,
        namespace, user key and value are Flink's bytes.

        >>> state = flinkstate.open("demo").operator("main").state("newMainState")
        >>> state.to_arrow(["key", "user_key", "value"]).read_all().num_rows
        500
        """
        wanted = self.schema(raw=raw)
        names = wanted.names if columns is None else list(columns)
        for name in names:
            if name not in wanted.names:
                raise UsageError(f"state {self.name} has no column {name!r}. {there_are(name, wanted.names)}")
        only = None if key_groups is None else _range(key_groups, self.operator.max_parallelism - 1)
        batches = read_batches(
            self.operator._opened, self.operator.id, self.name, only, raw=raw, rows_per_batch=rows_per_batch
        )
        schema = pa.schema([wanted.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, (batch.select(names) for batch in batches))

    def entries(self, key_group: int | None = None) -> Iterator[Entry]:
        """Reads the entries one at a time, as Python values. This is for looking at state; `to_arrow` is for bulk.

        >>> state = flinkstate.open("demo").operator("main").state("newMainState")
        >>> next(state.entries()).user_key.startswith("item")
        True
        """
        last = self.operator.max_parallelism - 1
        if key_group is not None and key_group not in range(last + 1):
            raise UsageError(f"expected a key group from 0 to {last}, found {key_group!r}")
        return read_entries(self.operator._opened, self.operator._operator, self._described, key_group)


def _pair(given: object) -> tuple[str, str]:
    match given:
        case (str(operator), str(state)):
            return operator, state
    raise UsageError(f"expected the pair (operator, state) of what is replaced, found {given!r}")


def _range(given: Iterable[SupportsIndex], last: int) -> KeyGroupRange:
    with suppress(TypeError, ValueError):
        start, end = map(index, given)
        if 0 <= start <= end <= last:
            return KeyGroupRange(start, end)
    raise UsageError(f"expected the first and the last key group, from 0 to {last}, found {given!r}")
