"""The login that the values for Airflow's Helm chart choose: Airflow has it, and makes a password where they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

VALUES = Path(__file__).parents[3] / "docker/kubernetes/airflow-values.yaml"
_FILE = "simple_auth_manager_passwords_file"
_START = """
from airflow.configuration import conf
conf.getimport("core", "auth_manager")().init()
"""


def test_airflow_has_the_login_of_the_values(tmp_path: Path) -> None:
    core = yaml.safe_load(VALUES.read_text())["config"]["core"] | {_FILE: str(tmp_path / "passwords.json")}
    settings = "".join(f"{name} = {value}\n" for name, value in core.items())
    (tmp_path / "airflow.cfg").write_text("[core]\n" + settings)
    others = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    subprocess.run([sys.executable, "-c", _START], env=others | {"AIRFLOW_HOME": str(tmp_path)}, check=True)
    assert list(json.loads((tmp_path / "passwords.json").read_text())) == ["admin"]
