"""How a local session starts and ends: quickly, and without leaving anything or anybody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stateferry.spark_jobs.startup import class_archive
from stateferry.spark_jobs.startup.worker_daemon import PreparedDaemon

pytestmark = pytest.mark.spark

_PARENTS = """
import os
from stateferry.spark_jobs import session as sessions
from stateferry.spark_jobs.startup import worker_daemon
from stateferry.spark_jobs.workers import SparkWorkers
waiting = []
class PreparedDaemon(worker_daemon.PreparedDaemon):
    def __init__(self):
        super().__init__()
        waiting.append(self._process.pid)
sessions.PreparedDaemon = PreparedDaemon
with sessions.session("parents") as sc:
    parents = set(SparkWorkers(sc).do("parents", ["stat"] * 4, _PARENT))
    print(parents == set(waiting), *waiting)
"""


_MEANWHILE = """
from pyspark import SparkContext
from stateferry.spark_jobs import session
def meanwhile():
    print(SparkContext._jvm is not None, SparkContext._active_spark_context is None)
with session.session("meanwhile", meanwhile) as sc:
    print(sc.appName)
    secret = sc._jvm.org.apache.spark.SparkEnv.get().securityManager().getSecretKey()
    print(sc.getConf().get("spark.authenticate"), secret is not None, sum(sc.parallelize(range(100), 4).collect()))
"""


@pytest.mark.full
def test_a_local_session_has_a_secret_and_what_is_meanwhile_comes_before_it() -> None:
    done = subprocess.run([sys.executable, "-c", _MEANWHILE], capture_output=True, text=True, timeout=400, check=False)
    assert done.stdout.splitlines() == ["True True", "meanwhile", "true True 4950"], done.stderr


_READY = """
import psutil
from stateferry.spark_jobs.engine import local_workers
with local_workers("ready", print) as workers:
    # Beside the daemon there are the workers that it has forked. Of a process that has just ended there is no command.
    children = psutil.process_iter(["pid", "cmdline"])
    own = {child.pid for child in psutil.Process().children(recursive=True)}
    print(sum(one.pid in own and "worker_daemon" in " ".join(one.info["cmdline"] or ()) for one in children) > 2)
"""


@pytest.mark.full
def test_workers_have_started_before_any_step_begins() -> None:
    """Else the first step would take longer in an application that begins it at once."""
    done = subprocess.run([sys.executable, "-c", _READY], capture_output=True, text=True, timeout=400, check=False)
    assert done.stdout.splitlines() == ["True"], done.stderr


@pytest.mark.full
def test_workers_come_from_the_process_that_waited_and_everybody_leaves() -> None:
    code = _PARENTS.replace("_PARENT)", "parent_of)")
    code = f"from tests.spark.test_session import parent_of\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400, check=True)
    from_prepared, waiting = done.stdout.split()
    assert from_prepared == "True"
    assert "Traceback" not in done.stderr
    _wait_until_gone(waiting)


def _wait_until_gone(process: str) -> None:
    end = time.monotonic() + 200
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < end, f"process {process} is still there"
        time.sleep(0.1)


@pytest.mark.full
def test_workers_come_from_there_without_any_output_and_with_temporary_files_far_down(tmp_path: Path) -> None:
    answer, folder = tmp_path / "answer", tmp_path / ("far" * 40)
    folder.mkdir()
    code = _PARENTS.replace("_PARENT)", "parent_of)").replace(
        "*waiting)", f"*waiting, file=open({str(answer)!r}, 'w'))"
    )
    code = f"import os\nos.closerange(0, 3)\nfrom tests.spark.test_session import parent_of\n{code}"
    environment = os.environ | {"TMPDIR": str(folder)}
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=400, check=True)
    assert answer.read_text().split()[0] == "True"


def test_whoever_is_killed_leaves_neither_a_process_nor_a_folder() -> None:
    code = """
import os, signal
from stateferry.spark_jobs.startup.worker_daemon import PreparedDaemon
prepared = PreparedDaemon()
print(prepared._process.pid, os.environ["STATEFERRY_PREPARED_DAEMON"], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400)
    waiting, path = done.stdout.split()
    _wait_until_gone(waiting)
    assert not Path(path).parent.exists()
    assert done.stderr == ""


