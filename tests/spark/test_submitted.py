"""How the application of a step starts under spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from stateferry.spark_jobs.session import LOOPBACK

pytestmark = [pytest.mark.spark, pytest.mark.full]

_APPLICATION = """
from stateferry.spark_jobs.startup.import_path import prefer_installed
prefer_installed()
import pyspark
from stateferry.spark_jobs import session
from stateferry.spark_jobs.workers import SparkWorkers
from tests.spark.test_submitted import parent_and_pyspark
with session.workers_prepared() as prepared, session.submitted_session("parents") as sc:
    found = list(SparkWorkers(sc).do("parents", [0, 1], parent_and_pyspark))
    print("FOUND", prepared.pid, pyspark.__file__, *{one for pair in found for one in pair})
"""


def parent_and_pyspark(_: int) -> tuple[str, str]:
    """The process from which this worker was forked, and where it has pyspark from."""
    return str(os.getppid()), pyspark.__file__


def test_its_workers_come_from_the_process_that_waited_and_nobody_imports_from_a_zip(tmp_path: Path) -> None:
    application = tmp_path / "application.py"
    application.write_text(_APPLICATION)
    installed = Path(pyspark.__file__)
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "SPARK_HOME": str(installed.parent),
        "SPARK_LOCAL_IP": LOOPBACK,
    }
    submit = [str(installed.parent / "bin" / "spark-submit"), "--master", "local[1]"]
    submit += ["--conf", "spark.ui.enabled=false", str(application)]
    done = subprocess.run(submit, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("FOUND"))
    _, prepared, of_driver, *of_workers = line.split()
    assert of_driver == str(installed)
    assert set(of_workers) == {prepared, str(installed)}
