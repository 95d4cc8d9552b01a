"""The keys of an operator that may have changed between two snapshots, by state of the old and of the new job."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.files.digests import digest_of, digest_of_bytes, new_hasher
from flinkstate.files.storage import Location
from flinkstate.hashing.key_group_arrays import assign_to_key_groups
from flinkstate.hashing.key_groups import key_group_prefix_bytes
from flinkstate.keyed.key_group_check import TIMER_TIMESTAMP
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.to_other_kryo import READ_BEHIND
from flinkstate.rocksdb.prefixes import Prefixes
from flinkstate.serializers.type_parts import kept_by_kryo
from flinkstate.serializers.walker import skip_each
from flinkstate.values.key_hashes import codes_of_rows
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.upgrade.kryo_keys import is_by_kryo, key_type, keys_for_other_kryo

_DIGEST = 16


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


def write_changed_keys(file: Location, parts: Mapping[tuple[str, int, int], Mapping[str, Prefixes]]) -> None:
    """Writes the changed keys by state, for each operator, subtask and first key group."""
    content = io.BytesIO()
    lists = [(f"{of[0]} {of[1]} {state}", keys) for of in sorted(parts) for state, keys in parts[of].items()]
    for array in (
        np.array([name for name, _ in lists], np.str_),
        *(of for _, one in lists for of in (one.keys, one.bounds)),
    ):
        np.save(content, array, allow_pickle=False)
    data = content.getvalue()
    file.write_atomically(digest_of_bytes(data).encode() + data)


def read_changed_keys(file: Location) -> dict[tuple[str, int], dict[str, Prefixes]]:
    """The changed keys by state, for each operator and subtask, as they were written."""
    kept = file.read_if_there() or b""
    digest, data = kept[:_DIGEST], kept[_DIGEST:]
    if digest_of_bytes(data).encode() != digest:
        raise DamagedError(
            "the list of changed keys that the snapshot has written", "none, or another", file=file.shown
        )
    content = io.BytesIO(data)
    parts: dict[tuple[str, int], dict[str, list[Prefixes]]] = {}
    for name in np.load(content).tolist():
        operator, subtask, state = name.split(" ", 2)
        of_subtask = parts.setdefault((operator, int(subtask)), {})
        of_subtask.setdefault(state, []).append(Prefixes(np.load(content), np.load(content)))
    return {of: {state: Prefixes.joined(some) for state, some in of_states.items()} for of, of_states in parts.items()}


def joined(of_subtasks: Mapping[int, Mapping[str, Prefixes]]) -> dict[str, Prefixes]:
    """The keys of all subtasks, by state; each subtask's are above those of the one before."""
    lists = [of_subtasks[subtask] for subtask in sorted(of_subtasks)]
    states = {state for keys in lists for state in keys}
    return {state: Prefixes.joined([keys[state] for keys in lists if state in keys]) for state in states}


def in_both_forms(keys: Prefixes, state: KeyedState, prefix: int) -> Prefixes:
    """The keys as either Kryo writes them, if it isn't known which one did.

    An upgraded job may have a key by both, or have had it, and they become one.
    """
    type_ = key_type(state)
    if type_ is None or keys.has_every_key or not any(one.five is None for one in kept_by_kryo(type_)):
        return keys
    every = {*keys.each()}
    for five in (False, True):
        other = state.with_kryo(partial(replace, for_five=five))
        # What one Kryo can't write, it hasn't written.
        with suppress(DamagedError, RefusedError):
            every.update(_for_other_kryo(keys, other, prefix).each())
    return Prefixes.of(every)


def that_can_be_rewritten(keys: Prefixes, state: KeyedState, prefix: int) -> Prefixes:
    """Those of some keys which the other Kryo can write, in both forms; what is a deletion alone nobody rewrites."""
    found: set[bytes] = set()
    for key in keys.each():
        with suppress(DamagedError, RefusedError):
            forms = in_both_forms(Prefixes.of([key]), state, prefix)
            _for_other_kryo(forms, state, prefix)
            found.update(forms.each())
    return Prefixes.of(found)


def in_result(keys: Mapping[str, Prefixes], conversion: OperatorChanges) -> dict[str, Prefixes]:
    """The keys of the source's states as the result has them; what is made of a legacy state has its keys too."""
    found = {name: _in_result(one, conversion.states[name], conversion) for name, one in keys.items()}
    for rules in conversion.rules:
        if (legacy := found.get(rules.legacy.name)) is not None:
            for name in (rules.new_name, *([rules.lazy_cut.flag.name] if rules.lazy_cut is not None else ())):
                # They differ if a subtask lacks one of both states, as its job makes a state when it first uses it.
                other = found.get(name, legacy)
                found[name] = legacy if other.same_as(legacy) else legacy.and_of(other)
    return found


def _in_result(keys: Prefixes, state: KeyedState, conversion: OperatorChanges) -> Prefixes:
    if keys.has_every_key or not len(keys):
        return keys
    known = conversion.by_kryo.get(state.name)
    if known is not None:
        try:
            keys = _for_other_kryo(keys, known, key_group_prefix_bytes(conversion.old_max))
        except (DamagedError, RefusedError) as error:
            # What the snapshot has read could be written, so this one came and went in between.
            raise RefusedError(
                f"state {state.name}: a key that has come and gone since the base can't be written anew ({error}): "
                "leave --since out, which converts everything"
            ) from None
    return _hashed_anew(keys, conversion.written(state), conversion) if conversion.changes_key_groups else keys


def _for_other_kryo(keys: Prefixes, state: KeyedState, prefix: int) -> Prefixes:
    if (type_ := key_type(state)) is None or not len(keys):
        return keys
    data = np.append(keys.keys, np.zeros(READ_BEHIND, np.uint8))
    starts, ends = keys.bounds[:-1] + prefix, keys.bounds[1:]
    # Of states whose rows count together, the list has keys without namespace and user key, which aren't by Kryo then.
    # Timers aren't among them, and begin with something else.
    may_be_bare = state.kind is not StateKind.TIMERS and not is_by_kryo(state.key)
    if may_be_bare and (skip_each(state.key, data, starts, ends) == ends).all():
        return keys
    made = keys_for_other_kryo(state, type_, data, starts, ends, prefix)
    return Prefixes.of(key.tobytes() for key in np.split(made.data[: made.ends[-1]], made.ends[:-1]))


def _hashed_anew(keys: Prefixes, state: KeyedState, conversion: OperatorChanges) -> Prefixes:
    old, new = map(key_group_prefix_bytes, (conversion.old_max, conversion.new_max))
    starts, ends = keys.bounds[:-1], keys.bounds[1:]
    firsts = starts + old + (TIMER_TIMESTAMP if state.kind is StateKind.TIMERS else 0)
    groups = assign_to_key_groups(codes_of_rows(state.key, keys.keys, firsts, ends), conversion.new_max)
    return Prefixes.of(
        group.to_bytes(new, "big") + keys.keys[start:end].tobytes()
        for group, start, end in zip(groups.tolist(), (starts + old).tolist(), ends.tolist(), strict=True)
    )
