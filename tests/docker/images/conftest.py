from __future__ import annotations

import os
import secrets
import shutil
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docker.images.buildah import Store
from tests.docker.images.containers import Image

REPOSITORY = Path(__file__).resolve().parents[3]
SPARK, AIRFLOW = "stateferry-spark:0.1.0", "stateferry-airflow:0.1.0"
_PROGRAMS = {"buildah": "buildah", "bwrap": "bubblewrap", "debootstrap": "debootstrap", "ip": "iproute2"}


def base_tag() -> str:
    """The name of what stands in for the image that the first Dockerfile begins with, which has a digest there."""
    lines = (REPOSITORY / "docker" / "spark.Dockerfile").read_text().splitlines()
    return "localhost/" + next(line.split()[1] for line in lines if line.startswith("FROM ")).partition("@")[0]


@pytest.fixture(scope="session")
def store() -> Store:
    missing = [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        pytest.skip(f"the images are not built: Debian's packages {' '.join(missing)} are not installed")
    if os.geteuid() != 0:
        pytest.skip("the images are not built: that needs root")
    store = Store(REPOSITORY / ".cache" / "images")
    store.base(base_tag())
    for name, begins_with in (("spark", (f"--from={base_tag()}",)), ("airflow", ())):
        store.build(REPOSITORY / "docker" / f"{name}.Dockerfile", REPOSITORY, f"stateferry-{name}:0.1.0", *begins_with)
    return store


@pytest.fixture(scope="session")
def images(store: Store) -> Iterator[dict[str, Image]]:
    """By their names in `docker/compose.yaml`."""
    with ExitStack() as mounted:
        yield {tag: Image(mounted.enter_context(store.mounted(tag)), store.config(tag)) for tag in (SPARK, AIRFLOW)}


@pytest.fixture(scope="session")
def base(store: Store) -> Iterator[Path]:
    with store.mounted(base_tag()) as root:
        yield root


@pytest.fixture(scope="session")
def secrets_of_the_team() -> dict[str, str]:
    """As `docker/.env.example` says to make them."""
    example = (REPOSITORY / "docker" / ".env.example").read_text().splitlines()
    made = {line.partition("=")[0]: secrets.token_urlsafe(32) for line in example if line[:1] not in ("", "#")}
    return made | {"AIRFLOW_FERNET_KEY": urlsafe_b64encode(os.urandom(32)).decode()}
