"""Snapshots of Flink that can't be read are refused by the name of what wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkstate.errors import RefusedError
from flinkstate.reading.reader import Savepoint

REFUSED = Path(__file__).parent / "refused"
CASES = {
    "changelog-checkpoint-2.3": r"operator main has a changelog handle \(type 14\).*state\.changelog\.enabled.*"
    "--type canonical",
    "forst-asynchronous-checkpoint-2.3": r"state window-contents is asynchronous \(V2\) state, as the "
    "ForSt backend writes it.*Flink takes no canonical savepoint of it",
    "hashmap-checkpoint-2.3": r"this file has the HashMap backend's own layout.*--type canonical",
}


def test_each_snapshot_has_a_case() -> None:
    assert {folder.name for folder in REFUSED.iterdir()} == CASES.keys()


@pytest.mark.parametrize("case", CASES)
def test_they_are_refused_by_name(case: str) -> None:
    with pytest.raises(RefusedError, match=CASES[case]):
        read(REFUSED / case)


def read(folder: Path) -> None:
    savepoint = Savepoint.open(str(folder))
    for operator in savepoint.keyed_operators():
        savepoint.keyed_states(operator)
