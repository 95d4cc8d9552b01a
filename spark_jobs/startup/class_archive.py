"""An archive of the classes that a local session loads, with which the JVM starts in half the time.

`python -m stateferry.spark_jobs.startup.class_archive` writes it, once after an installation. It is in the environment,
beside the caches of compiled kernels. The JVM ignores an archive of another Java or of other jars.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from stateferry.spark_jobs.startup import java

ARCHIVE = Path(__file__).parent / "__pycache__" / f"spark-{version('pyspark')}.jsa"
_WRITTEN_TO = "STATEFERRY_CLASS_ARCHIVE"
# The JVM only passes work on to the workers, so a fast start matters more than speed later.
_FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def java_options() -> str:
    """Options by which a local session's JVM starts fast: it uses (or writes) the archive, or starts without messages.

    It doesn't use the archive if its class path begins with a folder that isn't empty, as with `SPARK_CONF_DIR`.
    """
    if written := os.environ.get(_WRITTEN_TO):
        return f"{_FAST_START} -XX:ArchiveClassesAtExit={written} -Xlog:disable"
    archive = f" -XX:SharedArchiveFile={ARCHIVE} -Xshare:auto -Xlog:disable" if ARCHIVE.exists() else ""
    return f"{_FAST_START}{archive}"


def main() -> int:
    """Writes the archive."""
    if java.program() is None:
        sys.stdout.write("no Java here: Spark will start without an archive of its classes\n")
        return 0
    began = time.monotonic()
    draft = ARCHIVE.with_suffix(f".{os.getpid()}")
    ARCHIVE.parent.mkdir(exist_ok=True)
    try:
        # This needs a process of its own, because the JVM writes the archive when it ends.
        environment = os.environ | {_WRITTEN_TO: str(draft)}
        done = subprocess.run([sys.executable, "-c", _SESSION], env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode or not draft.exists():
            sys.stderr.write(done.stderr)
            return 1
        draft.replace(ARCHIVE)
    finally:
        draft.unlink(missing_ok=True)
    sys.stdout.write(f"Spark's classes are ready, {time.monotonic() - began:.1f} s\n")
    return 0


_SESSION = """
from stateferry.spark_jobs.session import session, wait_until_stopped
from stateferry.spark_jobs.workers import SparkWorkers
with session("class archive") as sc:
    list(SparkWorkers(sc).do("class archive", [-1, 1], abs))
    gateway = sc._gateway
wait_until_stopped()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""

if __name__ == "__main__":
    sys.exit(main())
