"""Faults that change nothing that anyone could see, each with its reason."""

from __future__ import annotations

_SORTED = "the hashes are sorted, so all that follow are as large"
_TWICE = "the row with the limit itself is left out by the other of the two comparisons"
_MASKED = "what is above 64 bits is cut off by the mask, and multiplication carries only upwards"
_LONG = "a longer digest tells elements apart as well"
_RESTART = "the first entry after a restart shares nothing with one before"
_UNIQUE = "the hashes are unique in any case; to say so saves time"
_AS_BYTE_BY_BYTE = "the bytes are then loaded one by one, with the same result"
_SHIFTED_OUT = "what the word begins with is shifted out"
_LAST_SIDE = "the staged savepoint is the last of the two sides"
_NO_ROWS = "there are no rows: nothing is cut from, and no place is counted from here"
_SETS = (
    ("_settle", "contradictory = np.intersect1d(blobs, _joined(claims.flagged), assume_unique=True)"),
    ("_settle_division", "replaced = np.setdiff1d(moved, contradictory, assume_unique=True)"),
)
_SAYS, _NOT = (", assume_unique=True",) * 2, ", assume_unique=False"
_BOTH = "both = np.setdiff1d(np.intersect1d(blobs, _joined(claims.rows){}), contradictory{})"
_CHOSEN = (
    "chosen = np.flatnonzero(hashes < np.uint64(self.below)) if self.below < EVERYTHING else np.arange(len(hashes))"
)

EQUIVALENT: dict[tuple[str, str, str, str], str] = {
    ("kernels.py", "_tail", "word = np.uint64(0)", "word = np.uint64(1)"): _SHIFTED_OUT,
    ("kernels.py", "read_timestamps", "value = np.int64(0)", "value = np.int64(1)"): _SHIFTED_OUT,
    ("kernels.py", "_tail", "if start + 8 <= len(data):", "if start + 8 < len(data):"): _AS_BYTE_BY_BYTE,
    ("kernels.py", "_tail", "if start + 8 <= len(data):", "if start + 9 <= len(data):"): _AS_BYTE_BY_BYTE,
    ("sampling.py", "KeySample._keep", "break", "continue"): _SORTED,
    ("operator_pairs.py", "OperatorPair.keyed", "continue", "break"): _LAST_SIDE,
    (
        "sampling.py",
        "KeySample.see",
        _CHOSEN,
        _CHOSEN.replace("<", "<=", 1),
    ): _TWICE,
    (
        "plain_lazy_cut.py",
        "key_hash",
        "state = (state ^ int.from_bytes(key[start:start + 8], 'little')) * _K2 & _MASK",
        "state = (state ^ int.from_bytes(key[start:], 'little')) * _K2 & _MASK",
    ): _MASKED,
    (
        "plain_lazy_cut.py",
        "key_hash",
        "state = (state ^ int.from_bytes(key[start:start + 8], 'little')) * _K2 & _MASK",
        "state = (state ^ int.from_bytes(key[start:start + 9], 'little')) * _K2 & _MASK",
    ): _MASKED,
    (
        "carried_check.py",
        "_digest",
        "digest, position = (blake2b(digest_size=16), start)",
        "digest, position = (blake2b(digest_size=17), start)",
    ): _LONG,
    (
        "carried_check.py",
        "_digest",
        "digest, position = (blake2b(digest_size=16), start)",
        "digest, position = (blake2b(), start)",
    ): _LONG,
    (
        "expected_pojos.py",
        "expected_pojos",
        "begin, end = (int(section.starts[0]), int(section.ends[-1])) if len(section) else (0, 0)",
        "begin, end = (int(section.starts[0]), int(section.ends[-1])) if len(section) else (1, 0)",
    ): _NO_ROWS,
    **{
        ("plain_rocksdb.py", "_PlainIndex._entries", "block, key, before = (self._block, b'', (0, 0))", other): _RESTART
        for other in (
            "block, key, before = (self._block, b'x', (0, 0))",
            "block, key, before = (self._block, b'', (1, 0))",
            "block, key, before = (self._block, b'', (0, 1))",
        )
    },
    (
        "plain_rocksdb.py",
        "_entries",
        "at, end, key = (0, _end_of_entries(block), b'')",
        "at, end, key = (0, _end_of_entries(block), b'x')",
    ): _RESTART,
    **{
        ("expected_entries.py", f"ExpectedEntries.{function}", before, before.replace(*change)): _UNIQUE
        for function, before in _SETS
        for change in ((", assume_unique=True", "", 1), ("assume_unique=True", "assume_unique=False", 1))
    },
    **{
        ("expected_entries.py", "ExpectedEntries._settle", _BOTH.format(*_SAYS), _BOTH.format(*said)): _UNIQUE
        for said in (("", _SAYS[1]), (_SAYS[0], ""), (_NOT, _SAYS[1]), (_SAYS[0], _NOT))
    },
}
