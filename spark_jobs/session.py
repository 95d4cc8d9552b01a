"""A Spark session on this machine, set up as Stateferry's jobs and tests need it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from spark_jobs import lost
from spark_jobs.startup import class_archive, java
from spark_jobs.startup.worker_daemon import Nursery
from stateferry.errors import PassingError
from stateferry.temporary_folder import make_temporary_folder

LOOPBACK = "127.0.0.1"
# How often a task is given to another worker when its own was lost.
ATTEMPTS = 4
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SOCKETS = "spark.python.unix.domain.socket.dir"
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
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # Without it no filter reaches the data source, and every query reads the whole state.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.python.daemon.module": "spark_jobs.startup.worker_daemon",
}


def local_session(application: str, *, cores: int | str = "*", **settings: str) -> SparkSession:
    """A local session with the data source in it; `settings` have underscores for dots: `spark_driver_memory="4g"`."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    # For a session without it there is more to start first.
    from spark_jobs import savepoint_source

    java.check()
    builder = SparkSession.builder.appName(application)
    folder = make_temporary_folder()
    for name, value in (_local(cores) | SETTINGS | _inside(folder, SETTINGS[_JAVA_OPTIONS]) | given).items():
        builder = builder.config(name, value)
    with _started_in(folder):
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
    java.check()
    # The JVM only carries work to the workers: what it takes to start counts for more than its speed later.
    options = f"{SETTINGS[_JAVA_OPTIONS]} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC {class_archive.java_options()}"
    folder = make_temporary_folder()
    settings = _local(f"{slots()},{ATTEMPTS}") | SETTINGS | _inside(folder, options)
    lost.say_it_once()
    nursery = Nursery()
    started: SparkContext | None = None

    def stop() -> None:
        if started is not None:
            _stop(started)
        nursery.close()

    try:
        with _ended_afterwards(), lost.losses_told(), _started_in(folder):
            _start_jvm(_conf(settings))
            meanwhile()
            started = _context(application, settings)
        with lost.losses_told():
            yield started
    finally:
        # It takes a second until threads on both sides have noticed; a process that has nothing else to do may end.
        stopping = threading.Thread(target=stop, daemon=True, name="end of the Spark session")
        stopping.start()
        _stopping.append(stopping)


def _start_jvm(conf: SparkConf) -> None:
    try:
        SparkContext._ensure_initialized(conf=conf)
    except PySparkRuntimeError as error:
        raise PassingError(
            f"Spark's JVM ended while it started: what it had to say is above, if anything ({error.getCondition()})"
        ) from error


def _stop(started: SparkContext) -> None:
    try:
        started.stop()
    except (Py4JError, OSError):
        # The JVM is gone. What this side has of it goes too, so that another session starts a JVM of its own.
        started.stop()
        SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _ended_afterwards() -> Iterator[None]:
    """A JVM that is left alone while it starts may stay for ever."""
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    caught = {number: handler for number, handler in before.items() if callable(handler)}
    if threading.current_thread() is not threading.main_thread() or not caught:
        yield
        return
    meanwhile: list[int] = []

    def later(number: int, _: FrameType | None) -> None:
        meanwhile.append(number)

    for number in caught:
        signal.signal(number, later)
    try:
        yield
    finally:
        # Spark's own asks the JVM to cancel its jobs, which fails while another answer is being waited for.
        for number, handler in caught.items():
            signal.signal(number, handler)
    for number in meanwhile[:1]:
        caught[number](number, None)


def _inside(folder: str, java_options: str) -> dict[str, str]:
    """Settings by which a session leaves its temporary files there and nowhere else."""
    return {
        "spark.local.dir": folder,
        _SOCKETS: folder,
        # The JVM's own figures of itself go to /tmp whatever it is told, and nobody reads them.
        _JAVA_OPTIONS: f"-Djava.io.tmpdir={folder} -XX:-UsePerfData {java_options}",
    }


@contextmanager
def _started_in(folder: str) -> Iterator[None]:
    """For what takes no settings: Spark's launcher, which is a JVM too, and pyspark while it waits for both."""
    # In the environment it would count for more than the setting.
    wanted = {"SPARK_LOCAL_DIRS": folder, "SPARK_LAUNCHER_OPTS": _with(os.environ.get("SPARK_LAUNCHER_OPTS", ""))}
    before = {name: os.environ.get(name) for name in wanted}
    tempdir, tempfile.tempdir = tempfile.tempdir, folder
    os.environ.update(wanted)
    try:
        yield
    finally:
        tempfile.tempdir = tempdir
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _with(options: str) -> str:
    return f"{options} -XX:-UsePerfData".strip()


def wait_until_stopped() -> None:
    """For the session of this process that was left last."""
    while _stopping:
        _stopping.pop().join()


@contextmanager
def submitted_session(application: str) -> Iterator[SparkContext]:
    """The session, for tasks, of an application given to spark-submit, which has said where and how it runs."""
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    lost.say_it_once()
    settings = {name: value for name, value in SETTINGS.items() if name.startswith("spark.python.")}
    with lost.losses_told():
        # Before it nobody knows what spark-submit was told.
        SparkContext._ensure_initialized()
        master = SparkConf().get("spark.master") or "local"
        # Executors elsewhere have no folder of ours, and one of theirs may have too long a name for a socket.
        sockets = make_temporary_folder() if master.partition("[")[0] == "local" else "/tmp"
        started = _context(application, settings | {_SOCKETS: sockets})
        try:
            yield started
        finally:
            _stop(started)


def _context(application: str, settings: dict[str, str]) -> SparkContext:
    started = SparkContext.getOrCreate(_conf(settings).setAppName(application))
    # When the JVM is gone its connection ends: that is told once, and not with a stack trace of this server's.
    server: Any = started._accumulatorServer
    server.handle_error = lambda *_: None
    return started


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