@pytest.mark.full
def test_a_daemon_ends_by_its_pipe_so_that_no_signal_keeps_it_from_removing_the_folder() -> None:
    code = """
import os, signal, sys
from stateferry.spark_jobs.startup.worker_daemon import PreparedDaemon
prepared = PreparedDaemon()
print(prepared._process.pid, os.environ["STATEFERRY_PREPARED_DAEMON"], flush=True)
sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        waiting, path = driver.stdout.readline().split()
        environment = os.environ | {"STATEFERRY_PREPARED_DAEMON": path, "PYTHON_WORKER_FACTORY_SECRET": "any"}
        command = [sys.executable, "-m", "stateferry.spark_jobs.startup.worker_daemon"]
        while not Path(path).is_socket():
            time.sleep(0.05)
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
            assert daemon.stdin is not None
            assert daemon.stdout is not None
            # It listens.
            daemon.stdout.read(4)
            driver.stdin.close()
            driver.wait(60)
            daemon.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert Path(path).parent.exists()
            assert daemon.poll() is None
            daemon.stdin.close()
            daemon.wait(60)
    _wait_until_gone(waiting)
    assert not Path(path).parent.exists()


@pytest.mark.full
def test_an_interruption_while_the_jvm_starts_leaves_nobody_behind() -> None:
    code = """
import os, signal, threading
from pyspark import java_gateway
from stateferry.spark_jobs.session import session, wait_until_stopped
# Whoever runs the tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
class Popen(java_gateway.Popen):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        print(self.pid, flush=True)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
java_gateway.Popen = Popen
try:
    with session("interrupted"):
        print("started")
except KeyboardInterrupt:
    print("interrupted")
    wait_until_stopped()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400)
    java, *said = done.stdout.split()
    assert said == ["interrupted"], done.stderr
    _wait_until_gone(java)


def parent_of(_: str) -> int:
    return os.getppid()


@pytest.mark.full
def test_nobody_waits_longer_than_whoever_started_it() -> None:
    before = dict(os.environ)
    prepared = PreparedDaemon()
    assert os.environ != before
    prepared.close()
    assert prepared._process.returncode == 0
    assert os.environ == before


@pytest.mark.full
def test_a_session_starts_from_an_archive_of_its_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "ARCHIVE", tmp_path / "caches" / "spark.jsa")
    assert "SharedArchiveFile" not in class_archive.java_options()
    assert class_archive.main() == 0
    assert [file.name for file in class_archive.ARCHIVE.parent.iterdir()] == ["spark.jsa"]
    # A JVM that may not do without it.
    options = class_archive.java_options().replace("-Xshare:auto", "-Xshare:on").replace("-Xlog:disable", "")
    code = f"""
from stateferry.spark_jobs.startup import class_archive
class_archive.java_options = lambda: {options!r} + " -Xlog:class+load:file={tmp_path}/classes"
from stateferry.spark_jobs.session import session
with session("archive") as sc:
    sc.setJobGroup("", "")
"""
    subprocess.run([sys.executable, "-c", code], timeout=400, check=True, capture_output=True)
    loaded = (tmp_path / "classes").read_text().splitlines()
    context = [line for line in loaded if " org.apache.spark.SparkContext " in line]
    assert ["shared objects file" in line for line in context] == [True]


def test_without_java_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    # In a process of its own: in this one Spark may have been started already.
    code = "from stateferry.spark_jobs.session import session\nwith session('none'): pass"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400)
    assert "MissingHereError: Spark needs Java 17 or later" in done.stderr


_FRESH = """
import ctypes, resource, sys
from stateferry.spark_jobs.startup import memory
# PR_SET_THP_DISABLE: with huge pages, the number of faults says little about the memory that was given back.
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
if sys.argv[1] == "keep":
    memory.keep()
import numpy as np
import pyarrow as pa

def work():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(6 << 20)
        pa.array(np.arange(1 << 20)).cast(pa.string())
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

work()
print(pa.default_memory_pool().backend_name, work())
"""


@pytest.mark.full
def test_a_process_keeps_the_memory_that_it_works_with() -> None:
    def pages(how: str) -> tuple[str, int]:
        command = [sys.executable, "-c", _FRESH, how]
        environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=True, env=environment)
        pool, count = done.stdout.split()
        return pool, int(count)

    pool, kept = pages("keep")
    assert pool == "system"
    assert kept < pages("not")[1] / 4
