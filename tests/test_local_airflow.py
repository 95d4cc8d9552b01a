"""The Airflow of `make up`, as far as it needs none: passwords, and what the demo says while it waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local_airflow.demo import _before
from local_airflow.passwords import write_passwords
from local_airflow.settings import USERS, Settings
from spark_jobs.startup import class_archive


def test_only_the_user_reads_the_passwords_and_they_stay(tmp_path: Path) -> None:
    settings = Settings(tmp_path, tmp_path / "home", 8080, extra={USERS: "admin:admin,grace:op"})
    # As an earlier version left it.
    settings.passwords.write_text(json.dumps({"admin": "known"}))
    settings.passwords.chmod(0o644)
    write_passwords(settings)
    first = json.loads(settings.passwords.read_text())
    assert first["admin"] == "known"
    assert len(first["grace"]) >= 16
    assert settings.passwords.stat().st_mode & 0o777 == 0o600
    write_passwords(settings)
    assert json.loads(settings.passwords.read_text()) == first
    assert [file.name for file in tmp_path.iterdir()] == [settings.passwords.name]


def test_the_jvm_of_a_step_can_use_the_archive_of_its_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(class_archive, "ARCHIVE", tmp_path / "spark.jsa")
    class_archive.ARCHIVE.touch()
    environment = Settings(tmp_path, tmp_path, 8080).environment()
    # Its folder would come first on the class path, and the archive is of one without it.
    assert "SPARK_CONF_DIR" not in environment
    assert f"-XX:SharedArchiveFile={tmp_path}/spark.jsa" in environment["SPARK_SUBMIT_OPTS"].split()


def test_the_demo_says_which_run_it_waits_for(tmp_path: Path) -> None:
    class Airflow:
        settings = Settings(tmp_path, tmp_path, 8080)
        state: str | None = "awaiting_input"
        runs: tuple[dict[str, str], ...] = ({"dag_run_id": "manual__1+00:00"},)

        def get(self, path: str) -> Any:
            return {"dag_runs": self.runs}

        def tasks(self, dag: str, run_id: str) -> dict[str, dict[str, str | None]]:
            return {"approve": {"state": self.state}, "snapshot": {"state": "running"}}

    api: Any = Airflow()
    address = "http://127.0.0.1:8080/dags/state_migration/runs/manual__1%2B00%3A00"
    assert _before(api) == f"run manual__1+00:00 waits for an answer: approve or reject it at {address}"
    api.state = None
    assert _before(api) == f"run manual__1+00:00 is at snapshot: {address}"
    api.runs = ()
    assert _before(api) == ""
