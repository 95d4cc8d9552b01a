"""Rows become blobs again: each key has one, with all its entries and the newest timestamp of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flinkstate.errors import RefusedError
from flinkstate.reading import group_sections
from flinkstate.reading.entries import read_entries
from flinkstate.reading.reader import Savepoint, operator_id
from flinkstate.serializers.types import MapType, Scalar
from flinkstate.writing import operator_rewrite
from flinkstate.writing.operator_rewrite import Layout
from stateferry.changes.counts import ConversionCounts
from stateferry.changes.rows_to_blobs import RowsToBlobs, legacy_state
from stateferry.changes.rules import RulesBack
from stateferry.proof.checks import validate
from stateferry.proof.expected.check_result import Check, Outcome
from tests.support.changes import conversion_of
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState
from tests.support.naive import map_entries
from tests.support.rewriting import rewrite
from tests.support.saboteur import Row, Saboteur
from tests.validation.test_checks import GOLDEN, LAYOUTS, LEGACY_CASES, assert_green, failed, migrated

DAY = 86_400_000


def rules_back(source: Savepoint, uid: str, **settings: Any) -> RulesBack:
    states = {state.name: state for state in source.keyed_states(source.operator(uid))}
    legacy = legacy_state(LEGACY, states[NEW])
    ttl = 30 * DAY if legacy.ttl else None
    return replace(RulesBack(legacy, NEW, FLAG, ttl, 0), **settings)


def reversed_(
    source: Path, target: Path, uid: str, layout: Layout, **settings: Any
) -> tuple[ConversionCounts, list[Check]]:
    savepoint = Savepoint.open(str(source))
    operator = savepoint.operator(uid)
    rules = rules_back(savepoint, uid, **settings)
    staged = rewrite(savepoint, str(target), layout, transforms={operator.id: RowsToBlobs([rules])})
    conversion = conversion_of(savepoint, layout, {operator.id: (rules,)})
    return staged.counts[LEGACY], validate(savepoint, Savepoint.open(str(target)), conversion)


def entries_of(savepoint: Path, uid: str, name: str) -> list[Any]:
    opened = Savepoint.open(str(savepoint))
    operator = opened.operator(uid)
    (state,) = [state for state in opened.keyed_states(operator) if state.name == name]
    return list(read_entries(opened, operator, state))


def blobs_expected(rows: list[Any]) -> dict[str, tuple[dict[str, Any], Any]]:
    """The blobs that rows make, the plain way; keys and values as their texts."""
    found: dict[str, tuple[dict[str, Any], Any]] = {}
    for row in rows:
        content, newest = found.get(repr((row.key, row.namespace)), ({}, None))
        content[repr(row.user_key)] = repr(row.value)
        stamps = [stamp for stamp in (newest, row.timestamp) if stamp is not None]
        found[repr((row.key, row.namespace))] = content, max(stamps, default=None)
    return found


def blobs_found(blobs: list[Any]) -> dict[str, tuple[dict[str, Any], Any]]:
    found = {}
    for blob in blobs:
        pairs = blob.value.items() if isinstance(blob.value, Mapping) else blob.value
        content = {repr(user_key): repr(value) for user_key, value in pairs}
        assert len(content) == len(list(pairs))
        assert repr((blob.key, blob.namespace)) not in found
        found[repr((blob.key, blob.namespace))] = content, blob.timestamp
    return found


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", LEGACY_CASES)
def test_what_was_migrated_goes_back(case: str, layout: str, tmp_path: Path) -> None:
    forth = migrated(GOLDEN / case, tmp_path / "rows", "main", Layout())
    if (case, layout[:3]) == ("legacy-pojo-list-ttl-2.3-hashmap", "max"):
        with pytest.raises(RefusedError, match="can't be hashed for another max parallelism"):
            reversed_(forth.folder, tmp_path / "blobs", "main", LAYOUTS[layout])
        return
    counts, checks = reversed_(forth.folder, tmp_path / "blobs", "main", LAYOUTS[layout])
    rows = entries_of(tmp_path / "rows", "main", NEW)
    assert rows
    assert blobs_found(entries_of(tmp_path / "blobs", "main", LEGACY)) == blobs_expected(rows)
    assert_green(checks)
    assert counts.entries_written == len(rows)
    operator = Savepoint.open(str(tmp_path / "blobs")).operator("main")
    names = {state.name for state in Savepoint.open(str(tmp_path / "blobs")).keyed_states(operator)}
    assert LEGACY in names
    assert not names & {NEW, FLAG}


def rows_apart() -> LegacyState:
    """Many keys whose rows follow each other, and in each key group some whose rows lie apart."""
    rows = {f"key-{number}": {f"u{n}": (n, 1000 * number + n) for n in range(number % 9 + 1)} for number in range(400)}
    rows["long"] = {f"u{n:04}": (n, n) for n in range(3000)}
    return LegacyState(rows=rows, ttl=True, max_parallelism=3)


class Apart(LegacyState):
    """Writes the rows of each third key apart from each other."""

    def _entries(self) -> dict[int, dict[int, list[bytes]]]:
        found = super()._entries()
        for states in found.values():
            for rows in states.values():
                last = [row for number, row in enumerate(rows) if number % 7 == 3]
                first = [row for number, row in enumerate(rows) if number % 7 != 3]
                rows[:] = first + last
        return found


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("window", [1 << 23, 300, 5000])
@pytest.mark.parametrize("apart", [False, True])
def test_rows_of_a_key_may_lie_in_several_sections(
    apart: bool, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = rows_apart()
    if apart:
        state = Apart(rows=state.rows, ttl=True, max_parallelism=3)
    state.write(str(tmp_path / "rows"))
    monkeypatch.setattr(operator_rewrite, "WINDOW", window)
    monkeypatch.setattr(group_sections, "MOST_HELD", 0)
    counts, checks = reversed_(tmp_path / "rows", tmp_path / "blobs", "main", Layout())
    rows = entries_of(tmp_path / "rows", "main", NEW)
    assert blobs_found(entries_of(tmp_path / "blobs", "main", LEGACY)) == blobs_expected(rows)
    assert_green(checks)
    assert (counts.blobs_written, counts.entries_written) == (401, len(rows))


def test_what_lives_longer_is_counted(tmp_path: Path) -> None:
    rows = {"a": {"old": (1, 5 * DAY), "new": (2, 9 * DAY)}, "b": {"only": (3, 6 * DAY)}, "gone": {"x": (1, -40 * DAY)}}
    rows["c"] = {"expired": (1, -30 * DAY), "alive": (2, 0)}
    LegacyState(rows=rows, ttl=True).write(str(tmp_path / "rows"))
    counts, checks = reversed_(tmp_path / "rows", tmp_path / "blobs", "main", Layout())
    assert_green(checks)
    assert (counts.entries_that_live_longer, counts.milliseconds_longer) == (1, 4 * DAY)
    assert (counts.rows_expired, counts.blobs_written, counts.entries_written) == (2, 3, 4)
    found = entries_of(tmp_path / "blobs", "main", LEGACY)
    assert {blob.key: (dict(blob.value), blob.timestamp) for blob in found} == {
        "a": ({"old": 1, "new": 2}, 9 * DAY),
        "b": ({"only": 3}, 6 * DAY),
        "c": ({"alive": 2}, 0),
    }


def test_nulls_stay(tmp_path: Path) -> None:
    for ttl in (False, True):
        state = LegacyState(rows={"a": {"x": (None, 1), "y": ("text", 1)}}, ttl=ttl, value=Scalar.STRING)
        state.write(str(tmp_path / f"rows-{ttl}"))
        _, checks = reversed_(tmp_path / f"rows-{ttl}", tmp_path / f"blobs-{ttl}", "main", Layout())
        assert_green(checks)
        (blob,) = blobs_found(entries_of(tmp_path / f"blobs-{ttl}", "main", LEGACY)).values()
        assert blob[0] == {"'x'": "None", "'y'": "'text'"}


# What the validation sees.


def parts(entries: list[tuple[bytes, bytes | None]]) -> bytes:
    return len(entries).to_bytes(4, "big") + b"".join(key + b"\0" + (value or b"") for key, value in entries)


def halved(rows: list[Row], place: int) -> None:
    """Two blobs of one key, which together have its entries."""
    row = rows[place]
    entries = map_entries(MapType(Scalar.STRING, Scalar.LONG), row.value)
    rows[place : place + 1] = [replace(row, value=parts(half)) for half in (entries[:1], entries[1:])]


def shortened(rows: list[Row], place: int) -> None:
    entries = map_entries(MapType(Scalar.STRING, Scalar.LONG), rows[place].value)
    rows[place] = replace(rows[place], value=parts(entries[1:]))


def emptied(rows: list[Row], place: int) -> None:
    """A blob of a key without rows: an empty map, which has no entry."""
    rows.append(replace(rows[place], key=rows[place].key[:2] + b"?" + rows[place].key[3:], value=parts([])))


def removed(rows: list[Row], place: int) -> None:
    del rows[place]


ALTERATIONS = {
    "halved": (halved, {"one blob for each key"}),
    "shortened": (shortened, {"entries", "content", "one blob for each key"}),
    "emptied": (emptied, {"one blob for each key"}),
    "removed": (removed, {"entries", "content", "one blob for each key"}),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_the_validation_sees_what_is_wrong(name: str, tmp_path: Path) -> None:
    alter, wanted = ALTERATIONS[name]
    state = LegacyState(rows={f"key-{number}": {"x": (number, 0), "y": (-number, 0)} for number in range(30)})
    source = state.write(str(tmp_path / "rows"))
    _, checks = reversed_(tmp_path / "rows", tmp_path / "blobs", "main", Layout())
    assert_green(checks)
    saboteur = Saboteur(tmp_path / "blobs", tmp_path / "altered")
    saboteur.change_rows("main", lambda groups: alter(max(groups.values(), key=len), 0))
    conversion = conversion_of(source, Layout(), {operator_id("main"): (rules_back(source, "main"),)})
    found = validate(source, Savepoint.open(str(tmp_path / "altered")), conversion)
    red = {check.name.removeprefix(f"main/{LEGACY}: ") for check in found if check.outcome is Outcome.FAILED}
    assert red >= wanted


def test_the_validation_sees_an_entry_whose_time_is_not_the_newest(tmp_path: Path) -> None:
    source = LegacyState(rows={"a": {"x": (1, 10), "y": (2, 20)}}, ttl=True).write(str(tmp_path / "rows"))
    reversed_(tmp_path / "rows", tmp_path / "blobs", "main", Layout())
    saboteur = Saboteur(tmp_path / "blobs", tmp_path / "altered")

    def older(groups: dict[int, list[Row]]) -> None:
        (rows,) = (rows for rows in groups.values() if rows)
        assert rows[0].value[:8] == (20).to_bytes(8, "big")
        rows[0] = replace(rows[0], value=(10).to_bytes(8, "big") + rows[0].value[8:])

    saboteur.change_rows("main", older)
    conversion = conversion_of(source, Layout(), {operator_id("main"): (rules_back(source, "main"),)})
    found = failed(validate(source, Savepoint.open(str(tmp_path / "altered")), conversion))
    assert f"main/{LEGACY}: content" in found
    assert "10" in " ".join(found[f"main/{LEGACY}: content"].samples)
