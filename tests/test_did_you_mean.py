from __future__ import annotations

import pytest

from flinkstate.did_you_mean import nearest, there_are

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


def test_a_message_says_what_was_meant_and_what_there_is() -> None:
    assert there_are("main", ("mainState", "other")) == "Did you mean mainState? There are: mainState, other"
    assert there_are("x", ("mainState", "other")) == "There are: mainState, other"
    assert there_are("x", ()) == "There are: none"
    assert there_are("mian", ("main",), "main (bc764cd8)") == "Did you mean main? There are: main (bc764cd8)"
