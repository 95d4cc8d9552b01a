"""Where key, namespace and user key end, behind each other, if there is something by Kryo in them.

A value by Kryo doesn't say where it ends, so what stands behind it says whether it can end there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from flinkstate.basics.array_types import Bytes, Flags, Positions
from flinkstate.errors import RefusedError
from flinkstate.keyed.state import KeyedState
from flinkstate.serializers.type_parts import with_parts
from flinkstate.serializers.types import FlinkType, KryoType, OpaqueType, Scalar
from stateferry.verdict.kryo_extents import KryoExtents

_UNREADABLE = -1
_LONGEST_LENGTH = 4
# The walker skips their one byte, whatever it is.
_ZERO = (Scalar.VOID_NAMESPACE, Scalar.GLOBAL_WINDOW)


@dataclass(frozen=True, slots=True)
class KeyParts:
    """The keys of entries of a state, `data[starts[i]:limits[i]]`: each a key, a namespace, and of a map a user key."""

    state: KeyedState
    data: Bytes
    starts: Positions
    limits: Positions

    def may_end(self, ends: Positions) -> Flags:
        """Whether the keys can end there: then namespace and user key take up all that is behind them."""
        if not self._has_known_lengths or _is_unknown(self.state.namespace):
            return np.ones(len(ends), np.bool_)
        by_2, by_5 = (self._is_last(self._behind_namespace(ends, five), five) for five in (False, True))
        found: Flags = by_2 | by_5
        return found

    def user_keys(self, five: bool) -> Positions:
        """Returns where the user keys begin, -1 if that isn't known; `five` is the Kryo that wrote most of the keys."""
        if not self._has_known_lengths:
            return np.full(len(self.starts), _UNREADABLE, np.int64)
        by_mine, by_other = (
            self._behind_namespace(self._part(self.state.key, self.starts, kryo), kryo) for kryo in (five, not five)
        )
        # All of a key is by one Kryo.
        only_by_other = self._is_last(by_other, not five) & ~self._is_last(by_mine, five)
        return np.where(only_by_other, by_other, by_mine)

    @property
    def _has_known_lengths(self) -> bool:
        """Whether it is known if lengths stand behind key and namespace."""
        try:
            _ = self.state.has_suffixes
        except RefusedError:
            return False
        return True

    def _part(self, type_: FlinkType, starts: Positions, five: bool) -> Positions:
        return KryoExtents(self.data, five, sys.maxsize).ends(type_, starts, self.limits)

    def _is_last(self, user_keys: Positions, five: bool) -> Flags:
        """Whether the user keys that begin there, or nothing if there are none, are the end of the keys."""
        type_ = self.state.user_key
        is_unknown = type_ is not None and _is_unknown(type_)
        ends = user_keys if type_ is None or is_unknown else self._part(type_, user_keys, five)
        found: Flags = ends >= 0 if is_unknown else ends == self.limits
        return found

    def _behind_namespace(self, ends: Positions, five: bool) -> Positions:
        namespaces, namespace = self._behind_length(self.starts, ends), self.state.namespace
        if namespace in _ZERO:
            is_zero = self.data[np.clip(namespaces, 0, len(self.data) - 1)] == 0
            namespaces = np.where(is_zero, namespaces, _UNREADABLE)
        return self._behind_length(namespaces, self._part(namespace, namespaces, five))

    def _behind_length(self, starts: Positions, ends: Positions) -> Positions:
        """Returns what is behind the length of a part: little-endian, in as few bytes as it needs."""
        if not self.state.has_suffixes:
            return ends
        lengths = ends - starts
        sizes = 1 + sum((lengths >> 8 * size > 0).astype(np.int64) for size in range(1, _LONGEST_LENGTH))
        fits = (starts >= 0) & (ends >= 0) & (ends + sizes <= self.limits)
        for place in range(_LONGEST_LENGTH):
            found = self.data[np.clip(ends + place, 0, len(self.data) - 1)]
            fits &= (place >= sizes) | (found == lengths >> 8 * place & 0xFF)
        return np.where(fits, ends + sizes, _UNREADABLE)


def _is_unknown(type_: FlinkType) -> bool:
    return any(isinstance(one, OpaqueType) and not isinstance(one, KryoType) for one in with_parts(type_))
