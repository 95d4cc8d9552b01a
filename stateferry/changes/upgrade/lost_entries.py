"""What an upgrade to Flink 2 lost of one value: by what Kryo 2 wrote, what Flink 2 read of it, and what is there now.

A map loses single entries, any other value is lost as a whole. The job itself may have removed or overwritten an entry
since; that is no loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from flinkstate.errors import RefusedError
from flinkstate.serializers.types import simple_name
from flinkstate.values.kryo_class_names import MAPS, SETS
from flinkstate.values.kryo_map_places import MapPlaces
from flinkstate.values.kryo_references import KryoObject


class Fate(Enum):
    """What became of an entry that the upgrade lost, or that the job removed later.

    `LOST`: it is missing, or has still the value that Flink 2 read. `OVERWRITTEN`: it has a newer value. `REMOVED`:
    Flink 2 read it, and the job removed it. `GONE`: its row is gone. `EXPIRED`: its time to live has passed by now.
    """

    LOST = "lost"
    OVERWRITTEN = "overwritten since"
    REMOVED = "removed later"
    GONE = "gone"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Loss:
    """One entry of a map, by its key, or a value as a whole; `old` is its value before the upgrade.

    `is_there` says that it has a value now, a wrong or a newer one; null in the place of an empty map is a wrong one.
    """

    fate: Fate
    old: KryoObject | None
    is_entry: bool = False
    key: KryoObject | None = None
    is_there: bool = False

    def of(self, fate: Fate) -> Loss:
        return replace(self, fate=fate)


# They take keys of different classes, and nulls.
_ANY_ENTRIES = ("java.util.HashMap", "java.util.LinkedHashMap")
_IN_NO_ORDER = frozenset((*MAPS, *SETS))


def is_map(value: KryoObject | None) -> bool:
    """Whether a value is a map, whose entries are lost one by one."""
    return value is not None and value.form in MAPS


def losses(old: KryoObject | None, read: KryoObject | None, now: KryoObject | None) -> Iterator[Loss]:
    """Yields what the upgrade lost of a value; `read` is what Flink 2 read of it, `now` what is there."""
    if not _by_entries(old, read):
        if not _same(old, read) and not _same(now, old):
            yield Loss(Fate.LOST if _same(now, read) else Fate.OVERWRITTEN, old, is_there=now is not None)
        return
    assert old is not None
    if not old.value and read is None and now is None:
        yield Loss(Fate.LOST, old, is_there=True)
    was_read, is_there = _entries(read), _entries(now)
    # Null, or something else than a map, in its place is newer, unless Flink 2 has read null.
    has_map = is_map(now) or _same(now, read)
    for key, value in old.value:
        name = text_of(key)
        seen, present = was_read.get(name), is_there.get(name)
        if not has_map:
            if seen != text_of(value):
                yield Loss(Fate.OVERWRITTEN, value, True, key)
        elif present is None:
            yield Loss(Fate.LOST if seen is None else Fate.REMOVED, value, True, key)
        elif seen != text_of(value) and present != text_of(value):
            yield Loss(Fate.LOST if present == seen else Fate.OVERWRITTEN, value, True, key, is_there=True)


def losses_of_gone(old: KryoObject | None, read: KryoObject | None) -> Iterator[Loss]:
    """Yields what the upgrade lost of a value whose row is gone, and which entries the job has seen before that."""
    if not _by_entries(old, read):
        if not _same(old, read):
            yield Loss(Fate.GONE if read is None else Fate.REMOVED, old)
        return
    assert old is not None
    was_read = _entries(read)
    for key, value in old.value:
        yield Loss(Fate.REMOVED if text_of(key) in was_read else Fate.GONE, value, True, key)


def agrees(old: KryoObject | None, read: KryoObject | None, now: KryoObject | None) -> bool:
    """Whether a value, or an entry of a map, is as it was, or the value is just what Flink 2 has read."""
    return _same(old, now) or _same(read, now) or not _entries(old).items().isdisjoint(_entries(now).items())


def is_unread(old: KryoObject | None, read: KryoObject | None, now: KryoObject | None) -> bool:
    """Whether a value has what Flink 2 has not read of it: an entry, or the value as a whole, as it was."""
    if not _by_entries(old, read):
        return not _same(old, read) and _same(old, now)
    return not (_entries(old).items() - _entries(read).items()).isdisjoint(_entries(now).items())


def put_back(old: MapPlaces | None, now: MapPlaces | None, lost: list[Loss]) -> bytes:
    """Returns the map that is there now with what was lost; both maps are as Kryo 5 wrote them.

    Raises an error if the class of the map can't have these entries.
    """
    if old is None or now is None:
        raise RefusedError("it is, or was, a map of a fixed size, such as Collections.emptyMap()")
    if now.found.class_name not in (old.found.class_name, *_ANY_ENTRIES):
        old_class, new_class = (simple_name(one.found.class_name) for one in (old, now))
        raise RefusedError(f"entries of a {old_class} can't be put into a {new_class}")
    before, is_there = _entries(old.found), _entries(now.found)
    wanted = {text_of(one.key): one for one in lost}
    if all(value == before.get(key) or key in wanted for key, value in is_there.items()) and (
        before.keys() == is_there.keys() | wanted.keys() and old.found.class_name == now.found.class_name
    ):
        return old.data
    places = {text_of(key): index for index, (key, _) in enumerate(old.found.value)}
    places_now = {text_of(key): index for index, (key, _) in enumerate(now.found.value)}
    replaced: dict[int, bytes] = {}
    added: list[bytes] = []
    for key in wanted:
        if key in places_now:
            now.value(places_now[key])
            replaced[places_now[key]] = old.value(places[key])
        else:
            added.append(old.entry(places[key]))
    return now.with_entries(replaced, added)


def put_back_gone(old: MapPlaces, lost: list[Loss]) -> bytes:
    """Returns a map that has of the old one only what was lost."""
    if len(lost) == len(old.found.value):
        return old.data
    places = {text_of(key): index for index, (key, _) in enumerate(old.found.value)}
    return old.with_these([old.entry(places[text_of(one.key)]) for one in lost])


def _by_entries(old: KryoObject | None, read: KryoObject | None) -> bool:
    """Whether entries are lost one by one. Raises an error if Flink 2 has read entries that nobody wrote."""
    if not is_map(old) or not (read is None or is_map(read)):
        return False
    if _entries(read).keys() - _entries(old).keys():
        raise RefusedError("Flink 2 reads entries of it that nobody has written")
    return True


def _entries(value: KryoObject | None) -> dict[str, str]:
    """The texts of a map's values by those of its keys."""
    if not is_map(value):
        return {}
    assert value is not None
    return {text_of(key): text_of(one) for key, one in value.value}


def _same(one: KryoObject | None, other: KryoObject | None) -> bool:
    return text_of(one) == text_of(other)


def text_of(value: Any) -> str:
    """A text that equal objects have in common, also equal NaNs.

    The order in maps and sets doesn't count: Flink 2 reads a HashMap into one of another size, and so writes what it
    has read in another order.
    """
    match value:
        case KryoObject(name, inside):
            return f"{name}{_texts(inside, is_sorted=value.form in _IN_NO_ORDER)}"
        case list() | tuple():
            return _texts(value)
        case dict():
            return _texts(tuple(value.items()))
    return repr(value)


def _texts(value: Any, *, is_sorted: bool = False) -> str:
    if not isinstance(value, (list, tuple)):
        return f"({text_of(value)})"
    texts = [text_of(one) for one in value]
    return f"({', '.join(sorted(texts) if is_sorted else texts)})"
