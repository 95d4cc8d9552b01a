"""The classes that a local session loads, kept as the JVM has them after parsing: it starts in half the time.

`python -m spark_jobs.startup.class_archive`, once after an installation; the JVM itself sees to it that an archive of
another Java or of other jars is left alone. It lies beside the compiled kernels' caches, in the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from spark_jobs.startup import java

ARCHIVE = Path(__file__).parent / "__pycache__" / f"spark-{pyspark.__version__}.jsa"
_WRITTEN_TO = "STATEFERRY_CLASS_ARCHIVE"


def java_options() -> str:
    """For the JVM of a local session. What it has to say of an archive that doesn't fit is nobody's concern."""
    if written := os.environ.get(_WRITTEN_TO):
        return f"-XX:ArchiveClassesAtExit={written} -Xlog:disable"
    return f"-XX:SharedArchiveFile={ARCHIVE} -Xshare:auto -Xlog:disable" if ARCHIVE.exists() else ""


def main() -> int:
    if java.program() is None:
        sys.stdout.write("no Java here: Spark will start without an archive of its classes\n")
        return 0
    began = time.monotonic()
    draft = ARCHIVE.with_suffix(f".{os.getpid()}")
    ARCHIVE.parent.mkdir(exist_ok=True)
    try:
        # In a process of its own: it is at the JVM's end that the archive is written.
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
from spark_jobs.session import session, wait_until_stopped
from spark_jobs.workers import SparkWorkers
with session("class archive") as sc:
    SparkWorkers(sc).do("class archive", [-1, 1], abs)
    gateway = sc._gateway
wait_until_stopped()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""

if __name__ == "__main__":
    sys.exit(main())
