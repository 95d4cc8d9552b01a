"""An S3 server for tests: S3Proxy, a process of its own on loopback that keeps its objects in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fetched_jars import Jars, java_tool
from tests.support.servers import LOOPBACK, ServerProcess

_MAIN = "org.gaul.s3proxy.Main"
# The server keeps objects on disk: it needs no drivers for other stores.
S3_PROXY = Jars(
    "s3proxy-4.1.0",
    Path(__file__).with_name("jars-s3proxy-4.1.0.sha256"),
    ("org.gaul:s3proxy:4.1.0",),
    without=(
        *("com.google.cloud", "com.azure", "io.grpc", "org.apache.sshd"),
        *("com.github.openstack4j.core", "com.github.openstack4j.core.connectors"),
    ),
)
_LOG = """<configuration><appender name="log" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %level %logger %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="log"/></root></configuration>
"""


class S3Server(ServerProcess):
    """A server with one bucket."""

    bucket = "stateferry"
    key, secret, region = "key-of-the-tests", "secret-of-the-tests", "eu-central-2"
    secrets = (key, secret)

    def __init__(self, folder: Path, port: int = 0) -> None:
        super().__init__(folder / "s3.log", port)
        self._folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """What AWS's own tools read; with it everything that runs finds the server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def uri(self, *path: str) -> str:
        return "/".join(("s3:/", self.bucket, *path))

    def set_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)

    def prepared(self, address: str = LOOPBACK) -> list[str]:
        """Writes its settings, and returns the command by which it starts and listens on the address."""
        (self._folder / "objects" / self.bucket).mkdir(parents=True)
        (self._folder / "logback.xml").write_text(_LOG)
        settings = {
            "s3proxy.endpoint": f"http://{address}:{self.port}",
            "s3proxy.authorization": "aws-v4",
            "s3proxy.identity": self.key,
            "s3proxy.credential": self.secret,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.identity": "none",
            "jclouds.credential": "none",
            "jclouds.filesystem.basedir": str(self._folder / "objects"),
        }
        (self._folder / "s3.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        options += [f"-Dlogback.configurationFile={self._folder / 'logback.xml'}"]
        java = [str(java_tool("java")), *options, "-cp", f"{S3_PROXY.folder()}/*"]
        return [*java, _MAIN, "--properties", str(self._folder / "s3.properties")]
