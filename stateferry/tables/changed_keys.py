"""Finds the keys of a chunk that may differ from what the ledger has, without reading the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flinkstate.errors import StateferryError
from flinkstate.files.storage import Location
from flinkstate.keyed.native_difference import EarlierPart, difference
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.chunks import Chunk, FilePart
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.serializers.types import Scalar
from stateferry.changes.key_hashes import Lanes, key_lanes
from stateferry.tables.iceberg.key_index import join_lanes
from stateferry.tables.iceberg.ledger import LegacyState


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """The keys as the ledger has them, and by subtask and state id as their rows begin."""

    keys: Lanes
    of_subtasks: dict[int, dict[int, Prefixes]]


def changed_keys(
    folder: Location, chunk: Chunk, legacy: LegacyState, earlier: Mapping[int, EarlierPart]
) -> ChangedKeys | None:
    """Returns the keys of the state whose rows came, went or changed since the earlier snapshot.

    None if that can't be known, or if the ledger may have to change for other keys as well: who wins between a blob and
    rows of the same key may depend on the time.
    """
    if not earlier or legacy.rules.legacy.namespace is not Scalar.VOID_NAMESPACE:
        return None
    if legacy.rules.legacy.key != legacy.rules.in_source.key:
        return None  # the ledger has keys with other bytes
    lanes: list[Lanes] = []
    of_subtasks: dict[int, dict[int, Prefixes]] = {}
    for part in chunk.parts:
        before = earlier.get(part.subtask)
        if before is None or not isinstance(part.handle, NativeHandle):
            return None
        try:
            changed = _of_part(folder, part, chunk.max_parallelism, legacy, before)
        except StateferryError:
            # The earlier snapshot may be gone. Reading all of the later one shows what is wrong with it.
            return None
        if changed is None:
            return None
        of_subtasks[part.subtask], prefix = changed
        lanes.append(_lanes(next(iter(of_subtasks[part.subtask].values())), prefix))
    return ChangedKeys(join_lanes(lanes), of_subtasks)


def _of_part(
    folder: Location, part: FilePart, max_parallelism: int, legacy: LegacyState, before: EarlierPart
) -> tuple[dict[int, Prefixes], int] | None:
    assert isinstance(part.handle, NativeHandle)
    with (
        NativeFile(folder, part.handle, max_parallelism, part.subtask, None, part.key_groups) as new,
        NativeFile(before.folder, before.handle, max_parallelism, part.subtask, None, part.key_groups) as old,
    ):
        rules = legacy.rules
        flag = legacy.flag.name if legacy.flag is not None else None
        ids = {state.name: number for number, state in enumerate(new.header.states)}
        found = {
            name: ids[name] for name in (rules.legacy.name, rules.new_name, flag) if name is not None and name in ids
        }
        differing = difference(new, old, before.identities)
        if differing is None or not found:
            return None
        others = [number for name, number in found.items() if name != rules.legacy.name]
        has_ttl = rules.legacy.ttl or (legacy.flag is not None and legacy.flag.ttl)
        if has_ttl and any(True for number in others for _ in new.tables(number)):
            return None
        changed = differing.keys_of(found.values())
        return None if changed is None else (dict.fromkeys(found.values(), changed), new.prefix)


def _lanes(prefixes: Prefixes, prefix: int) -> Lanes:
    """Returns what the ledger's index has for keys that follow a key group and have no namespace."""
    starts, ends = prefixes.bounds[:-1], prefixes.bounds[1:]
    # Behind each key is the zero of a namespace that is none.
    places = np.arange(len(prefixes)) + ends
    data = np.insert(prefixes.keys[: ends[-1] if len(ends) else 0], ends, 0)
    return key_lanes(np.append(data, np.zeros(8, np.uint8)), starts + np.arange(len(prefixes)) + prefix, places + 1)
