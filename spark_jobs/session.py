"""Spark sessions with the settings that Stateferry's jobs and tests need."""

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
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from flinkstate.errors import TransientError
from flinkstate.files.stores import PLACE_VARIABLES
from flinkstate.files.temporary_folder import make_temporary_folder
from stateferry.spark_jobs import lost_processes
from stateferry.spark_jobs.startup import class_archive, java
from stateferry.spark_jobs.startup.jvm_messages import passed_on
from stateferry.spark_jobs.startup.worker_daemon import PreparedDaemon

LOOPBACK = "127.0.0.1"
# How many times Spark tries a task whose worker was lost.
ATTEMPTS = 4
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SOCKETS = "spark.python.unix.domain.socket.dir"
_stopping: list[threading.Thread] = []
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

SETTINGS = {
    # Savepoints have instants and local times; the time zone of a session must not change them.
    "spark.sql.session.timeZone": "UTC",
    _JAVA_OPTIONS: f"-Duser.timezone=UTC -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.enabled": "false",
    # With TCP over loopback, each task waits 40 ms for an acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # Without this, no filter reaches the data source, and every query reads the whole state.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.python.daemon.module": "stateferry.spark_jobs.startup.worker_daemon",
}


def local_session(application: str, *, cores: int | str = "*", **settings: str) -> SparkSession:
    """A local SQL session with the data source; `settings` have underscores for dots: `spark_driver_memory="4g"`."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    # This import is slow, and only SQL sessions need it.
    from stateferry.spark_jobs import savepoint_source

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
    """The active session, or a local one that ends with the context.

    It is for tasks only, because starting SQL takes longer than the tasks do. `meanwhile` is called when the JVM runs:
    the rest of the start is mostly waiting.
    """
    # pyiceberg warns about each column of a data file for which Parquet has no statistics.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    wait_until_stopped()
    active = SparkContext._active_spark_context
    if active is not None:
        meanwhile()
        yield active
        return
    java.check()
    options = f"{SETTINGS[_JAVA_OPTIONS]} {class_archive.java_options()}"
    folder = make_temporary_folder()
    settings = _local(f"{slots()},{ATTEMPTS}") | SETTINGS | _inside(folder, options)
    lost_processes.say_it_once()
    prepared = PreparedDaemon()
    started: SparkContext | None = None

    def stop() -> None:
        if started is not None:
            _stop(started)
        prepared.close()

    try:
        with _ended_afterwards(), lost_processes.lost_as_transient(), _started_in(folder):
            _start_jvm(_conf(settings))
            meanwhile()
            started = _context(application, settings)
        with lost_processes.lost_as_transient():
            yield started
    finally:
        # Stopping takes a second, until threads on both sides have noticed. A process that is done must not wait for
        # that.
        stopping = threading.Thread(target=stop, daemon=True, name="end of the Spark session")
        stopping.start()
        _stopping.append(stopping)


def _start_jvm(conf: SparkConf) -> None:
    if SparkContext._gateway is not None:
        # A session of this process before has started it.
        return
    try:
        with passed_on() as stderr:
            launched = launch_gateway(conf, {"stderr": stderr})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=launched, conf=conf)
    except PySparkRuntimeError as error:
        raise TransientError(
            f"Spark's JVM ended while it started. Its own messages, if any, are above ({error.getCondition()})"
        ) from error


def _stop(started: SparkContext) -> None:
    try:
        started.stop()
    except (Py4JError, OSError):
        # The JVM is gone. Forget it on this side too, so that the next session starts a new JVM.
        started.stop()
        SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _ended_afterwards() -> Iterator[None]:
    """Delays SIGINT and SIGTERM until Spark has started.

    A JVM that is abandoned during its start may stay forever.
    """
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
        # Spark's own handler asks the JVM to cancel its jobs, which fails while another answer is awaited.
        for number, handler in caught.items():
            signal.signal(number, handler)
    for number in meanwhile[:1]:
        caught[number](number, None)


def _inside(folder: str, java_options: str) -> dict[str, str]:
    """Settings by which a session writes its temporary files only into this folder."""
    return {
        "spark.local.dir": folder,
        _SOCKETS: folder,
        # The JVM writes its performance data to /tmp in any case, and it isn't needed.
        _JAVA_OPTIONS: f"-Djava.io.tmpdir={folder} -XX:-UsePerfData {java_options}",
    }


@contextmanager
def _started_in(folder: str) -> Iterator[None]:
    """Sets the folder for programs that take no settings.

    These are Spark's launcher, which is a JVM too, and pyspark while it waits for both JVMs.
    """
    # These variables override the settings.
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
    """Waits until this process's last session has stopped."""
    while _stopping:
        _stopping.pop().join()


@contextmanager
def workers_prepared() -> Iterator[PreparedDaemon | None]:
    """Starts the worker daemon ahead of a submitted session whose workers are on this machine; else does nothing."""
    with lost_processes.lost_as_transient():
        is_here = _is_submitted_here()
    if not is_here:
        yield None
        return
    prepared = PreparedDaemon()
    try:
        yield prepared
    finally:
        prepared.close()


@contextmanager
def submitted_session(application: str) -> Iterator[SparkContext]:
    """The session, for tasks, of an application that spark-submit has started, which says where and how it runs."""
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    lost_processes.say_it_once()
    settings = {name: value for name, value in SETTINGS.items() if name.startswith("spark.python.")}
    # The JVM runs already, so the daemon that it starts learns only by this setting that another one waits.
    environment = {**PreparedDaemon.environment(), **environment_of_stores()}
    settings |= {f"spark.executorEnv.{name}": value for name, value in environment.items()}
    with lost_processes.lost_as_transient():
        # Executors on other machines don't have our folder, and the path of theirs may be too long for a socket.
        sockets = make_temporary_folder() if _is_submitted_here() else "/tmp"
        started = _context(application, settings | {_SOCKETS: sockets})
        try:
            yield started
        finally:
            _stop(started)


def environment_of_stores() -> dict[str, str]:
    """The environment by which executors on other machines find the driver's store.

    Credentials don't belong in Spark's settings, which are shown and logged.
    """
    return {name: os.environ[name] for name in PLACE_VARIABLES if os.environ.get(name)}


def _is_submitted_here() -> bool:
    """Whether the workers of this application, which spark-submit has started, are on this machine."""
    # The master that spark-submit was given is known only after this.
    SparkContext._ensure_initialized()
    return str(SparkConf().get("spark.master") or "local").partition("[")[0] == "local"


def _context(application: str, settings: dict[str, str]) -> SparkContext:
    started = SparkContext.getOrCreate(_conf(settings).setAppName(application))
    # When the JVM is lost, its connection ends. That is reported once, without a stack trace of this server.
    server: Any = started._accumulatorServer
    server.handle_error = lambda *_: None
    return started


def _conf(settings: dict[str, str]) -> SparkConf:
    return SparkConf().setAll(list(settings.items()))


def slots() -> int:
    """Twice the number of cores: while a task waits for the disk, another one uses its core."""
    return 2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2 * (os.cpu_count() or 1)


def _local(cores: int | str) -> dict[str, str]:
    # Workers are started by the interpreter's name. Without these, it may be another Python without this library.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # The executor inside the driver must listen on loopback too, and reads only this variable.
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    # Without a secret, which Spark makes up, whoever may connect to its ports on loopback could read what it handles.
    return {"spark.master": f"local[{cores}]", "spark.authenticate": "true"}
