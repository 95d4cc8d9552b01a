"""One folder for a process's temporary files: who makes it, who removes it, and who finds what a killed one left."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from flinkstate.files.storage import Location
from flinkstate.files.temporary_folder import is_temporary_folder, remove_temporary_folder
from stateferry.cli import main
from stateferry.runs.catalog.processes import Process
from stateferry.runs.catalog.publications import Control
from stateferry.runs.record.runs import Run
from stateferry.runs.record.temporary_folders import TemporaryFolders
from tests.runs.test_runs import plan_at

_OWN = """
import os, signal, sys
from flinkstate.files.temporary_folder import make_temporary_folder
folder = make_temporary_folder()
assert make_temporary_folder() == folder
open(f"{folder}/file", "w").write("12345")
print(folder, flush=True)
"""
_OF_A_RUN = f"""
from stateferry.runs.record.temporary_folders import TemporaryFolders
from flinkstate.files.storage import Location
import sys
TemporaryFolders(Location.of(sys.argv[1]).child("temporary.json")).take_over()
{_OWN}
"""
_KILLED = "os.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name leaves room for a socket's."""
    with TemporaryDirectory(prefix="sf-", dir="/tmp") as folder:
        yield Path(folder)


def done(code: str, *arguments: object, temporary: Path) -> str:
    """What it said."""
    environment = os.environ | {"TMPDIR": str(temporary)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=240).stdout.strip()


def test_it_is_where_the_user_wants_it_and_goes_with_its_process(short: Path) -> None:
    folder, mode, forked = done(
        f"""{_OWN}
print(oct(os.stat(folder).st_mode & 0o777))
import warnings
warnings.simplefilter("ignore")
# What is printed so far is written once, not by each of the two processes at its end.
sys.stdout.flush()
if os.fork() == 0:
    # Another process, with all that this one has to do at its end.
    sys.exit()
os.wait()
print(os.listdir(folder) == ["file"])
""",
        temporary=short,
    ).split()
    assert Path(folder).parent == short
    assert (mode, forked) == ("0o700", "True")
    assert list(short.iterdir()) == []


@pytest.mark.parametrize("name", ["long" * 20, "with space", "with'quote"])
def test_where_no_socket_or_option_could_name_it_it_is_elsewhere(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    assert Path(done(_OWN, temporary=folder)).parent == Path("/tmp")
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_what_a_killed_process_left_is_removed_by_the_next_one_of_its_run(tmp_path: Path, short: Path) -> None:
    left = done(_OF_A_RUN + _KILLED, tmp_path, temporary=short)
    assert [str(one) for one in short.iterdir()] == [left]
    assert TemporaryFolders(Location.of(str(tmp_path)).child("temporary.json")).left_behind() == [left]
    own = done(_OF_A_RUN, tmp_path, temporary=short)
    assert own != left
    assert list(short.iterdir()) == []
    # The one before is of no interest any more.
    assert [one["folder"] for one in json.loads((tmp_path / "temporary.json").read_text())] == [own]


@pytest.mark.slow
def test_what_a_killed_process_started_keeps_its_folder_until_it_ends(tmp_path: Path, short: Path) -> None:
    """A JVM that has just been started can't end before it has found its folder."""
    left = done(_OF_A_RUN + _KILLED, tmp_path, temporary=short)
    command = [sys.executable, "-c", "print(flush=True); input()", left]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        # Its command line can be seen from then on.
        assert started.stdout is not None
        assert started.stdout.readline()
        assert TemporaryFolders(Location.of(str(tmp_path)).child("temporary.json")).left_behind() == []
        done(_OF_A_RUN, tmp_path, temporary=short)
        assert [str(one) for one in short.iterdir()] == [left]
        started.communicate(b"\n")
    done(_OF_A_RUN, tmp_path, temporary=short)
    assert list(short.iterdir()) == []


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    here, gone = Process.this(), Process(2**22 + 1, socket.gethostname(), 1)
    elsewhere = Process(gone.id, "elsewhere", 1)
    name = "stateferry-0123456789"
    kept = {
        "of a process that runs": (tmp_path / name, here),
        "of a process somewhere else": (tmp_path / name, elsewhere),
        "by another name": (tmp_path / "precious", gone),
        "by a longer name": (tmp_path / f"{name}.old", gone),
        "a link": (tmp_path / "links" / name, gone),
        "a file": (tmp_path / "files" / name, gone),
        "nothing": (tmp_path / "nothing" / name, gone),
        "from the present folder": (Path(name), gone),
    }
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / name).symlink_to(tmp_path)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / name).touch()
    for folder in (tmp_path / name, tmp_path / "precious", tmp_path / f"{name}.old"):
        folder.mkdir()
    listed = [{"folder": str(folder), "process": str(process)} for folder, process in kept.values()]
    run = tmp_path / "run"
    run.mkdir()
    (run / "temporary.json").write_text(json.dumps([*listed, {"folder": 5}, "no entry"]))
    assert TemporaryFolders(Location.of(str(run)).child("temporary.json")).left_behind() == []
    TemporaryFolders(Location.of(str(run)).child("temporary.json")).take_over()
    assert {folder.name for folder in tmp_path.iterdir()} == {
        *("precious", f"{name}.old", name, "links", "files", "run")
    }
    assert (tmp_path / "links" / name).is_symlink()
    # Only the other machine knows whether it is still there.
    assert str(elsewhere) in [one["process"] for one in json.loads((run / "temporary.json").read_text())]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give folders away")
def test_what_belongs_to_another_user_is_not_removed(tmp_path: Path) -> None:
    folder = tmp_path / "stateferry-0123456789"
    folder.mkdir()
    assert is_temporary_folder(str(folder))
    os.chown(folder, 12345, -1)
    remove_temporary_folder(str(folder))
    assert folder.is_dir()


def test_a_list_that_is_damaged_stops_nobody(tmp_path: Path) -> None:
    for text in ("[{", "{}", "5"):
        (tmp_path / "temporary.json").write_text(text)
        assert TemporaryFolders(Location.of(str(tmp_path)).child("temporary.json")).left_behind() == []
        TemporaryFolders(Location.of(str(tmp_path)).child("temporary.json")).take_over()


@pytest.mark.slow
def test_clean_removes_what_killed_processes_left_even_while_the_job_is_worked_on(
    tmp_path: Path, short: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    run = Run.create(plan_at(home), 1)
    left = done(_OF_A_RUN + _KILLED, run.folder.path, temporary=short)
    job, clean = run.plan.job, ["clean", "--home", str(home)]
    with Control(f"sqlite:///{home}/catalog.db") as control:
        control.acquire(job, "another run")
    assert main([*clean, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert f"would remove temporary folder {left}\n" in said
    assert f"job {job}: would remove 1 thing, 5 bytes\n" in said
    assert stat.S_ISDIR(os.stat(left).st_mode)
    assert main(clean) == 1
    assert f"removed temporary folder {left}\n" in capsys.readouterr().out
    assert list(short.iterdir()) == []
    # The run itself is young.
    assert run.folder.exists()


def test_a_process_that_is_killed_has_said_where_its_folder_is_before_it_makes_it(tmp_path: Path, short: Path) -> None:
    code = _OF_A_RUN.replace("folder = make_temporary_folder()", _KILLED, 1)
    done(code, tmp_path, temporary=short)
    assert list(short.iterdir()) == []
    (said,) = json.loads((tmp_path / "temporary.json").read_text())
    assert Path(said["folder"]).parent == short
