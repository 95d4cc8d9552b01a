"""Makes the archive of a home, with everything in it that outlives a process, by the version that is installed.

    cd CHECKOUT_OF_THAT_VERSION && .venv/bin/python .../tests/homes/make.py version-1.tar.gz

Real runs on real Spark make it, and one of them is killed. Files in it hold absolute paths, some of them compressed or
as part of a digest. So all paths begin with `/proc/self/cwd`: they are true for every process that works in the folder
where the archive is unpacked.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from stateferry.runs.record.runs import Run

HERE = "/proc/self/cwd"
# 2026-01-01, 00:00 UTC
NOW = 1_767_225_600_000
DAY = 24 * 3600 * 1000
STATES = ("--operator", "main", "--legacy-state", "mainState", "--new-state", "newMainState")
OPTIONS = (*STATES, "--flag-state", "isMigratedState", "--ttl", "30d", "--now", str(NOW), "--parallelism", "3")
# As docs/airflow.md has it for the Airflow variable `state_migration`.
NIGHTLY = {
    "source": "folder",
    "savepoint_folder": f"{HERE}/nights",
    "operator": "main",
    "legacy_state": "mainState",
    "new_state": "newMainState",
    "flag_state": "isMigratedState",
    "ttl": "30d",
    "job": "nightly",
}
_LONGEST_SECONDS = 300


def main() -> int:
    archive = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["STATEFERRY_HOME"] = f"{HERE}/home"
        savepoint("nights/first", keys=24, completed=NOW)
        # The same keys for the most part, and new ones.
        savepoint("later/second", keys=27, completed=NOW + DAY + DAY // 2)
        Path("nightly.json").write_text(json.dumps(NIGHTLY, indent=2) + "\n")
        stateferry(*command("finished"))
        kill_after_snapshot(command("half-done"))
        stateferry("run", "--plan", f"{night(1).folder.path}/plan.json")
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(".", filter=_of_nobody)
    return 0


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="", gname="", deep=False)


def command(job: str) -> list[str]:
    """The run of this job, which anyone may give again."""
    places = ["--savepoint", f"{HERE}/nights/first", "--target", f"{HERE}/new/{job}"]
    return ["run", "--job", job, *places, *OPTIONS]


def savepoint(name: str, keys: int, completed: int) -> None:
    sizes = [
        "--keys",
        str(keys),
        "--entries",
        "3",
        "--migrated",
        "0.4",
        "--parallelism",
        "2",
        "--max-parallelism",
        "32",
    ]
    stateferry("demo-savepoint", f"{HERE}/{name}", *sizes, "--ttl", "30d", "--now", str(NOW))
    # Where the newest one as of a night is looked for, this says when it was complete.
    os.utime(Path(name) / "_metadata", (completed / 1000, completed / 1000))


def stateferry(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "stateferry.cli", *arguments], check=True)


def kill_after_snapshot(arguments: list[str]) -> None:
    process = subprocess.Popen([sys.executable, "-m", "stateferry.cli", *arguments])
    ends = time.monotonic() + _LONGEST_SECONDS
    while not (found := list(Path("home/runs/half-done").glob("*/steps/snapshot.json"))):
        assert process.poll() is None, "the run ended before it was killed"
        assert time.monotonic() < ends, "the run has not done its snapshot"
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not found[0].with_name("migrate.json").exists(), "killed too late: make it again"


def night(number: int) -> Run:
    """The run of a night, as Airflow's task `plan` makes it of the nightly configuration."""
    # Its types are known in Airflow's environment alone.
    planning = importlib.import_module("stateferry.airflow.requests.planning")
    due = datetime.fromtimestamp((NOW + number * DAY) / 1000, UTC)
    configured = json.loads(Path("nightly.json").read_text())
    request = planning.migration_request(configured, "nightly.json").rehearsal()
    _, run = planning.planned(request, planning.Occasion(f"scheduled__{due.isoformat()}", due))
    assert isinstance(run, Run)
    return run


if __name__ == "__main__":
    sys.exit(main())
