"""A process known by its name alone: whether it still runs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from stateferry.runs.catalog.processes import Process


def test_this_one_runs_and_is_known_again_by_its_text() -> None:
    me = Process.this()
    assert me.id == os.getpid()
    assert me.surely_runs()
    assert Process.parse(str(me)) == me


def test_one_that_ended_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = replace(Process.this(), id=child.pid, started=0)
        assert process.surely_runs()
        child.kill()
        child.wait()
        assert not process.surely_runs()


def test_another_one_with_the_same_id_is_not_it() -> None:
    me = Process.this()
    if me.started == 0:
        pytest.skip("this system doesn't say when a process was started")
    assert not replace(me, started=me.started + 1).surely_runs()


@pytest.mark.parametrize("text", ["process 1 on elsewhere, started 5", "somebody", "", "process 0 on x, started 1"])
def test_of_others_nothing_is_sure(text: str) -> None:
    assert not Process.parse(text).surely_runs()
