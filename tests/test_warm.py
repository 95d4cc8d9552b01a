"""After `python -m stateferry.warm` nobody waits for a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "savepoints"
READ = [
    "kinds-ttl-1.20-hashmap",
    "subclasses-2.3-rocksdb",
    "arrays-1.20-hashmap",
    "maps-2.3-hashmap",
    "windows-1.20-rocksdb",
]

# Reads everything in every way there is, and prints the kernels that weren't in the cache.
SCRIPT = """
import sys
from stateferry import warm
from stateferry.savepoint.reader import Savepoint
for savepoint in sys.argv[1:]:
    warm.read_all(Savepoint.open(savepoint))
for name, kernel in warm.kernels():
    if kernel.stats.cache_misses:
        print(name, list(kernel.stats.cache_misses))
"""


@pytest.mark.slow
def test_after_it_reading_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    assert "kernels are ready" in run("-m", "stateferry.warm")
    assert run("-c", SCRIPT, *(str(GOLDEN / case) for case in READ)) == ""
