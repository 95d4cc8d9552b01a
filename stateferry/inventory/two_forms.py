"""Refuses keys of a job that has begun to move its maps, if equal ones have other bytes in the maps than elsewhere.

Flink writes the BigIntegers 0, 1 and 10 in a short form if they are Java's constants, and else in a long one; so it is
with BigDecimals made of them. Each state of the HashMap backend has the object with which its own entry was made. So
the map, the rows and the flag of one key may be under two forms. A run finds what belongs together by the bytes: it
would miss that the flag or a row goes before the map, and what is old or removed would be back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from flinkstate.errors import RefusedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.native_file import NativeFile
from flinkstate.reading.group_sections import GroupSections
from flinkstate.serializers.type_parts import has_large_numbers, with_parts
from flinkstate.serializers.types import FlinkType, Scalar
from flinkstate.serializers.walker import split_keys
from flinkstate.values.codecs import decode, encode
from flinkstate.values.value_json import json_text
from stateferry.changes.rules import Rules
from stateferry.changes.sections import parse_blobs, parse_rows

# What the bytes of such a number begin with. Other bytes may look like it, and are decoded for nothing.
_MAY_BE = re.compile(rb"\0\0\0(?:[\x01\x02\x03]|\x05[\x00\x01\x0a])")
# A BigDecimal has its scale behind that, which looks like a number itself, as of all prices.
_MAY_BE_DECIMAL = re.compile(_MAY_BE.pattern + rb"(?=.{4})", re.DOTALL)
_MOST_TEXT = 200
# What stands before a part that may have two forms, this part, and what stands behind it.
_Part = tuple[bytes, bytes, bytes]


def refuse_two_forms(group: GroupSections, rules: Rules, operator: str) -> None:
    """Refuses a key, or a user key of one key, that has other bytes in the maps than in rows or flags.

    Keys of RocksDB's own files are what their bytes are. But a map in them was a map of Java's.
    """
    here = rules.names & {state.name for state in group.states}
    if not rules.takes_blobs or rules.legacy.name not in here or len(here) < 2:
        return
    of_keys = has_large_numbers(rules.legacy.key) and not isinstance(group.file, NativeFile)
    of_user_keys = has_large_numbers(rules.map_type.key) and rules.new_name in here
    if not of_keys and not of_user_keys:
        return
    group.keep()
    keys, user_keys = _Forms(rules.legacy.key), _Forms(rules.map_type.key)
    for state, section in group:
        if of_keys and state.name in here:
            keys.meet(state.name, _keys(section, rules))
        if of_user_keys and state.name == rules.legacy.name:
            user_keys.meet(state.name, _user_keys_of_blobs(section, rules))
        elif of_user_keys and state.name == rules.new_name:
            user_keys.meet(state.name, _user_keys_of_rows(section, rules))
    named = f"state {rules.legacy.name} of operator {operator}"
    for _, key, other in keys.differing(rules.legacy.name):
        raise RefusedError(
            f"{named}: key {_text(rules.legacy.key, key)} has {_of_another_form(other)}. If it runs on RocksDB, its "
            "keys are what their bytes are: then take a native savepoint"
        )
    for head, user_key, other in user_keys.differing(rules.legacy.name):
        shown = f"key {_text(rules.legacy.key, head)}, user key {_text(rules.map_type.key, user_key)}"
        raise RefusedError(f"{named}: {shown} has {_of_another_form(other)}")


def _of_another_form(other: str) -> str:
    return (
        f"other bytes there than in {other}: Flink writes a BigInteger or BigDecimal of 0, 1 or 10 in two ways, and a "
        "run can't tell whether they are one key of the job. Migrate a savepoint from before the job began to move "
        "its maps, or let it move the rest itself"
    )


class _Forms:
    """The bytes that each key of a type has in each state, as far as an equal one may have others."""

    def __init__(self, type_: FlinkType) -> None:
        self._type = type_
        self._may_be = _MAY_BE if Scalar.BIG_INTEGER in with_parts(type_) else _MAY_BE_DECIMAL
        self._found: dict[_Part, dict[str, set[bytes]]] = {}

    def meet(self, state: str, parts: Iterator[_Part]) -> None:
        for before, part, behind in parts:
            if self._may_be.search(part) is not None:
                # Written anew, equal keys have equal bytes.
                same = encode(self._type, decode(self._type, part)[0])
                self._found.setdefault((before, same, behind), {}).setdefault(state, set()).add(part)

    def differing(self, legacy: str) -> Iterator[tuple[bytes, bytes, str]]:
        """Yields what is before a key, the key, and the state in which it has other bytes than in the legacy state."""
        for (before, same, _), states in self._found.items():
            if (old := states.get(legacy)) is not None:
                yield from ((before, same, other) for other, found in states.items() if found != old)


def _keys(section: Section, rules: Rules) -> Iterator[_Part]:
    data, legacy, starts = section.data, rules.legacy, section.key_starts + section.file.prefix
    with section.locating():
        split = split_keys(legacy.key, legacy.namespace, legacy.has_suffixes, data, starts, section.key_ends)
    places = (starts, split.key_ends, split.namespace_starts, split.namespace_ends)
    for start, end, namespace, behind in zip(*(one.tolist() for one in places), strict=True):
        yield b"", data[start:end].tobytes(), data[namespace:behind].tobytes()


def _user_keys_of_blobs(section: Section, rules: Rules) -> Iterator[_Part]:
    blobs = parse_blobs(section, rules)
    keys = [
        section.data[start:end].tobytes()
        for start, end in zip(blobs.key_starts.tolist(), blobs.key_ends.tolist(), strict=True)
    ]
    of = np.repeat(np.arange(len(keys)), blobs.counts)
    for key, start, end in zip(of.tolist(), blobs.entries.tolist(), blobs.flags.tolist(), strict=True):
        yield keys[key], blobs.data[start:end].tobytes(), b""


def _user_keys_of_rows(section: Section, rules: Rules) -> Iterator[_Part]:
    rows, data = parse_rows(section, rules), section.data
    places = (rows.key_starts, rows.key_ends, section.key_ends)
    for start, end, behind in zip(*(one.tolist() for one in places), strict=True):
        yield data[start:end].tobytes(), data[end:behind].tobytes(), b""


def _text(type_: FlinkType, data: bytes) -> str:
    return json_text(type_)(decode(type_, data)[0])[:_MOST_TEXT]
