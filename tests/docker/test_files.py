"""The images' and the services' descriptions: by the linters of their kinds, and by what is promised of them."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKER = REPOSITORY / "docker"
IMAGES = sorted(DOCKER.glob("*.Dockerfile"))
COMPOSE, ON_S3 = DOCKER / "compose.yaml", DOCKER / "compose.s3.yaml"
_TOOLS = Path(sys.executable).parent
_VERSIONED = re.compile(r"[a-z-]+(/[a-z-]+)?:\d+\.\d+\.?\d*(-[a-z0-9.-]+)?")
# An image of others may get another content under the same version.
_OWN = "stateferry-"
_FIXED = re.compile(_VERSIONED.pattern + "@sha256:[0-9a-f]{64}")


def is_fixed(image: str) -> bool:
    return (_VERSIONED if image.startswith(_OWN) else _FIXED).fullmatch(image) is not None


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def lint(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_an_image_passes_its_linter(image: Path) -> None:
    lint(_TOOLS / "hadolint", "--failure-threshold", "style", image)


@pytest.mark.slow
def test_the_services_are_what_compose_expects() -> None:
    lint(_TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE, ON_S3)


def test_the_stores_variant_is_of_the_same_services(services: dict[str, Any]) -> None:
    added = yaml.safe_load(ON_S3.read_text())["services"]
    assert added.keys() <= services.keys()
    assert all(service.keys() <= {"environment", "command"} for service in added.values())


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_an_image_is_built_of_fixed_versions_and_runs_as_nobody_special(image: Path) -> None:
    lines = image.read_text().splitlines()
    arguments = dict(line.removeprefix("ARG ").split("=") for line in lines if line.startswith("ARG "))
    stages: set[str] = set()
    for line in lines:
        if line.startswith("FROM "):
            base, _, name = line.removeprefix("FROM ").partition(" AS ")
            assert base in stages or is_fixed(arguments.get(base.strip("${}"), base))
            stages.add(name)
    users = [line.removeprefix("USER ") for line in lines if line.startswith("USER ")]
    assert users[-1] == "50000"


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_what_an_image_copies_is_there_and_not_ignored(image: Path) -> None:
    allowed = [line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [
        source
        for line in image.read_text().splitlines()
        if line.startswith("COPY ") and not line.startswith("COPY --from=")
        for source in line.removeprefix("COPY ").split()[:-1]
    ]
    assert sources
    for source in sources:
        assert (REPOSITORY / source).exists(), source
        assert any(source == name or source.startswith(f"{name}/") for name in allowed), source


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_an_image_has_no_package_without_a_known_hash(image: Path) -> None:
    """uv asks for the hashes that constraints have. `.` is the copied sources, with nothing that they need."""
    commands = [
        command.split()
        for line in image.read_text().replace("\\\n", " ").splitlines()
        for command in line.removeprefix("RUN ").split(" && ")
        if " pip install " in command
    ]
    assert len(commands) > 2
    for command in commands:
        by_uv = command[1] == "constraints/uv_like_pip.py"
        if command[-2:] == ["-r", "uv.txt"]:
            assert "--require-hashes" in command
        elif command[-1] == ".":
            assert "--no-deps" in command
        else:
            lists = [name for option, name in pairwise(command) if option == "-c"]
            assert by_uv
            assert lists
            assert all(name.startswith("constraints/hashes/") for name in lists)


def test_the_dags_of_an_image_lead_to_no_file_that_it_does_not_have() -> None:
    """Nor do those of a DAGs folder or bundle that has `dags/` alone."""
    assert not [file for file in (REPOSITORY / "dags").rglob("*") if file.is_symlink()]


def test_images_have_versions_and_no_address_of_a_registry(services: dict[str, Any]) -> None:
    assert all(is_fixed(service["image"]) for service in services.values())


def test_nothing_listens_beyond_this_machine(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert all(service.get("network_mode") != "host" for service in services.values())


def test_secrets_come_from_outside_and_none_has_a_default(services: dict[str, Any]) -> None:
    asked = set(re.findall(r"\$\{([A-Z_]+):\?", COMPOSE.read_text() + ON_S3.read_text()))
    told = dict(line.split("=", 1) for line in (DOCKER / ".env.example").read_text().splitlines() if "=" in line[:30])
    assert asked == {name for name in told if not name.startswith("#")}
    assert not any(told[name] for name in asked)
    for service in services.values():
        settings = service.get("environment", {})
        for name, value in settings.items():
            if re.search(r"PASSWORD$|SECRET|KEY$", name):
                assert re.fullmatch(r"\$\{[A-Z_]+:\?[^}]+\}", str(value)), name


def test_what_stays_up_says_whether_it_is_well(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["restart"] in ("no", "unless-stopped"), name
        assert (service["restart"] == "unless-stopped") == ("healthcheck" in service), name


def test_a_service_of_an_image_writes_only_to_its_volumes_and_to_tmp(services: dict[str, Any]) -> None:
    ours = [service for service in services.values() if service["image"].startswith("stateferry-")]
    assert len(ours) > 5
    assert all(service["read_only"] and service["tmpfs"] == ["/tmp:exec"] for service in ours)


def test_flink_comes_only_when_asked_for(services: dict[str, Any]) -> None:
    flink = {name for name, service in services.items() if service["image"].startswith("flink:")}
    assert flink == {name for name, service in services.items() if service.get("profiles") == ["flink"]}
    assert len(flink) == 3


def test_services_wait_for_services_that_there_are(services: dict[str, Any]) -> None:
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            wanted = {"service_healthy": "healthcheck", "service_completed_successfully": "command"}[how["condition"]]
            assert wanted in services[name]
