"""The Spark image as Kubernetes starts it: a driver that waits for executors, and an executor that finds the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from local_airflow.settings import LOOPBACK, free_port

pytestmark = pytest.mark.spark

ENTRYPOINT = Path(__file__).resolve().parents[2] / "docker" / "entrypoint.sh"
_TOOLS = Path(sys.executable).parent
# Without an executor it waits for one.
_DRIVER = """
from pyspark import SparkContext

context = SparkContext()
print(context.applicationId, flush=True)
print(*sorted(context.parallelize(range(10), 2).map(lambda number: number * number).collect()), flush=True)
"""


def environment(**others: str) -> dict[str, str]:
    path = f"{_TOOLS}{os.pathsep}{os.environ['PATH']}"
    python = sys.executable
    fixed = {"PATH": path, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": LOOPBACK}
    return os.environ | fixed | others


@contextmanager
def started(*command: object, **others: str) -> Iterator[subprocess.Popen[str]]:
    words = [str(word) for word in command]
    process = subprocess.Popen(words, env=environment(**others), stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_whatever_else_is_given_is_a_command() -> None:
    done = subprocess.run([ENTRYPOINT, "echo", "a b", "c"], capture_output=True, text=True, check=True)
    assert done.stdout == "a b c\n"


@pytest.mark.full
def test_an_executor_does_what_a_driver_has_to_do(tmp_path: Path) -> None:
    application = tmp_path / "application.py"
    application.write_text(_DRIVER)
    port, master_port, page = str(free_port()), free_port(), free_port()
    settings = {
        "spark.master": f"spark://{LOOPBACK}:{master_port}",
        "spark.driver.host": LOOPBACK,
        "spark.driver.port": port,
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
    }
    # As Spark on Kubernetes does, the driver's settings come in a file.
    properties = tmp_path / "spark.properties"
    properties.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    master = [_TOOLS / "spark-class", "org.apache.spark.deploy.master.Master", "--host", LOOPBACK]
    driver = [ENTRYPOINT, "driver", "--properties-file", properties, f"local://{application}"]
    with (
        started(*master, "--port", master_port, "--webui-port", page),
        started(*driver, SPARK_DRIVER_BIND_ADDRESS=LOOPBACK) as application_driver,
    ):
        assert application_driver.stdout is not None
        application_id = application_driver.stdout.readline().strip()
        assert application_id.startswith("app-")
        facts = {
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{LOOPBACK}:{port}",
            "SPARK_APPLICATION_ID": application_id,
            "SPARK_EXECUTOR_ID": "1",
            "SPARK_EXECUTOR_CORES": "1",
            "SPARK_EXECUTOR_MEMORY": "512m",
            "SPARK_EXECUTOR_POD_IP": LOOPBACK,
            "SPARK_EXECUTOR_POD_NAME": "executor-1",
            "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_JAVA_OPT_0": "-Dspark.driver.port=" + port,
            "SPARK_JAVA_OPT_1": "-XX:+UseSerialGC",
            "SPARK_CONF_DIR": str(tmp_path),
        }
        with started(ENTRYPOINT, "executor", **facts):
            assert application_driver.stdout.readline() == "0 1 4 9 16 25 36 49 64 81\n"
        assert application_driver.wait(60) == 0
