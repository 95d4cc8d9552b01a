"""An HDFS for tests: a NameNode and two DataNodes, processes of their own on loopback with their data in a folder."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from tests.support.fetched_jars import Jars, java_tool
from tests.support.servers import LOOPBACK, Server, free_port, listens, with_us

_NODES = "org.apache.hadoop.hdfs.server"
_VERSION = "3.4.2"
_PATIENCE = 120.0
_COPIES = 2
# What Hadoop's nodes need, and their clients in Java.
HADOOP = Jars(
    f"hadoop-{_VERSION}",
    Path(__file__).with_name(f"jars-hadoop-{_VERSION}.sha256"),
    alone=(
        *(f"org.apache.hadoop:hadoop-client-{part}:{_VERSION}" for part in ("minicluster", "api", "runtime")),
        *(f"org.slf4j:{part}:1.7.36" for part in ("slf4j-api", "slf4j-simple")),
        "commons-logging:commons-logging:1.2",
    ),
)


class HdfsServer(Server):
    """An HDFS with two copies of each block; it ends with the context, or with this process."""

    secrets: tuple[str, ...] = ()

    def __init__(self, folder: Path, port: int = 0) -> None:
        self._folder = folder
        self.port = port or free_port()
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def settings(self) -> Path:
        """The folder with Hadoop's settings, as HADOOP_CONF_DIR names it."""
        return self._folder / "settings"

    @property
    def environment(self) -> dict[str, str]:
        """What Hadoop's own tools read."""
        return {"HADOOP_CONF_DIR": str(self.settings)}

    def set_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    @property
    def client_class_path(self) -> str:
        """What a program in Java needs to reach it."""
        clients = ("hadoop-client-api", "hadoop-client-runtime", "commons-logging")
        return ":".join(str(jar) for jar in HADOOP.folder().iterdir() if jar.name.startswith(clients))

    def uri(self, *path: str) -> str:
        return "/".join((f"hdfs://{LOOPBACK}:{self.port}", *path))

    def start(self) -> None:
        self._write_settings()
        self._end(self._node("namenode.NameNode", "-format", "-nonInteractive"))
        for number in range(_COPIES):
            self._nodes[f"data {number}"] = self._data_node(number)
        self.start_name_node()

    def _write_settings(self) -> None:
        self.settings.mkdir(parents=True)
        node = {
            "dfs.namenode.name.dir": str(self._folder / "names"),
            "dfs.namenode.rpc-address": f"{LOOPBACK}:{self.port}",
            "dfs.namenode.http-address": f"{LOOPBACK}:0",
            "dfs.replication": str(_COPIES),
            # Else a client that closes a file before the NameNode has heard of its last block waits for half a second.
            # With a single copy it waits in any case.
            "dfs.namenode.file.close.num-committed-allowed": "1",
            # What the NameNode notes needn't survive the machine.
            "dfs.namenode.edits.noeditlogchannelflush": "true",
            "dfs.namenode.safemode.extension": "0",
            # A DataNode that is silent for twelve seconds counts as dead.
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "1000",
        }
        for name, content in (("core-site", {"fs.defaultFS": self.uri()}), ("hdfs-site", node)):
            properties = "".join(
                f"<property><name>{key}</name><value>{escape(value)}</value></property>\n"
                for key, value in content.items()
            )
            (self.settings / f"{name}.xml").write_text(f"<configuration>\n{properties}</configuration>\n")

    def _data_node(self, number: int) -> subprocess.Popen[bytes]:
        own = {"data.dir": str(self._folder / f"blocks-{number}")}
        # The system chooses the ports: one that is free now may be taken before a DataNode has started.
        own |= dict.fromkeys(("address", "http.address", "ipc.address"), f"{LOOPBACK}:0")
        return self._node("datanode.DataNode", *(f"-Ddfs.datanode.{name}={value}" for name, value in own.items()))

    def _node(self, main: str, *options: str) -> subprocess.Popen[bytes]:
        java = [java_tool("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        java += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{self.settings}:{HADOOP.folder()}/*"]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*with_us(), *java, f"{_NODES}.{main}", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def _log(self) -> Path:
        return self._folder / "hdfs.log"

    def _end(self, node: subprocess.Popen[bytes]) -> None:
        if node.wait(_PATIENCE) != 0:
            raise RuntimeError(f"the NameNode can't be formatted:\n{self._said()}")

    def _wait(self) -> None:
        """Waits until a file can be written: a DataNode reports some seconds after it listens."""
        end = time.monotonic() + _PATIENCE
        while not (listens(self.port) and self._is_writable()):
            if any(node.poll() is not None for node in self._nodes.values()) or time.monotonic() > end:
                raise RuntimeError(f"HDFS doesn't come up:\n{self._said()}")
            time.sleep(0.1)

    def _is_writable(self) -> bool:
        from hdfs_native import Client, WriteOptions

        try:
            with Client(self.uri()).create("/first", WriteOptions(overwrite=True)) as file:
                file.write(b"x")
        except (OSError, RuntimeError):
            return False
        return True

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def close(self) -> None:
        for name in tuple(self._nodes):
            self._kill(name)

    def start_name_node(self) -> None:
        self._nodes["name"] = self._node("namenode.NameNode")
        self._wait()

    def kill_name_node(self) -> None:
        self._kill("name")

    def kill_data_node(self, number: int) -> None:
        self._kill(f"data {number}")

    def _kill(self, name: str) -> None:
        node = self._nodes.pop(name)
        node.kill()
        node.wait()
