"""The account of the tables, which the validation compares with those of the savepoints; it is made chunk by chunk.

The ledger has the sum of the hashes of each key's entries, and the digest of the file of entries that was written with
each of its files. If these files still have their digests, the ledger's sums are those of the rows, and no row is read.
Rows are read if other tools have written files, for other key groups, and if only some of a key's rows have expired.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stateferry.errors import MissingHereError, PassingError, StateferryError
from stateferry.hashing.java_hash import hash_codes
from stateferry.key_group_arrays import assign_to_key_groups
from stateferry.migration.rules import Rules
from stateferry.os_errors import may_pass
from stateferry.savepoint.storage import Location
from stateferry.serializers.walker import Positions
from stateferry.tables import schemas as names
from stateferry.tables.content import entry_hashes, key_hashes
from stateferry.tables.files import digest_of, entry_digests
from stateferry.tables.key_index import runs_of_binary
from stateferry.tables.ledger import Ledger
from stateferry.tables.reads import ChunkFiles, ledger_columns, read_columns, read_current
from stateferry.ttl import expired_array
from stateferry.validation.content import Account
from stateferry.validation.judgement import TableAccount

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AccountSpec:
    """How to account for one chunk of the tables of `operator` (its id in hexadecimal digits).

    The account is by the key groups of `max_parallelism`. The rows' own key groups are these unless `moves`.
    """

    operator: str
    rules: Rules
    files: ChunkFiles
    max_parallelism: int
    moves: bool


def table_facts(spec: AccountSpec) -> Facts:
    """Makes the account of one chunk."""
    began = time.monotonic()
    account, problem, read = Account.of(spec.max_parallelism), "", 0
    try:
        changed = _changed_file(spec.files)
        if changed:
            problem = f"{changed} is not what was written"
        elif not _by_ledger(spec, account):
            read = _by_rows(spec, account)
    except (OSError, pa.ArrowException, StateferryError) as error:
        # A file that can't be reached now, or not from here, is not known to be wrong.
        if isinstance(error, (MissingHereError, PassingError)) or may_pass(error):
            raise
        problem = f"{error}"
    return {
        "operator": spec.operator,
        "state": spec.rules.new_name,
        "account": account.to_facts(),
        "problem": problem,
        "rows read": read,
        "seconds": time.monotonic() - began,
    }


def table_accounts(specs: Sequence[AccountSpec], facts: Iterable[Facts]) -> list[TableAccount]:
    """Adds up the chunks' facts by state."""
    found: dict[tuple[str, str], TableAccount] = {}
    for spec, one in zip(specs, facts, strict=True):
        of_state = one["operator"], one["state"]
        if of_state not in found:
            found[of_state] = TableAccount(*of_state, Account.of(spec.max_parallelism), [])
        found[of_state].account.add_facts(one["account"])
        if one["problem"]:
            found[of_state].problems.append(one["problem"])
    return list(found.values())


def _changed_file(files: ChunkFiles) -> str | None:
    digests = entry_digests(files.ledger)
    return next((name for name in files.entries if digests.get(_base(name)) not in (None, digest_of(name))), None)


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _by_ledger(spec: AccountSpec, account: Account) -> bool:
    """Adds the ledger's sums, if they are proof enough; returns whether they are."""
    rules, files = spec.rules, spec.files
    expires = rules.legacy.ttl and rules.drops_expired
    bounds = (names.OLDEST, names.NEWEST) if expires else ()
    wanted = [(name, pa.int64()) for name in (names.ENTRIES, names.CONTENT, *bounds)] + [(names.KEY_GROUP, pa.int32())]
    if spec.moves or not _are_known(files) or not _have(files.ledger, [name for name, _ in wanted]):
        return False
    schema = pa.schema([*ledger_columns(rules.legacy), *wanted])
    table = read_columns(files.ledger, schema)
    standing = table.take(pa.array(Ledger.of(table, rules.legacy, names.TOMBSTONE).standing()))
    standing = standing.filter(pc.greater(standing.column(names.ENTRIES), 0))
    if any(standing.column(name).null_count for name, _ in wanted):
        return False
    counts, sums, groups = (
        standing.column(name).to_numpy() for name in (names.ENTRIES, names.CONTENT, names.KEY_GROUP)
    )
    if expires:
        assert rules.ttl is not None
        oldest, newest = (expired_array(standing.column(name).to_numpy(), rules.ttl, rules.now) for name in bounds)
        if (oldest != newest).any():
            return False
        counts, sums, groups = counts[~newest], sums[~newest], groups[~newest]
    np.add.at(account.counts, groups, counts)
    np.add.at(account.sums, groups, sums.view(np.uint64))
    return True


def _are_known(files: ChunkFiles) -> bool:
    """Whether the files are exactly those that the ledger's files were written with."""
    return {_base(name) for name in files.entries} == entry_digests(files.ledger).keys()


def _have(files: Sequence[str], columns: Sequence[str]) -> bool:
    def of(name: str) -> Iterator[str]:
        with Location.of(name).open() as file:
            yield from pq.read_schema(file).names

    return all(set(columns) <= set(of(name)) for name in files)


def _by_rows(spec: AccountSpec, account: Account) -> int:
    """Adds the hashes of the rows and returns the number of rows."""
    rules, legacy = spec.rules, spec.rules.legacy
    schema = names.entry_schema(rules).names
    raw = [names.KEY_GROUP, names.KEY_RAW, names.NAMESPACE_RAW, names.USER_KEY_RAW, names.VALUE_RAW, names.IS_NULL]
    read = 0
    for batch in read_current(
        spec.files, rules, [name for name in (*raw, names.TIMESTAMP, names.RUN) if name in schema]
    ):
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        groups = _groups(spec, columns)
        keys = key_hashes(legacy, columns[names.KEY_RAW], columns.get(names.NAMESPACE_RAW))
        hashes = entry_hashes(rules, keys, groups, columns)
        account.add(groups, hashes, np.ones(len(hashes), np.bool_))
        read += len(hashes)
    return read


def _groups(spec: AccountSpec, columns: dict[str, pa.Array]) -> Positions:
    if spec.moves:
        codes = hash_codes(spec.rules.legacy.key, *runs_of_binary(columns[names.KEY_RAW]))
        return assign_to_key_groups(codes, spec.max_parallelism).astype(np.int64)
    groups: Positions = columns[names.KEY_GROUP].to_numpy().astype(np.int64)
    return groups
