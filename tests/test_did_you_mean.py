from __future__ import annotations

from pathlib import Path

import pytest

from flinkstate.basics.did_you_mean import nearest, there_are
from flinkstate.errors import UsageError
from flinkstate.reading.reader import Savepoint

STATES = ("mainState", "newMainState", "isMigratedState")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("mainstate", "mainState"),
        ("MAIN_STATE", "mainState"),
        ("newMainStat", "newMainState"),
        ("isMigrated", "isMigratedState"),
        ("orders", None),
        ("", None),
    ],
)
def test_the_name_that_was_meant_is_found(name: str, meant: str | None) -> None:
    assert nearest(name, STATES) == meant


def test_operators_are_listed_with_their_names() -> None:
    source = Savepoint.open(str(Path(__file__).parent / "savepoints" / "legacy-2.3-rocksdb"))
    main = source.operator("main")
    with pytest.raises(UsageError, match=rf"Did you mean main\? .*{main.hex_id} \(uid 'main', name 'main'\)"):
        source.operator("mian")


def test_a_message_says_what_was_meant_and_what_there_is() -> None:
    assert there_are("main", ("mainState", "other")) == "Did you mean mainState? There are: mainState, other"
    assert there_are("x", ("mainState", "other")) == "There are: mainState, other"
    assert there_are("x", ()) == "There are: none"
    assert there_are("mian", ("main",), "main (bc764cd8)") == "Did you mean main? There are: main (bc764cd8)"
