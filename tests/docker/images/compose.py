"""Starts the services of `docker/compose.yaml` in a pod: their commands, users, environments, volumes and order.

Postgres has an image of its own, so this machine's Postgres takes its place.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.docker.images.containers import Container, Image, Pod

REPOSITORY = Path(__file__).resolve().parents[3]
FILE, ON_S3 = (REPOSITORY / "docker" / name for name in ("compose.yaml", "compose.s3.yaml"))
DATABASE = "postgres"
_VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>\w+)(?::(?P<kind>[?-])(?P<rest>[^}]*))?\})")
_PATIENCE = 180.0


@dataclass(slots=True)
class Services:
    """Those that start without a profile."""

    images: Mapping[str, Image]
    folder: Path
    variables: Mapping[str, str]
    # A file whose environments and commands are added to those of the first.
    also: Path | None = None
    # Hosts that are no services.
    others: Sequence[str] = ()
    services: dict[str, Any] = field(init=False)
    pod: Pod = field(init=False)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        file = yaml.safe_load(FILE.read_text())
        if self.also is not None:
            for name, added in yaml.safe_load(self.also.read_text())["services"].items():
                service = file["services"][name]
                environment = {**service.get("environment", {}), **added["environment"]}
                file["services"][name] = {**service, **added, "environment": environment}
        services = {name: self._filled(service) for name, service in file["services"].items()}
        self.services = {name: service for name, service in services.items() if "profiles" not in service}
        self.pod = Pod(self.folder / "logs", [*self.hosts, *self.others])
        for volume in file["volumes"]:
            self.volume(volume).mkdir(parents=True, exist_ok=True)

    def volume(self, name: str) -> Path:
        return self.folder / "volumes" / name

    @property
    def hosts(self) -> list[str]:
        return [host for name in self.services for host in self._hosts(name)]

    def start_all(self) -> None:
        """Each service but Postgres, after those that it waits for."""
        left = [name for name in self.services if name != DATABASE]
        while left:
            ready = next(name for name in left if not set(self._waits_for(name)) & set(left))
            left.remove(ready)
            for other, how in self._waits_for(ready).items():
                if how["condition"] == "service_healthy" and other != DATABASE:
                    self.wait_until_healthy(other)
            self._start(ready)

    def _start(self, name: str) -> None:
        service = self.services[name]
        for host in self._hosts(name):
            container = self.container(name, host)
            if service["restart"] != "no":
                self._running[host] = self.pod.start(container, *service["command"])
            elif (done := self.pod.run(container, *service["command"])).returncode:
                raise RuntimeError(f"{name} ended with {done.returncode}: {done.stdout[-3000:]}")

    def wait_until_healthy(self, name: str) -> None:
        kind, *words = self.services[name]["healthcheck"]["test"]
        command = words if kind == "CMD" else ["sh", "-c", *words]
        end = time.monotonic() + _PATIENCE
        for host in self._hosts(name):
            while (check := self.pod.run(self.container(name, host), *command)).returncode:
                if ended := [one for one, process in self._running.items() if process.poll() is not None]:
                    raise RuntimeError("\n".join(f"{one} has ended: {self._said(one)}" for one in ended))
                if time.monotonic() > end:
                    raise TimeoutError(f"{host} is not healthy: {check.stdout}\n{self._said(host)}")
                time.sleep(1)

    def _hosts(self, name: str) -> list[str]:
        replicas = self.services[name].get("deploy", {}).get("replicas", 1)
        return [name] if replicas == 1 else [f"{name}-{number}" for number in range(1, replicas + 1)]

    def _waits_for(self, name: str) -> dict[str, Any]:
        return dict(self.services[name].get("depends_on", {}))

    def _said(self, host: str) -> str:
        """The end of its log."""
        return self.pod.log(host).read_text(errors="replace")[-3000:]

    def container(self, name: str, host: str) -> Container:
        service = self.services[name]
        volumes = (volume.split(":") for volume in service.get("volumes", ()))
        assert service["read_only"], name
        assert service.get("hostname", host) == host
        return Container(
            image=self.images[service["image"]],
            host=host,
            mounts={inside: self.volume(volume) for volume, inside in volumes},
            temporary=[folder.partition(":")[0] for folder in service.get("tmpfs", ())],
            environment=service.get("environment", {}),
            user=service.get("user"),
        )

    def _filled(self, value: Any) -> Any:
        """With the variables in their places."""
        match value:
            case str():
                return _VARIABLE.sub(self._variable, value)
            case list():
                return [self._filled(one) for one in value]
            case dict():
                return {name: self._filled(one) for name, one in value.items()}
        return value

    def _variable(self, found: re.Match[str]) -> str:
        if found["name"] is None:
            return "$"
        if found["kind"] == "?":
            return self.variables[found["name"]]
        return self.variables.get(found["name"], found["rest"])
