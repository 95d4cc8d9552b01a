"""The plain reader's twin of a run in reverse: rows of a key become the entries of its blob."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stateferry.proof.expected.sampling import Row
from stateferry.proof.plain.plain_reader import PlainReader
from stateferry.proof.plain.plain_state import KeyAccount, Line, PlainKey


class PlainBlobReader(PlainReader):
    """Works out what the legacy state must hold for one key, and reads what it holds."""

    def _expected_lines(self, key: PlainKey, rows: list[Row], account: KeyAccount) -> Iterator[Line]:
        """The entries of the key's blob, which has the timestamp of the newest one."""
        own = [self._states[row.state].entry(row) for row in rows if row.state == self._rules.new_name]
        alive = [entry for entry in own if self._lives(entry.stamp)]
        newest = max((entry.stamp for entry in alive if entry.stamp is not None), default=None)
        group = self._group(key, rows[0])
        for entry in alive:
            yield replace(entry, stamp=newest).line(self._rules.legacy.name, group, key)

    def _found_lines(self, key: PlainKey, rows: list[Row], account: KeyAccount) -> Iterator[Line]:
        for row in rows:
            if row.state != self._rules.legacy.name:
                yield from super()._found_lines(key, [row], account)
                continue
            for entry in self._entries(row):
                # With time to live, a null of a row is in the value's bytes, and that of a blob in the flag.
                plain = replace(entry, is_null=entry.is_null and not self._rules.legacy.ttl)
                yield plain.line(row.state, row.key_group, key)
