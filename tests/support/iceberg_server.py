"""An Iceberg REST catalog for tests: Iceberg's own, a process on loopback with its database and tables in a folder."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.fetched_jars import Jars, java_tool
from tests.support.hdfs_server import HADOOP
from tests.support.servers import LOOPBACK, free_port, wait_until_listens, with_us

_PATIENCE = 240.0
_VERSION = "1.11.0"
# The server is among the classes of Iceberg's tests. It writes files by Hadoop, of which HADOOP has the client.
ICEBERG = Jars(
    f"iceberg-{_VERSION}",
    Path(__file__).with_name(f"jars-iceberg-{_VERSION}.sha256"),
    (f"org.apache.iceberg:iceberg-core:{_VERSION}:tests", "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.12"),
    alone=("org.xerial:sqlite-jdbc:3.50.3.0",),
)


class IcebergServer:
    """A server; it ends with the context, or with this process. `log` is what it says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.log = folder / "rest.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        class_path = f"{ICEBERG.folder()}/*:{HADOOP.folder()}/*"
        program = [str(Path(__file__).with_name("RestCatalog.java")), str(self.port)]
        program += [f"jdbc:sqlite:{self._folder}/rest.db", f"{self._folder}/tables"]
        with self.log.open("wb") as log:
            command = [*with_us(), java_tool("java"), *options, "-cp", class_path, *program]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_until_listens("the REST catalog", self.port, self._process, self.log, _PATIENCE)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
