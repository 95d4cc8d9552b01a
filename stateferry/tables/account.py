"""The account of the tables, which the validation compares with those of the savepoints; it is made chunk by chunk.

The ledger has the sum of the hashes of each key's entries, and the digest of the file of entries that was written with
each of its files. If these files still have their digests, the ledger's sums are those of the rows, and no row is read.
Rows are read if other tools have written files, for other key groups, and if only some of a key's rows have expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flinkstate.basics.array_types import Positions
from flinkstate.errors import MissingHereError, StateferryError, TransientError
from flinkstate.files.os_errors import is_transient
from flinkstate.files.storage import Location
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.ttl import expired_array
from flinkstate.values.key_hashes import codes_of_keys
from stateferry.changes.rules import Rules
from stateferry.proof.expected.content import Account
from stateferry.proof.tally import TableAccount
from stateferry.tables.content import entry_hashes, key_hashes
from stateferry.tables.iceberg import schemas as names
from stateferry.tables.iceberg.files import digest_of_file, entry_digests
from stateferry.tables.iceberg.key_index import ranges_of_binary
from stateferry.tables.iceberg.ledger import Ledger
from stateferry.tables.iceberg.reads import ChunkFiles, ledger_columns, read_columns, read_current


@dataclass(frozen=True, slots=True)
class AccountTask:
    """Makes the account of one chunk of the tables of `operator` (its id in hexadecimal digits).

    The account is by the key groups of `max_parallelism`. With `changes_key_groups` these are not the rows' own.
    """

    operator: str
    rules: Rules
    files: ChunkFiles
    max_parallelism: int
    changes_key_groups: bool


def account_of_chunk(task: AccountTask) -> TableAccount:
    """Makes the account of one chunk."""
    made = TableAccount(task.operator, task.rules.new_name, Account.of(task.max_parallelism))
    try:
        digests = entry_digests(task.files.ledger)
        changed = _changed_file(task.files, digests)
        if changed:
            made.problems.append(f"file {changed} has other bytes than were written")
        elif not _by_ledger(task, digests, made.account):
            made.rows_read = _by_rows(task, made.account)
    except (OSError, pa.ArrowException, StateferryError) as error:
        # A file that can't be reached now, or not from here, is not known to be wrong.
        if isinstance(error, (MissingHereError, TransientError)) or is_transient(error):
            raise
        made.problems.append(f"{error}")
    return made


def table_accounts(chunks: Iterable[TableAccount]) -> list[TableAccount]:
    """Adds up the chunks' accounts by state."""
    found: dict[tuple[str, str], TableAccount] = {}
    for chunk in chunks:
        if (before := found.get((chunk.operator, chunk.state))) is None:
            found[chunk.operator, chunk.state] = chunk
        else:
            before.add(chunk)
    return list(found.values())


def _changed_file(files: ChunkFiles, digests: Mapping[str, str]) -> str | None:
    return next((name for name in files.entries if digests.get(_base(name)) not in (None, digest_of_file(name))), None)


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _by_ledger(task: AccountTask, digests: Mapping[str, str], account: Account) -> bool:
    """Adds the ledger's sums, if they are proof enough; returns whether they are."""
    rules, files = task.rules, task.files
    expires = rules.legacy.ttl and rules.drops_expired
    bounds = (names.OLDEST, names.NEWEST) if expires else ()
    wanted = [(name, pa.int64()) for name in (names.ENTRIES, names.CONTENT, *bounds)] + [(names.KEY_GROUP, pa.int32())]
    if task.changes_key_groups or not _are_known(files, digests):
        return False
    if not _have(files.ledger, [name for name, _ in wanted]):
        return False
    schema = pa.schema([*ledger_columns(rules.legacy), *wanted])
    table = read_columns(files.ledger, schema)
    current = table.take(pa.array(Ledger.of(table, rules.legacy, names.TOMBSTONE).current()))
    current = current.filter(pc.greater(current.column(names.ENTRIES), 0))
    if any(current.column(name).null_count for name, _ in wanted):
        return False
    counts, sums, groups = (current.column(name).to_numpy() for name in (names.ENTRIES, names.CONTENT, names.KEY_GROUP))
    if expires:
        assert rules.ttl is not None
        oldest, newest = (expired_array(current.column(name).to_numpy(), rules.ttl, rules.now) for name in bounds)
        if (oldest != newest).any():
            return False
        counts, sums, groups = counts[~newest], sums[~newest], groups[~newest]
    np.add.at(account.counts, groups, counts)
    np.add.at(account.sums, groups, sums.view(np.uint64))
    return True


def _are_known(files: ChunkFiles, digests: Mapping[str, str]) -> bool:
    """Whether the files are exactly those that the ledger's files were written with."""
    return {_base(name) for name in files.entries} == digests.keys()


def _have(files: Sequence[str], columns: Sequence[str]) -> bool:
    def of(name: str) -> Iterator[str]:
        with Location.of(name).open() as file:
            yield from pq.read_schema(file).names

    return all(set(columns) <= set(of(name)) for name in files)


def _by_rows(task: AccountTask, account: Account) -> int:
    """Adds the hashes of the rows and returns the number of rows."""
    rules, legacy = task.rules, task.rules.legacy
    schema = names.entry_schema(rules).names
    raw = [names.KEY_GROUP, names.KEY_RAW, names.NAMESPACE_RAW, names.USER_KEY_RAW, names.VALUE_RAW, names.IS_NULL]
    read = 0
    for batch in read_current(
        task.files, rules, [name for name in (*raw, names.TIMESTAMP, names.RUN) if name in schema]
    ):
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        groups = _groups(task, columns)
        keys = key_hashes(legacy, columns[names.KEY_RAW], columns.get(names.NAMESPACE_RAW))
        hashes = entry_hashes(rules, keys, groups, columns)
        account.add(groups, hashes, np.ones(len(hashes), np.bool_))
        read += len(hashes)
    return read


def _groups(task: AccountTask, columns: dict[str, pa.Array]) -> Positions:
    if task.changes_key_groups:
        codes = codes_of_keys(task.rules.legacy.key, *ranges_of_binary(columns[names.KEY_RAW]))
        return assign_to_key_groups(codes, task.max_parallelism).astype(np.int64)
    groups: Positions = columns[names.KEY_GROUP].to_numpy().astype(np.int64)
    return groups
