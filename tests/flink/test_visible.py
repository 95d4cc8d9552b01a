"""Real Flink starts from databases that hide rows, or show others: where it finds something else, we say so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.errors import DamagedError
from flinkstate.metadata.metadata import NamedFile, Operator, RelativeFile, Subtask
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from tests.flink.harness import FlinkError, FlinkHarness
from tests.flink.make_golden import CASES
from tests.rocksdb.goldens import contents, rows
from tests.rocksdb.visibility import WAYS, Way, files_of
from tests.support.rewriting import rewrite
from tests.support.saboteur import Saboteur
from tests.validation.test_checks import GOLDEN

pytestmark = pytest.mark.flink
SOURCES = {"2.3.0": "legacy-2.3-rocksdb", "1.20.0": "legacy-1.20-hashmap"}
# What a job finds, by key and by iterator, and in how many rows the two differ.
Found = tuple[Counter[str], int]


def stored(golden: str, way: Way, folder: Path) -> Path:
    """The golden savepoint with RocksDB's own files, which are stored in the way."""
    source = Savepoint.open(str(GOLDEN / golden))
    ids = frozenset(operator.id for operator in source.keyed_operators())
    rewrite(source, str(folder / "as it is"), Layout(native=ids))
    as_it_is = Savepoint.open(str(folder / "as it is"))
    saboteur = Saboteur(folder / "as it is", folder / "stored")
    (operator,) = as_it_is.keyed_operators()
    names = [state.name for state in next(iter(as_it_is.headers(operator)))[2].states]
    found = list(rows(as_it_is))

    def of_subtask(subtask: Subtask) -> Subtask:
        handle = subtask.native_keyed
        assert handle is not None
        families = {
            name: {key: value for group, state, key, value in found if state == name and group in handle.range}
            for name in names
        }
        named = []
        for name, data in files_of(families, way).items():
            path = f"{subtask.index}-{name}"
            (saboteur.folder / path).write_bytes(data)
            named.append(NamedFile(name, RelativeFile(path, len(data))))
        return replace(subtask, native_keyed=replace(handle, private=tuple(named)))

    def changed(operator: Operator) -> Operator:
        return replace(operator, subtasks=tuple(map(of_subtask, operator.subtasks)))

    saboteur.change_operator(operator, changed)
    return saboteur.folder


def restored(flink: FlinkHarness, savepoint: Path, golden: str) -> Found | str:
    """What a job finds that starts from the savepoint; why it doesn't start, if it doesn't."""
    try:
        found = flink.restore(savepoint, replace(CASES[golden].job, backend="rocksdb"))
    except FlinkError as error:
        return f"{error}"
    return Counter(json.dumps(line, sort_keys=True) for line in found.lines), len(found.problems)


@pytest.fixture(scope="module")
def whole(
    flink: Callable[[str], FlinkHarness], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Found | str]:
    known: dict[str, Found | str] = {}

    def of(version: str) -> Found | str:
        if version not in known:
            golden = SOURCES[version]
            as_it_is = stored(golden, WAYS["one file of level 6"], tmp_path_factory.mktemp("whole"))
            known[version] = restored(flink(version), as_it_is, golden)
        return known[version]

    return of


@pytest.mark.matrix(most=4)
@pytest.mark.parametrize("version", SOURCES)
@pytest.mark.parametrize("way", WAYS)
def test_what_a_job_would_not_find_is_not_read(
    way: str, version: str, flink: Callable[[str], FlinkHarness], whole: Callable[[str], Found | str], tmp_path: Path
) -> None:
    golden = SOURCES[version]
    expected = whole(version)
    assert not isinstance(expected, str)
    assert expected[0].total() > 100
    assert expected[1] == 0
    savepoint = stored(golden, WAYS[way], tmp_path)
    found = restored(flink(version), savepoint, golden)
    told = found if isinstance(found, str) else f"{found[0].total()} of {expected[0].total()}, {found[1]} problems"
    assert (found == expected) == (version in WAYS[way].found_by), told
    if (red := WAYS[way].red) is None:
        assert contents(Savepoint.open(str(savepoint))) == contents(Savepoint.open(str(GOLDEN / golden)))
    else:
        with pytest.raises(DamagedError, match=red):
            contents(Savepoint.open(str(savepoint)))
