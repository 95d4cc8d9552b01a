"""S3Proxy in a pod, as the store of a team."""

from __future__ import annotations

from pathlib import Path

from tests.docker.images.containers import Pod
from tests.support.s3_server import S3Server

HOST, _PORT = "object-store", 9000
SETTINGS = {
    "AWS_ENDPOINT_URL": f"http://{HOST}:{_PORT}",
    "AWS_REGION": S3Server.region,
    "AWS_ACCESS_KEY_ID": S3Server.key,
    "AWS_SECRET_ACCESS_KEY": S3Server.secret,
    "STATEFERRY_HOME": f"s3://{S3Server.bucket}/home",
}
"""What `docker/.env.example` asks for."""


def start_store(pod: Pod, folder: Path) -> None:
    """The bucket is a folder in its `objects`."""
    folder.mkdir()
    pod.start_process(HOST, *S3Server(folder, _PORT).prepared("0.0.0.0"))
