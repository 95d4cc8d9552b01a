"""The folders of a local Airflow, and the environment of its processes."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from stateferry.spark_jobs.startup import class_archive

REPOSITORY = Path(__file__).resolve().parent.parent
LOOPBACK = "127.0.0.1"
USERS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"
MARK = "STATEFERRY_LOCAL_AIRFLOW"
"""Every process of a server has its home under this name in its environment."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Folders, port and environment of a local Airflow.

    `home` is Airflow's, `stateferry_home` is for runs, tables and savepoints. `extra` overrides variables of the
    environment.
    """

    home: Path
    stateferry_home: Path
    port: int
    airflow: Path = REPOSITORY / ".venv-airflow"
    spark: Path = REPOSITORY / ".venv"
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address of Airflow's web interface."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def passwords(self) -> Path:
        """The file in which Airflow keeps passwords."""
        return self.home / "passwords.json"

    def environment(self) -> dict[str, str]:
        """The environment of all processes."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "SPARK_"))}
        python = str(self.spark / "bin" / "python")
        # The Spark that runs the steps is last in the path, because Airflow's Spark provider has another pyspark.
        path = os.pathsep.join([str(self.airflow / "bin"), os.environ.get("PATH", ""), str(self.spark / "bin")])
        return {
            **inherited,
            "PATH": path,
            MARK: str(self.home),
            "STATEFERRY_HOME": str(self.stateferry_home),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_SUBMIT_OPTS": self._java_options(),
            **self._airflow(),
            **self.extra,
        }

    def _java_options(self) -> str:
        """Options of the JVM of every step that is submitted, with Spark's settings.

        With settings in a file, `SPARK_CONF_DIR` would be on the class path, and the JVM couldn't use its archive.
        """
        log_settings = Path(__file__).with_name("log4j2.properties")
        properties = {
            "user.timezone": "UTC",
            "log4j2.configurationFile": log_settings.as_uri(),
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        given = [f"-D{name}={value}" for name, value in properties.items()]
        return " ".join([*given, class_archive.java_options()])

    def _airflow(self) -> dict[str, str]:
        return {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"}),
            "AIRFLOW_CONN_FLINK_DEFAULT": json.dumps({"conn_type": "flink", "host": LOOPBACK, "port": 8081}),
            "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            # The executor takes any number of tasks and starts them in the order in which they came, whatever their
            # weight. So the default pool leaves some of its workers to the pool of a job that stands still.
            "AIRFLOW__CORE__PARALLELISM": "8",
            "AIRFLOW__CORE__DEFAULT_POOL_TASK_SLOT_COUNT": "4",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            USERS: "admin:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.passwords),
            "AIRFLOW__API__HOST": LOOPBACK,
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            # The DAGs hardly ever change, so they are read rarely, and an idle server costs little.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "120",
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
            # Else the end of each task is noticed up to a second later.
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
            # What a scheduler that was killed had started begins again after so long, not after five minutes.
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
            # Each task reads its DAG anew. On a busy machine that takes longer than Airflow's 30 seconds.
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "120",
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "150",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            # `timeout` is how many seconds a process waits for another one's lock on the database.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db?timeout=60",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        }


def is_free(port: int) -> bool:
    """Whether nothing listens on the port."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as listening:
        listening.bind((LOOPBACK, 0))
        port: int = listening.getsockname()[1]
        return port
