"""Checks that keys are in the key groups that their hashes lead to.

Flink restores a misplaced key without an error and never finds it again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flinkstate.errors import DamagedError
from flinkstate.hashing.java_hash import hash_codes, unstable_reason
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.keyed import kernels
from flinkstate.keyed.compression import Buffer
from flinkstate.keyed.header import BackendKind, KeyedHeader
from flinkstate.serializers.type_parts import has_row
from flinkstate.serializers.types import FlinkType, Scalar, TimerType
from flinkstate.serializers.walker import Positions, skip_runs

# Before the key of a timer is its timestamp, of so many bytes.
TIMER_TIMESTAMP = 8
# The kinds of keys that the scan of their entries hashes itself.
_KINDS = {Scalar.STRING: kernels.STRING_KEY, Scalar.INTEGER: kernels.INTEGER_KEY, Scalar.LONG: kernels.LONG_KEY}


class Membership:
    """The check of a file's keys, for the states whose keys can be hashed.

    `keys` has for each state the kind of its keys and their offset in an entry. With it the scan of the entries checks
    the keys at once. The methods check those keys of which the scan wasn't certain.
    """

    def __init__(self, header: KeyedHeader, max_parallelism: int, prefix: int) -> None:
        self._key = header.key_serializer.type
        self.max_parallelism = max_parallelism
        known = hash_is_certain(self._key)
        # None for a state whose keys can't be found or hashed.
        self._offsets = [key_offset(header, state, prefix) if known else None for state in range(len(header.states))]
        self._kind = _KINDS.get(self._key, kernels.NO_KEY) if isinstance(self._key, Scalar) else kernels.NO_KEY
        pairs = [(kernels.NO_KEY, 0) if offset is None else (self._kind, offset) for offset in self._offsets]
        self.keys = np.array(pairs, np.int64).reshape(-1, 2)

    def check(self, state: int, key_group: int, data: Buffer, starts: Positions, key_ends: Positions) -> None:
        """Raises for the first key that belongs to another key group. The error's offset is a position in `data`."""
        offset = self._offsets[state]
        if offset is None:
            return
        section = np.array([[key_group, state, 0, len(starts)]])
        if self._belong_at_once(section, data, starts, key_ends):
            return
        # Entries of one map are neighbours, so their common key is hashed once.
        key_starts, ends = skip_runs(self._key, data, starts + offset, key_ends)
        codes = hash_codes(self._key, data, key_starts, ends)
        expect_key_group(key_group, codes, self.max_parallelism, key_starts)

    def all_belong(self, sections: Positions, data: Buffer, starts: Positions, key_ends: Positions) -> bool:
        """Whether the keys of all sections belong to their key groups.

        A section is (key group, state, its first entry, the entry behind its last, whether that is certain already).
        """
        doubtful = sections[sections[:, 4] == 0]
        if not len(doubtful) or self._belong_at_once(doubtful, data, starts, key_ends):
            return True
        try:
            for key_group, state, first, after, _ in doubtful.tolist():
                self.check(state, key_group, data, starts[first:after], key_ends[first:after])
        except DamagedError:
            return False
        return True

    def _belong_at_once(self, sections: Positions, data: Buffer, starts: Positions, limits: Positions) -> bool:
        """Checks all sections in one call. False means that the keys have to be checked one by one."""
        where = (data, starts, limits, sections, self.keys, self.max_parallelism)
        return self._kind != kernels.NO_KEY and bool(kernels.all_belong(*where))


def expect_key_group(key_group: int, codes: NDArray[np.int32], max_parallelism: int, key_starts: Positions) -> None:
    """Raises for the first key whose hash code doesn't give this key group."""
    found = assign_to_key_groups(codes, max_parallelism)
    for wrong in np.flatnonzero(found != key_group)[:1]:
        raise DamagedError(
            f"keys whose hash gives key group {key_group} (max parallelism {max_parallelism})",
            f"a key whose hash gives {found[wrong]}",
            offset=int(key_starts[wrong]),
        )


def key_offset(header: KeyedHeader, state: int, prefix: int) -> int | None:
    """Returns how far behind the start of a state's entries their keys begin, or None if that isn't known."""
    meta = header.states[state]
    if meta.kind is BackendKind.KEY_VALUE:
        return 4 + prefix
    if meta.kind is BackendKind.PRIORITY_QUEUE and all(
        isinstance(snapshot.type, TimerType) for _, snapshot in meta.serializers
    ):
        return 4 + prefix + TIMER_TIMESTAMP
    return None


def hash_is_certain(key: FlinkType) -> bool:
    """Whether the hash follows from the bytes alone.

    The hash of a Row doesn't: it is different if the job sets the row's fields by name.
    """
    return unstable_reason(key) is None and not has_row(key)


def why_not_shown(key: FlinkType, max_parallelism: int) -> str | None:
    """Returns why the key groups in which the keys are don't show how the job hashes rows; None if they do."""
    if max_parallelism > 1 or not has_row(key):
        return None
    return "all are in one key group, so nothing shows whether the job fills these rows by position or by name"
