"""Refuses keys that become the same bytes: RocksDB would hold only one of their entries.

In a map, such keys can differ for Java: two arrays, two objects of a class without `equals`, numbers before they are
widened, and any two objects in an `IdentityHashMap`. In a state, they are keys that are written by another Kryo: a job
that was upgraded in place may have a key twice, by the Kryo of each Flink. Or they are Scala's, where Flink has one
null for two values.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flinkstate.errors import RefusedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.kryo.refusal import RefusedValueError
from flinkstate.serializers.type_parts import kryo_map_of, with_parts
from flinkstate.serializers.types import (
    EnumType,
    FlinkType,
    ListType,
    MapType,
    NullableType,
    Scalar,
    SetType,
    TupleType,
    type_name,
)
from flinkstate.serializers.walker import Flags
from stateferry.changes.key_hashes import hashed_keys
from stateferry.changes.rules import Rules
from stateferry.changes.sections import Blobs

# Of these, keys that differ for Java have other bytes, if that is so for their parts.
_DIFFER = (Scalar, ListType, SetType, MapType, TupleType, EnumType, NullableType)


class RewrittenKeys:
    """The keys of one key group as they are written anew, by state."""

    def __init__(self) -> None:
        self._hashes: dict[str, list[pa.Array]] = {}

    def meet(self, state: str, made: Section) -> None:
        """Notes the keys of a section that was written anew."""
        self._hashes.setdefault(state, []).append(hashed_keys(made.data, made.key_starts, made.key_ends))

    def refuse_equal(self, operator: str, key_group: int) -> None:
        """Refuses a state of which two keys have become the same."""
        for state, found in self._hashes.items():
            keys = pa.concat_arrays(found)
            if (more := len(keys) - pc.count_distinct(keys).as_py()) > 0:
                raise RefusedError(
                    f"state {state} of operator {operator}: in key group {key_group}, {more} keys become the same "
                    "bytes as another one, and Flink would keep only one row of each. So it is with a job that was "
                    "upgraded in place: it didn't find rows whose keys the earlier Kryo had written, and made new ones "
                    "beside them. So it is with equal lists of two classes, and with Scala's None and Some(null), too"
                )


def refuse_equal_keys(blobs: Blobs, keep: Flags, rules: Rules) -> None:
    """Refuses two keys of one map that have the same bytes, among the entries that are kept."""
    key = rules.map_type.key
    may_differ = _is_widened(rules.in_source.value) or any(not isinstance(part, _DIFFER) for part in with_parts(key))
    # Of a map by Kryo nothing but its own bytes says that it is an IdentityHashMap.
    if not may_differ and (kryo_map_of(rules.in_source.value) is None or not blobs.may_have_equal_keys(keep)):
        return
    pairs = blobs.pairs().filter(pa.array(keep))
    if pc.count_distinct(pairs).as_py() == len(pairs):
        return
    counted = pc.value_counts(pairs)
    twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))[:1]
    place = int(np.flatnonzero(keep)[pc.is_in(pairs, value_set=twice).to_numpy(zero_copy_only=False)][0])
    with blobs.section.locating():
        raise RefusedValueError(
            f"two keys of the map become the same {type_name(key)}, of which a MapState can hold only one",
            int(blobs.maps[np.searchsorted(blobs.firsts, place, "right") - 1]),
            (key, blobs.data[blobs.entries[place] : blobs.flags[place]].tobytes()),
        )


def _is_widened(type_: FlinkType | None) -> bool:
    stored = kryo_map_of(type_)
    return stored is not None and stored.widen
