"""What a MANIFEST says when its changes are carried out many at once is what it says when they are one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from flinkstate.errors import StateferryError
from flinkstate.rocksdb import manifest, usual_changes
from flinkstate.rocksdb.manifest import COMPARATOR, read_manifest
from flinkstate.rocksdb.usual_changes import UsualChanges
from tests.rocksdb.writing import log, sized, stored, varint

_FAMILIES = (0, 1, 2)


def _numbers(*values: int) -> bytes:
    return b"".join(map(varint, values))


def _added(chance: random.Random, number: int, level: int) -> bytes:
    key = number.to_bytes(4, "big")
    first, last = (key + end + (chance.randrange(1, 50) << 8 | 1).to_bytes(8, "little") for end in (b"a", b"b"))
    tags = _numbers(5) + sized(_numbers(1_700_000_000)) + _numbers(13) + sized(_numbers(number))
    return _numbers(103, level, number, 100) + sized(first) + sized(last) + _numbers(1, 50) + tags + _numbers(1)


def changes(chance: random.Random, count: int, *, rare: bool = True) -> Iterator[bytes]:
    """Flushes, compactions, files that move to another level, and now and then what is rare."""
    yield _numbers(1) + sized(COMPARATOR.encode())
    for family in _FAMILIES[1:]:
        yield _numbers(200, family, 201) + sized(b"state %d" % family)
    live: dict[int, dict[int, int]] = {family: {} for family in _FAMILIES}
    number = 10
    for _ in range(count):
        family = chance.choice(_FAMILIES)
        files = live[family]
        kind, parts = chance.randrange(10), [_numbers(200, family)] if family else []
        if kind < 5 or len(files) < 2:
            number += 1
            files[number] = 0
            parts += [_added(chance, number, 0), _numbers(2, 0, 9, 0, 3, number + 1, 4, 50)]
        elif kind < 8:
            gone = chance.sample(sorted(files), min(len(files), chance.randrange(1, 5)))
            parts += [_numbers(6, files.pop(one), one) for one in gone]
            number += 1
            files[number] = 1
            parts.append(_added(chance, number, 1))
        elif kind < 9 or not rare:
            moved = chance.choice(sorted(files))
            parts += [_numbers(6, files[moved], moved), _added(chance, moved, files[moved] + 1)]
            files[moved] += 1
        else:
            # What may be skipped by its length.
            parts.append(_numbers(1 << 13 | 5) + sized(b"unknown"))
        chance.shuffle(parts)
        yield b"".join(parts)
    yield _numbers(2, 0, 3, number + 1, 4, 1 << 40)


def _said(content: bytes) -> object:
    manifest._read.clear()
    (file,) = stored({"MANIFEST-000004": content}).values()
    try:
        families = read_manifest(file)
    except StateferryError as error:
        return str(error)
    return [(name, family.id, list(family.files.items())) for name, family in families.items()]


def _one_by_one(content: bytes, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as context:
        context.setattr(UsualChanges, "carry_out", lambda *_: False)
        return _said(content)


@pytest.mark.parametrize("at_once", [1 << 16, 7])
def test_many_at_once_are_what_they_are_one_by_one(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(usual_changes, "_MOST", at_once)
    for seed in range(8):
        content = log(changes(random.Random(seed), 60))
        expected = _one_by_one(content, monkeypatch)
        assert isinstance(expected, list), expected
        assert _said(content) == expected


def test_what_cannot_be_is_found_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that is left out, there twice, moved or cut: RocksDB would find another database, or none."""
    refused = 0
    for seed in range(100):
        chance = random.Random(seed)
        records = list(changes(chance, 20))
        place = chance.randrange(3, len(records) - 1)
        way = seed % 4
        if way == 0:
            del records[place]
        elif way == 1:
            records.insert(place, records[place])
        elif way == 2:
            records[place], records[place - 1] = records[place - 1], records[place]
        else:
            records[place] = records[place][: chance.randrange(len(records[place]))]
        content = log(records)
        expected = _one_by_one(content, monkeypatch)
        assert _said(content) == expected
        refused += isinstance(expected, str)
    assert refused > 40


def test_only_what_is_rare_is_read_change_by_change(monkeypatch: pytest.MonkeyPatch) -> None:
    content = log(changes(random.Random(1), 60, rare=False))
    applied: list[manifest._Edit] = []
    apply = manifest._Edit.apply

    def noted(edit: manifest._Edit) -> None:
        applied.append(edit)
        apply(edit)

    monkeypatch.setattr(manifest._Edit, "apply", noted)
    assert isinstance(_said(content), list)
    # The comparator, and the column families.
    assert len(applied) == len(_FAMILIES)
