"""The console blocks of two pages, given to real Flink in their order: what each prints is what is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flink.cluster import PATIENCE, FlinkCluster
from tests.flink.remote import LEGACY_JOB, RemoteJob
from tests.support.console_blocks import HOUSE, Console, Shown, bare, commands, not_said

pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.timeout(900)]
# A value of an answer of Flink, by which the page's next command names something.
_ANSWERED = re.compile(r'"(request-id|location|jobid)":"([^"]+)"')


@pytest.fixture
def console(tmp_path: Path) -> Console:
    def give(arguments: list[str]) -> tuple[int, str]:
        place = {"STATEFERRY_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
        command = [sys.executable, "-m", "tests.chaos.command", *arguments]
        done = subprocess.run(command, cwd=HOUSE, env=os.environ | place, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return Console(tmp_path, give)


def ours(console: Console, shown: Shown) -> bool:
    if shown.arguments is not None:
        console.check(shown)
    return shown.arguments is not None


def test_an_upgrade_loses_an_entry_and_a_run_does_not(console: Console, tmp_path: Path) -> None:
    for shown in list(commands("upgrade.md"))[:3]:
        if not ours(console, shown):
            program, *rest = console.here(shown.command).split()
            assert program == ".venv/bin/python"
            done = subprocess.run([sys.executable, *rest], cwd=HOUSE, capture_output=True, text=True, check=True)
            assert not_said([one for one in shown.printed if "{" not in one], done.stdout) == []


def test_the_cut_over_by_hand_and_the_ways_back(console: Console, tmp_path: Path) -> None:
    sink = console.place("/tmp/totals/shown")
    sink.mkdir(parents=True)
    with FlinkCluster("2.3.0", tmp_path / "flink") as cluster:
        jar = cluster.upload_jobs()
        old = RemoteJob.start(cluster, jar, LEGACY_JOB, "--sink", sink, "--ttl-days", 30)
        old.wait_for_checkpoints()
        console.words |= {"7e2cc3c8f807e675b1118d87eb8bc63f": old.id}
        for shown in commands("cut-over.md"):
            if shown.command.startswith("airflow "):
                continue
            if shown.command.endswith("/checkpoints"):
                RemoteJob(cluster, console.here("77c6c974be56bf9a59e7aa3c8a891d2e")).wait_for_checkpoints()
            if shown.command.startswith("stateferry inspect"):
                new = RemoteJob(cluster, console.here("77c6c974be56bf9a59e7aa3c8a891d2e"))
                taken = str(new.savepoint())
                console.words |= dict.fromkeys(re.findall(r"/tmp/totals/savepoints/savepoint-77c6c9-\w+", PAGE), taken)
            if not ours(console, shown):
                asked(console, shown, {"FLINK": cluster.rest_url, "JAR": jar})


PAGE = (HOUSE / "docs" / "cut-over.md").read_text(encoding="utf-8")


def asked(console: Console, shown: Shown, names: dict[str, str]) -> None:
    """Gives the command to a shell until Flink's answer is the page's, and learns what the answer names."""
    assert shown.command.startswith("curl ")
    printed, end = "".join(shown.printed), time.monotonic() + PATIENCE
    while True:
        command = ["bash", "-c", console.here(shown.command)]
        answer = subprocess.run(command, env=os.environ | names, capture_output=True, text=True, check=True).stdout
        said = bare(console.as_on_page(answer))
        if all(bare(part) in said for part in pieces(printed)):
            break
        assert time.monotonic() < end, answer
        time.sleep(0.2)
    console.words |= dict(zip(learned(printed), learned(answer), strict=False))


def pieces(printed: str) -> Iterator[str]:
    """What a page shows of an answer, between what it leaves out."""
    yield from (one.strip(" ,{}") for one in re.split(r",?\.\.\.,?", printed))


def learned(answer: str) -> list[str]:
    return [value.removeprefix("file:") for _, value in _ANSWERED.findall(answer)]
