"""What real runs leave in the folder for temporary files: nothing; and if they are killed, one folder that can go."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from stateferry.cli import main

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_LONGEST = 280


@dataclass(frozen=True)
class Ferry:
    folder: Path
    temporary: Path

    @property
    def command(self) -> list[str]:
        states = ["--legacy-state", "mainState", "--new-state", "newMainState", "--flag-state", "isMigratedState"]
        places = ["--savepoint", str(self.folder / "source"), "--target", str(self.folder / "target")]
        return ["run", *places, "--operator", "main", "--job", "clicks", "--now", "1700000000000", *states]

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        # As few users have it: in front of the setting it would count for more.
        environment = os.environ | {"TMPDIR": str(self.temporary), "SPARK_LOCAL_DIRS": str(self.folder / "elsewhere")}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen([sys.executable, *command], env=environment, stdout=log, stderr=log)

    def run(self) -> subprocess.Popen[bytes]:
        return self.start("-m", "stateferry.cli", *self.command)

    @property
    def left(self) -> list[Path]:
        return list(self.temporary.iterdir())

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def wait_until(self, is_so: Callable[[], object]) -> None:
        end = time.monotonic() + _LONGEST
        while not is_so():
            assert time.monotonic() < end, self.said()
            time.sleep(0.05)

    def has_done(self, step: str) -> bool:
        return bool(list((self.folder / "home" / "runs").glob(f"clicks/*/steps/{step}.json")))


@pytest.fixture
def ferry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ferry]:
    monkeypatch.setenv("STATEFERRY_HOME", str(tmp_path / "home"))
    umask = os.umask(0o022)
    sizes = ["--keys", "2000", "--entries", "2", "--parallelism", "2", "--now", "1700000000000"]
    assert main(["demo-savepoint", str(tmp_path / "source"), *sizes]) == 0
    with TemporaryDirectory(prefix="sf-", dir="/tmp") as folder:
        yield Ferry(tmp_path, Path(folder))
    os.umask(umask)


@pytest.mark.full
def test_a_killed_run_leaves_one_folder_which_can_be_cleaned_and_a_whole_one_nothing(
    ferry: Ferry, capsys: pytest.CaptureFixture[str]
) -> None:
    process = ferry.run()
    ferry.wait_until(lambda: ferry.has_done("snapshot") or process.poll() is not None)
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    figures = Path(f"/tmp/hsperfdata_{getpass.getuser()}")
    assert not [one.pid for one in family if (figures / str(one.pid)).exists()]
    # Nobody is left who could put anything in order.
    for one in family:
        one.kill()
    process.wait(_LONGEST)
    psutil.wait_procs(family, _LONGEST)
    (folder,) = ferry.left
    assert folder.stat().st_mode & 0o777 == 0o700
    kinds = {entry.name.partition("-")[0] for entry in folder.iterdir() if not entry.is_socket()}
    assert {"spark", "blockmgr"} <= kinds
    assert any(entry.is_socket() for entry in folder.iterdir())
    # The lease is still that of the killed run, which says nothing of its folder.
    assert main(["clean"]) == 1
    assert f"removed temporary folder {folder}\n" in capsys.readouterr().out
    assert ferry.left == []

    assert ferry.run().wait(_LONGEST) == 0, ferry.said()
    assert ferry.left == []
    assert not (ferry.folder / "elsewhere").exists()
    assert "ERROR" not in ferry.said()
    made = [ferry.folder / "home", ferry.folder / "target"]
    written = [path for folder in made for path in (folder, *folder.rglob("*"))]
    assert len(written) > 20
    for path in written:
        as_usual, private = (0o644, 0o600) if path.is_file() else (0o755, 0o700)
        expected = as_usual if path.is_relative_to(ferry.folder / "target") else private
        assert path.stat().st_mode & 0o777 == expected, path


@pytest.mark.full
def test_what_a_killed_driver_started_removes_the_folder_for_it(ferry: Ferry) -> None:
    process = ferry.run()
    ferry.wait_until(lambda: ferry.has_done("snapshot") or process.poll() is not None)
    assert len(ferry.left) == 1
    process.kill()
    process.wait(_LONGEST)
    ferry.wait_until(lambda: ferry.left == [])


@pytest.mark.full
def test_a_session_to_look_with_leaves_nothing_and_logs_nothing_that_steers(ferry: Ferry) -> None:
    code = f"""
from stateferry.spark_jobs.session import local_session
source = local_session("look", cores=2).read.format("flink_savepoint").option("path", {str(ferry.folder / "source")!r})
assert source.option("operator", "main").option("state", "mainState").load().count() == 1400
logger = source._spark._jvm.org.slf4j.LoggerFactory.getLogger("strange")
logger.error("日本\\x1b[31m\\x9b\\u202e\\ufeff\\x7f\\nnext line")
"""
    assert ferry.start("-c", code).wait(_LONGEST) == 0, ferry.said()
    assert "日本?[31m????\nnext line\n" in ferry.said()
    assert ferry.left == []
