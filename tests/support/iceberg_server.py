"""An Iceberg REST catalog for tests: Iceberg's own, a process on loopback with its database and tables in a folder."""

from __future__ import annotations

from pathlib import Path

from tests.support.fetched_jars import Jars, java_tool
from tests.support.hdfs_server import HADOOP
from tests.support.servers import ServerProcess

_VERSION = "1.11.0"
# The server is among the classes of Iceberg's tests. It writes files by Hadoop, of which HADOOP has the client.
ICEBERG = Jars(
    f"iceberg-{_VERSION}",
    Path(__file__).with_name(f"jars-iceberg-{_VERSION}.sha256"),
    (f"org.apache.iceberg:iceberg-core:{_VERSION}:tests", "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.12"),
    alone=("org.xerial:sqlite-jdbc:3.50.3.0",),
)


class IcebergServer(ServerProcess):
    """A REST catalog."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "rest.log")
        self._folder = folder

    def prepared(self) -> list[str]:
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        class_path = f"{ICEBERG.folder()}/*:{HADOOP.folder()}/*"
        program = [str(Path(__file__).with_name("RestCatalog.java")), str(self.port)]
        program += [f"jdbc:sqlite:{self._folder}/rest.db", f"{self._folder}/tables"]
        return [java_tool("java"), *options, "-cp", class_path, *program]
