"""How an operator's key groups are compressed, as its files show it, and what a new savepoint makes of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkstate.keyed.compression import Compression
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.demo import DemoState, write_demo_savepoint
from tests.support.rewriting import rewrite

AUTO, SNAPPY, STORED, NONE, SOURCE = Compression
FOUND = [NONE, STORED, SNAPPY]
WRITTEN = {
    AUTO: {NONE: STORED, STORED: STORED, SNAPPY: SNAPPY},
    SOURCE: {NONE: NONE, STORED: STORED, SNAPPY: SNAPPY},
    **{one: dict.fromkeys(FOUND, one) for one in FOUND},
}


def written_as(folder: Path, compression: Compression) -> Path:
    write_demo_savepoint(str(folder / "demo"), DemoState(2000, 10, 0.5, None, 10**12, 3, 128, 7))
    rewrite(Savepoint.open(str(folder / "demo")), str(folder / compression), Layout(compression=compression))
    return folder / compression


def found_in(folder: Path) -> Compression:
    opened = Savepoint.open(str(folder))
    (operator,) = opened.keyed_operators()
    found = opened.compression(operator)
    assert {file.compression for file in opened.open_files(operator)} == {found}
    return found


@pytest.mark.matrix(most=2)
@pytest.mark.parametrize("max_parallelism", [None, 300], ids=["same", "max-300"])
@pytest.mark.parametrize("source", FOUND)
def test_a_result_has_what_the_options_say(source: Compression, max_parallelism: int | None, tmp_path: Path) -> None:
    folder = written_as(tmp_path, source)
    assert found_in(folder) is source
    for asked, results in WRITTEN.items():
        # Twice, as from one night's result to the next one's.
        for place, origin in ((f"{asked}-once", folder), (f"{asked}-twice", tmp_path / f"{asked}-once")):
            rewrite(Savepoint.open(str(origin)), str(tmp_path / place), Layout({}, max_parallelism, asked))
            assert found_in(tmp_path / place) is results[source]
