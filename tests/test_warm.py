"""After `python -m stateferry.warm` nobody waits for a compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateferry.basics import compiled
from stateferry.warm import warm
from tests.rocksdb.goldens import SAVEPOINTS

GOLDEN = Path(__file__).parent / "savepoints"
READ = [
    "kinds-ttl-1.20-hashmap",
    "subclasses-2.3-rocksdb",
    "arrays-1.20-hashmap",
    "maps-2.3-hashmap",
    "windows-1.20-rocksdb",
    "kinds-in-strings-2.3-rocksdb",
]

MIGRATED = ["legacy-2.3-rocksdb", "legacy-ttl-1.20-rocksdb", "legacy-tuple-pojo-2.3-rocksdb"]

NATIVE = [str(SAVEPOINTS / name) for name in ("rounds-native-2.3-rocksdb", "rounds-checkpoint-1.20-rocksdb")]

# Runs that do more than the warm-up's.
LONG_AGO = ("--now", "1703000000000", "--clock-tolerance", "106751991000d")
RUNS = [
    [
        *("--savepoint", str(GOLDEN / "kinds-ttl-1.20-hashmap"), "--operator", "kinds", *LONG_AGO, "--keep-expired"),
        *("--legacy-state", "value-state", "--new-state", "new", "--ttl", "20d", "--nulls", "drop"),
        *("--state-ttl", "kinds/list-state=20d:drop", "--state-ttl", "kinds/map-state=20d:drop"),
    ],
    [
        *("--savepoint", str(GOLDEN / "legacy-ttl-1.20-rocksdb"), "--operator", "main", *LONG_AGO, "--keep-expired"),
        *("--legacy-state", "mainState", "--new-state", "newMainState", "--flag-state", "isMigratedState"),
        *("--ttl", "20d", "--lazy", "--share", "50%", "--nulls", "drop"),
    ],
    [
        *("--savepoint", str(GOLDEN / "hint-hash-map-ttl-1.20-rocksdb"), "--operator", "main", *LONG_AGO),
        *("--legacy-state", "mainState", "--new-state", "newMainState", "--flag-state", "isMigratedState"),
        *("--ttl", "20d", "--keep-expired", "--nulls", "drop"),
    ],
    [
        *("--savepoint", str(GOLDEN / "kryo-parts-2.3-hashmap"), "--operator", "main", *LONG_AGO, "--nulls", "keep"),
        *("--legacy-state", "old-4", "--new-state", "new"),
    ],
]

# Reads in every way there is, migrates the others, and prints the kernels that weren't in the cache.
SCRIPT = """
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from pytest import MonkeyPatch
from stateferry import warm
from stateferry.basics import compiled
from stateferry.cli import main
from flinkstate.reading.reader import Savepoint
from stateferry.look.survey import survey
from tests.rocksdb import goldens
from tests.support.in_process import without_spark
without_spark(MonkeyPatch())
for run in json.loads(sys.argv[1]):
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as told:
        os.environ["STATEFERRY_HOME"] = folder
        code = main(["run", "--target", folder + "/target", *run])
    if code:
        sys.exit(told.getvalue())
for savepoint in sys.argv[2:]:
    if "native" in savepoint or "checkpoint" in savepoint:
        survey(goldens.opened(Path(savepoint)))
    elif not Path(savepoint).name.startswith("legacy"):
        warm.read_all(Savepoint.open(savepoint))
    else:
        with tempfile.TemporaryDirectory() as folder:
            warm.migrate(savepoint, folder, 10**12, 10**9 if "-ttl-" in savepoint else None)
for name, kernel in compiled.kernels():
    if kernel.stats.cache_misses:
        print(name, list(kernel.stats.cache_misses))
"""

# Whether every kernel can be brought in from the cache before it is called.
LOADED = """
from stateferry.basics import compiled
compiled.load()
print(all(kernel.signatures and not kernel.stats.cache_misses for _, kernel in compiled.kernels()))
"""


@pytest.mark.slow
def test_it_uses_every_kernel() -> None:
    assert {name for name, _ in compiled.kernels()} - warm() == set()


# It compiles every kernel anew.
@pytest.mark.timeout(900)
@pytest.mark.full
def test_after_it_reading_and_migrating_compile_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    assert "kernels are ready" in run("-m", "stateferry.warm")
    assert run("-c", LOADED) == "True\n"
    assert run("-c", SCRIPT, json.dumps(RUNS), *(str(GOLDEN / case) for case in (*READ, *MIGRATED)), *NATIVE) == ""
