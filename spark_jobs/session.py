"""A Spark session on this machine, set up as Stateferry's jobs and tests need it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from spark_jobs import class_archive
from spark_jobs.worker_daemon import Nursery
from stateferry.errors import UsageError

LOOPBACK = "127.0.0.1"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_stopping: list[threading.Thread] = []
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

SETTINGS = {
    # Savepoints know instants and local times; a session's own zone must not come between.
    "spark.sql.session.timeZone": "UTC",
    _JAVA_OPTIONS: f"-Duser.timezone=UTC -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.enabled": "false",
    # Over loopback each task waits 40 ms for an acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    # A socket's path has room for a hundred letters, which a folder for temporary files may have itself.
    "spark.python.unix.domain.socket.dir": "/tmp",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # Without it no filter reaches the data source, and every query reads the whole state.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.python.daemon.module": "spark_jobs.worker_daemon",
}


def local_session(application: str, *, cores: int | str = "*", **settings: str) -> SparkSession:
    """A local session with the data source in it; `settings` have underscores for dots: `spark_driver_memory="4g"`."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    # For a session without it there is more to start first.
    from spark_jobs import savepoint_source

    builder = SparkSession.builder.appName(application)
    for name, value in (_local(cores) | SETTINGS | given).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    savepoint_source.register(spark)
    return spark


@contextmanager
def session(application: str, meanwhile: Callable[[], object] = lambda: None) -> Iterator[SparkContext]:
    """The session there is; if there is none a local one, as long as it is needed. It is for tasks: SQL would take
    longer to start than they do. `meanwhile` is called when the JVM is up: most of what then comes is waiting."""
    # pyiceberg says for each column of a data file what Parquet keeps no statistics of.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    wait_until_stopped()
    active = SparkContext._active_spark_context
    if active is not None:
        meanwhile()
        yield active
        return
    if not class_archive.has_java():
        raise UsageError("Spark needs Java 17: there is no java on the PATH, and JAVA_HOME isn't set")
    # The JVM only carries work to the workers: what it takes to start counts for more than its speed later.
    java = f"{SETTINGS[_JAVA_OPTIONS]} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC {class_archive.java_options()}"
    settings = _local(slots()) | SETTINGS | {_JAVA_OPTIONS: java}
    nursery = Nursery()
    started: SparkContext | None = None

    def stop() -> None:
        if started is not None:
            started.stop()
        nursery.close()

    try:
        with _interrupted_afterwards():
            SparkContext._ensure_initialized(conf=_conf(settings))
            meanwhile()
            started = _context(application, settings)
        yield started
    finally:
        # It takes a second until threads on both sides have noticed; a process that has nothing else to do may end.
        stopping = threading.Thread(target=stop, daemon=True, name="end of the Spark session")
        stopping.start()
        _stopping.append(stopping)


@contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """A JVM that is left alone while it starts may stay for ever."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    meanwhile: list[int] = []

    def later(number: int, _: FrameType | None) -> None:
        meanwhile.append(number)

    signal.signal(signal.SIGINT, later)
    try:
        yield
    finally:
        # Spark's own asks the JVM to cancel its jobs, which fails while another answer is being waited for.
        signal.signal(signal.SIGINT, before)
    if meanwhile:
        raise KeyboardInterrupt


def wait_until_stopped() -> None:
    """For the session of this process that was left last."""
    while _stopping:
        _stopping.pop().join()


def submitted_session(application: str) -> SparkContext:
    """The session, for tasks, of an application given to spark-submit, which has said where and how it runs."""
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    settings = {name: value for name, value in SETTINGS.items() if name.startswith("spark.python.")}
    return _context(application, settings)


def _context(application: str, settings: dict[str, str]) -> SparkContext:
    return SparkContext.getOrCreate(_conf(settings).setAppName(application))


def _conf(settings: dict[str, str]) -> SparkConf:
    return SparkConf().setAll(list(settings.items()))


def slots() -> int:
    """Twice as many as there are cores: a task that waits for the disk leaves its core to another."""
    return 2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2 * (os.cpu_count() or 1)


def _local(cores: int | str) -> dict[str, str]:
    # Workers are started by name; without these they may be another Python, without this library.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # The executor inside the driver listens too, and looks nowhere else.
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return {"spark.master": f"local[{cores}]"}
