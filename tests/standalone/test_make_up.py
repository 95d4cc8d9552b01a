"""`make up` again, after parts of Airflow were lost: one command brings back what is missing, and leaves the rest."""

from __future__ import annotations

import os
import signal
import time

import pytest

from local_airflow import __main__ as command
from local_airflow.server import COMPONENTS, Server
from tests.standalone.migration import DAG, PATIENCE

# A plain run of the tests has processes that stand for Airflow's: `tests/test_local_airflow.py`.
pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.timeout(1500)]


@pytest.mark.parametrize("lost", [["scheduler"], ["dag-processor", "triggerer"]], ids=lambda lost: lost[0])
def test_what_has_ended_is_started_again(
    airflow: Server, lost: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_settings", lambda port: airflow.settings)
    before = {component: airflow.pid(component) for component in COMPONENTS}
    for component in lost:
        os.kill(before[component], signal.SIGKILL)
    while any(airflow.lives(component) for component in lost):
        time.sleep(0.02)
    # Airflow itself still calls it healthy.
    assert not airflow.is_running()

    assert command.main(["up"]) == 0
    said = capsys.readouterr().out
    assert f"started again: {', '.join(lost)}\nAirflow is up: {airflow.settings.url}" in said
    assert airflow.is_running()
    after = {component: airflow.pid(component) for component in COMPONENTS}
    assert {component for component in COMPONENTS if before[component] != after[component]} == {*lost}
    # It schedules again: the form is refused by the first task.
    run = airflow.api.trigger(DAG, {"source": "path", "savepoint": "/nowhere", "operator": "main"})
    assert airflow.api.wait_for_end(DAG, run, PATIENCE) == "failed"

    assert command.main(["up"]) == 0
    assert "started again" not in capsys.readouterr().out
