"""Works out by plain code what a row must hold when what an upgrade lost of it is put back.

What Flink 2 has read follows here from the objects that Kryo 2 wrote, not from their bytes: a map without its last
entry, null for an empty map and for a TreeMap, and numbers of several bytes with the other order.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.state import StateKind
from flinkstate.serializers.types import FlinkType, Scalar
from flinkstate.values.codecs import decode_whole
from flinkstate.values.java_values import TtlValue
from flinkstate.values.kryo_class_names import ENTRY_BY_ENTRY, MAPS, SETS
from flinkstate.values.kryo_references import KryoObject
from stateferry.changes.upgrade.before_upgrade import StateBefore

_TREE = "java.util.TreeMap"
_AS_BEFORE = frozenset(f"java.lang.{name}" for name in ("String", "Integer", "Long", "Byte", "Boolean"))
_SWAPPED = {f"java.lang.{name}": layout for name, layout in (("Short", "h"), ("Float", "f"), ("Double", "d"))}
_CHARACTER = "java.lang.Character"
_LATEST = 2**63 - 1


def before_the_upgrade(state: str) -> str:
    """The name under which rows of the savepoint from before the upgrade are sampled."""
    return f"{state} before the upgrade"


def in_no_order(value: Any) -> Any:
    """A decoded value in which maps and sets are sorted, at every depth.

    Where an entry is put back in its map doesn't count, nor that Flink 2 writes what it has read in another order.
    """
    match value:
        case TtlValue(timestamp, content):
            return TtlValue(timestamp, in_no_order(content))
        case KryoObject(name, inside):
            inside = in_no_order(inside)
            is_sorted = value.form in (*MAPS, *SETS)
            return KryoObject(name, sorted(inside, key=repr) if is_sorted else inside, value.like)
        case tuple():
            return tuple(map(in_no_order, value))
        case list():
            return list(map(in_no_order, value))
        case dict():
            return {name: in_no_order(one) for name, one in value.items()}
    return value


def stored_object(kind: StateKind, type_: FlinkType, data: bytes) -> Any:
    """What a stored value means. A row has a flag for null, behind which Flink 1 writes more, which nobody reads."""
    if kind is not StateKind.MAP:
        return decode_whole(type_, data)
    if data[:1] not in (b"\0", b"\1"):
        raise DamagedError("the flag of a row, 0 or 1", data[:1].hex(), offset=0)
    return None if data[:1] == b"\1" else decode_whole(type_, data[1:])


class PlainLosses:
    """What becomes of the rows of a state; `old` are the stored values before the upgrade, by their keys."""

    def __init__(self, before: StateBefore, old: Mapping[bytes, bytes], restores: bool, restores_keys: bool) -> None:
        self._before, self._old = before, old
        self._restores, self._restores_keys = restores, restores_keys

    def is_untouched(self, key: bytes, stored: bytes) -> bool:
        """Whether a row has its value from before the upgrade, which Kryo 2 wrote."""
        return self._old.get(key) == stored

    def parts_of_list(self, key: bytes, stored: bytes) -> tuple[bytes | None, bytes]:
        """The elements from before the upgrade, if they are there with the same bytes, and those behind them."""
        old = self._old.get(key)
        if old is not None and (stored == old or stored.startswith(old + b",")):
            return old, stored[len(old) + 1 :]
        return None, stored

    def restored(self, key: bytes, stored: bytes, value: Any) -> Any:
        """What a row must hold whose stored value means this."""
        if not self._restores or key not in self._old or self.is_untouched(key, stored):
            return value
        old = self._decoded(key)
        before, now = _content(old), _content(value)
        if _text(now) == _text(before) or not _differs(before) or self._has_expired(old):
            return value
        read = _read_by_flink_2(before)
        if not _is_map(before):
            return old if _text(now) == _text(read) else value
        if now is None and read is None:
            return old
        if not _is_map(now):
            return value
        seen, pairs = _texts(read), {_text(key): (key, one) for key, one in now.value}
        for name, one in before.value:
            text = _text(name)
            is_missing = text not in seen and text not in pairs
            is_wrong = text in seen and text in pairs and _text(pairs[text][1]) == seen[text]
            if is_missing or is_wrong:
                pairs[text] = (name, one)
        return _with_content(value, replace(now, value=list(pairs.values())))

    def of_gone(self, key: bytes) -> Any:
        """What a row that is gone must hold; None if it stays gone."""
        old = self._decoded(key)
        before = _content(old)
        stays = not self._restores_keys or self._before.state.namespace is not Scalar.VOID_NAMESPACE
        if stays or not _differs(before) or self._has_expired(old):
            return None
        if not _is_map(before):
            # Flink 2 reads another number, never null: the job has seen it, and removed it.
            return None
        seen = _texts(_read_by_flink_2(before))
        lost = [(name, one) for name, one in before.value if _text(name) not in seen]
        return _with_content(old, replace(before, value=lost)) if lost else None

    def _decoded(self, key: bytes) -> Any:
        state = self._before.state
        assert state.stored_value is not None
        return stored_object(state.kind, state.stored_value, self._old[key])

    def _has_expired(self, old: Any) -> bool:
        before = self._before
        if before.ttl is None or not isinstance(old, TtlValue):
            return False
        return bool(min(old.timestamp + before.ttl, _LATEST) <= before.now)


def _content(value: Any) -> Any:
    return value.value if isinstance(value, TtlValue) else value


def _with_content(value: Any, content: Any) -> Any:
    return TtlValue(value.timestamp, content) if isinstance(value, TtlValue) else content


def _is_map(value: Any) -> bool:
    return isinstance(value, KryoObject) and value.form in MAPS


def _text(value: Any) -> str:
    return repr(in_no_order(value))


def _texts(value: Any) -> dict[str, str]:
    return {_text(key): _text(one) for key, one in value.value} if _is_map(value) else {}


def _differs(value: Any) -> bool:
    """Whether Flink 2 reads something else."""
    return value is not None and (_is_map(value) or _text(_read_by_flink_2(value)) != _text(value))


def _read_by_flink_2(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, KryoObject):
        raise RefusedError("what Flink 2 reads of a value that has parts by Kryo isn't known to plain code")
    if value.form == _TREE or (value.form in ENTRY_BY_ENTRY and not value.value):
        return None
    if value.form in ENTRY_BY_ENTRY:
        return replace(value, value=[(_number(key), _number(one)) for key, one in value.value[:-1]])
    return _number(value)


def _number(value: KryoObject | None) -> KryoObject | None:
    if value is None or value.class_name in _AS_BEFORE:
        return value
    name = value.class_name
    if name == _CHARACTER:
        unit = struct.pack("<H", ord(value.value))
        return KryoObject(name, chr(struct.unpack(">H", unit)[0]))
    if name in _SWAPPED:
        layout = _SWAPPED[name]
        return KryoObject(name, struct.unpack(f">{layout}", struct.pack(f"<{layout}", value.value))[0])
    raise RefusedError(f"what Flink 2 reads of a {name} that Kryo 2 wrote isn't known to plain code")
