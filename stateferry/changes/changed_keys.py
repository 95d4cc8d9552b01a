"""The keys of an operator that may have changed between two snapshots, by state of the old and of the new job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flinkstate.errors import RefusedError
from flinkstate.files.digests import digest_of, new_hasher
from flinkstate.files.storage import Location
from flinkstate.keyed.header import KeyedHeader
from flinkstate.keyed.native_difference import EarlierPart, whole_difference
from flinkstate.keyed.native_file import NativeFile
from flinkstate.metadata.metadata import NativeHandle
from flinkstate.rocksdb.prefixes import Prefixes
from stateferry.changes.rules import Rules


@dataclass(frozen=True, slots=True)
class KeyList:
    """How many changed keys a state has, and a digest of them: of two lists alike both are the same."""

    keys: int
    digest: str

    @classmethod
    def of(cls, keys: Prefixes) -> KeyList:
        hasher = new_hasher()
        hasher.update(keys.bounds.tobytes())
        hasher.update(keys.keys.tobytes())
        return cls(len(keys), digest_of(hasher))


def grouped_states(rules: Iterable[Rules], header: KeyedHeader) -> list[frozenset[int]]:
    """The states (by id) whose rows of one key count together: a legacy state, its flag and its new state.

    Each other state is by itself.
    """
    ids = {meta.name: number for number, meta in enumerate(header.states)}
    groups: list[frozenset[int]] = []
    for rule in rules:
        together = frozenset(
            ids[name] for name in (rule.legacy.name, rule.flag_name, rule.new_name) if name is not None and name in ids
        )
        # Two legacy states may share a flag.
        for other in [group for group in groups if group & together]:
            groups.remove(other)
            together |= other
        groups.append(together)
    taken = frozenset().union(*groups)
    return groups + [frozenset([number]) for number in ids.values() if number not in taken]


def changed_keys(new: NativeFile, old: NativeFile, earlier: EarlierPart, rules: Sequence[Rules]) -> dict[int, Prefixes]:
    """The changed keys by the id of each state of the source."""
    found = whole_difference(new, old, earlier.identities).changed(grouped_states(rules, new.header))
    if found is None:
        raise RefusedError(f"{new.name}: its keys can't be told from what is behind them")
    return found


def open_part(folder: Location, handle: NativeHandle, max_parallelism: int, subtask: int) -> NativeFile:
    """A subtask's database, open for all its key groups."""
    return NativeFile(folder, handle, max_parallelism, subtask)
