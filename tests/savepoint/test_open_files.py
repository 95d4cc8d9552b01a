"""A savepoint of many subtasks in another layout: a process may have far fewer files open than there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.demo import DemoState, write_demo_savepoint
from tests.flink.judge import raw_entries
from tests.savepoint.test_operator_file import held
from tests.support.rewriting import rewrite

GOLDEN = Path(__file__).parents[1] / "savepoints"
SUBTASKS = 120
# In a process of its own, as a limit can't be raised again by everyone.
LIMITED = """
import resource, sys
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from tests.support.rewriting import rewrite

source, target, parallelism, max_parallelism = sys.argv[1:]
savepoint = Savepoint.open(source)
resource.setrlimit(resource.RLIMIT_NOFILE, (80, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
parallelisms = {one.id: int(parallelism) for one in savepoint.metadata.operators}
rewrite(savepoint, target, Layout(parallelisms, int(max_parallelism)))
"""


def rewritten_with_few_files(source: Path, target: Path, parallelism: int, max_parallelism: int) -> Savepoint:
    arguments = [str(source), str(target), str(parallelism), str(max_parallelism)]
    done = subprocess.run([sys.executable, "-c", LIMITED, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return Savepoint.open(str(target))


@pytest.mark.full
@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(1, 128), (2, 512)])
def test_keyed_files_are_opened_one_after_another(parallelism: int, max_parallelism: int, tmp_path: Path) -> None:
    state = DemoState(
        keys=900, entries=3, migrated=0.4, ttl=None, now=10**12, parallelism=SUBTASKS, max_parallelism=128, seed=7
    )
    write_demo_savepoint(str(tmp_path / "source"), state)
    source = Savepoint.open(str(tmp_path / "source"))
    found = rewritten_with_few_files(tmp_path / "source", tmp_path / "few", parallelism, max_parallelism)
    rewrite(
        source,
        str(tmp_path / "all"),
        Layout({one.id: parallelism for one in source.metadata.operators}, max_parallelism),
    )
    assert {one.parallelism for one in found.keyed_operators()} == {parallelism}
    assert raw_entries(tmp_path / "few") == raw_entries(tmp_path / "all")


@pytest.mark.full
def test_so_are_those_of_operator_state(tmp_path: Path) -> None:
    golden = Savepoint.open(str(GOLDEN / "operator-state-2.3-rocksdb"))
    operators = golden.metadata.operators
    rewrite(golden, str(tmp_path / "many"), Layout({one.id: SUBTASKS for one in operators}))
    found = rewritten_with_few_files(tmp_path / "many", tmp_path / "few", 3, 128)
    rewrite(Savepoint.open(str(tmp_path / "many")), str(tmp_path / "all"), Layout({one.id: 3 for one in operators}))
    for one in operators:
        assert held(found, one.hex_id) == held(Savepoint.open(str(tmp_path / "all")), one.hex_id)
