"""Prints which packages are in an image, as CycloneDX JSON: a software bill of materials.

    .venv/bin/python constraints/sbom.py airflow [STATUS] > stateferry-airflow.cdx.json

STATUS is the image's /var/lib/dpkg/status, by which Debian's packages are listed, too: no Dockerfile names them all.
What is in neither isn't listed: the Java that the Spark image is built with, and the base image's own Python.
What an image installs and removes again is read from its Dockerfile, what that needs from the packages themselves, in
the environments of `make setup`, and every version must be the pinned one. The same constraints give the same text.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HOUSE = Path(__file__).parents[1]
# The images, each with the environments in it: that of Airflow lies on top of that of Spark.
IMAGES = {"spark": ("spark",), "airflow": ("spark", "airflow")}
# Where the packages of an environment are installed here, and which constraints pin them.
_INSTALLED = {
    "spark": (".venv/lib/python*/site-packages",),
    "airflow": (".venv-airflow/lib/python*/site-packages", ".cache/kubernetes-provider"),
}
_PINNED = {"spark": ("spark",), "airflow": ("airflow", "kubernetes")}
_OWN = "stateferry"
# docker/slim.sh removes them last.
_ONLY_TO_BUILD = frozenset({"pip", "setuptools", "uv", "wheel"})


@dataclass(frozen=True)
class Environment:
    """One of the Python environments in an image: what is installed by name, and which packages are removed again."""

    name: str
    wanted: tuple[Requirement, ...]
    removed: frozenset[str]
    installed: dict[str, Distribution] = field(repr=False)
    pinned: dict[str, str] = field(repr=False)

    @classmethod
    def of(cls, name: str) -> Environment:
        wanted, removed = [], set(_ONLY_TO_BUILD)
        text = (HOUSE / f"docker/{name}.Dockerfile").read_text().replace("\\\n", " ")
        parts = (part for line in text.splitlines() if line.startswith("RUN ") for part in line.split("&&"))
        for command in (shlex.split(part) for part in parts if " pip " in part):
            if "uninstall" in command:
                removed |= {canonicalize_name(word) for word in _names(command, "uninstall")}
            elif "--no-deps" not in command:
                wanted += [Requirement(re.sub(r"^\.", _OWN, word)) for word in _names(command, "install")]
        sites = [str(site) for folder in _INSTALLED[name] for site in HOUSE.glob(folder)]
        installed: dict[str, Distribution] = {canonicalize_name(one.name): one for one in distributions(path=sites)}
        pins = [pin for file in _PINNED[name] for pin in (HOUSE / f"constraints/{file}.txt").read_text().split()]
        pinned: dict[str, str] = {canonicalize_name(pin.partition("==")[0]): pin.partition("==")[2] for pin in pins}
        return cls(name, tuple(wanted), frozenset(removed), installed, pinned)

    def packages(self) -> dict[str, set[str]]:
        """Each package in the environment, with those that it needs."""
        found: dict[str, set[str]] = {}
        asked = [(canonicalize_name(one.name), extra) for one in self.wanted for extra in ("", *one.extras)]
        seen = set(asked)
        while asked:
            name, extra = asked.pop()
            # What a removed package has brought stays.
            needs = found.setdefault(name, set())
            for one in self._needs(name, extra):
                needs |= {canonicalize_name(one.name)} - self.removed
                more = {(canonicalize_name(one.name), extra) for extra in ("", *one.extras)} - seen
                seen |= more
                asked += more
        return {name: needs for name, needs in found.items() if name not in self.removed}

    def _needs(self, name: str, extra: str) -> Iterator[Requirement]:
        if name not in self.installed:
            sys.exit(f"{name} isn't in {' or '.join(_INSTALLED[self.name])}: make setup installs it")
        for text in self.installed[name].requires or ():
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                yield one

    def version(self, name: str) -> str:
        found = self.installed[name].version
        if name != _OWN and found != self.pinned.get(name):
            files = " or ".join(f"constraints/{file}.txt" for file in _PINNED[self.name])
            sys.exit(f"{name} {found} isn't what {files} pins: make setup installs that")
        return found


def _names(command: list[str], verb: str) -> Iterator[str]:
    """The packages that a command of pip, or of uv, names."""
    words = iter(command[command.index(verb) + 1 :])
    for word in words:
        if word in ("-c", "-r"):
            next(words)
        elif not word.startswith("-"):
            yield word


def debian(status: str) -> Iterator[dict[str, Any]]:
    """Debian's packages, by what dpkg says of an image."""
    for package in status.split("\n\n"):
        said = dict(line.split(": ", 1) for line in package.splitlines() if re.match(r"\S+: ", line))
        if said.get("Status", "").endswith(" installed"):
            name, version = said["Package"], said["Version"]
            reference = f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?arch={said['Architecture']}"
            yield {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference}


def _read(status: Path) -> str:
    try:
        text = status.read_text()
    except (OSError, ValueError) as error:
        sys.exit(f"{status} can't be read as an image's /var/lib/dpkg/status: {error}")
    if next(debian(text), None) is None:
        sys.exit(f"{status} names no installed package: it isn't an image's /var/lib/dpkg/status")
    return text


def bill(image: str, status: str = "") -> dict[str, Any]:
    """What is in the image."""
    components: dict[str, dict[str, Any]] = {}
    needed: dict[str, set[str]] = {}
    for environment in map(Environment.of, IMAGES[image]):
        packages = environment.packages()
        references = {name: f"pkg:pypi/{name}@{environment.version(name)}" for name in packages}
        for name, reference in references.items():
            components[reference] = _component(environment.installed[name], name, reference)
            needed.setdefault(reference, set()).update(references[one] for one in packages[name])
    for one in debian(status):
        components[one["bom-ref"]], needed[one["bom-ref"]] = one, set()
    own = next(one for one in components.values() if one["name"] == _OWN)
    of = {"type": "container", "bom-ref": image, "name": f"{_OWN}-{image}", "version": own["version"]}
    needed[image] = set(components)
    found: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": of},
        "components": [components[one] for one in sorted(components)],
        "dependencies": [{"ref": one, "dependsOn": sorted(needed[one])} for one in sorted(needed)],
    }
    number = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(found, sort_keys=True))
    return {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "serialNumber": f"urn:uuid:{number}", **found}


def _component(package: Distribution, name: str, reference: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "library", "bom-ref": reference, "name": name, "version": package.version}
    if "License-Expression" in package.metadata:
        found["licenses"] = [{"expression": package.metadata["License-Expression"]}]
    return {**found, "purl": reference}


if __name__ == "__main__":
    if sys.argv[1:2] not in [[image] for image in IMAGES] or len(sys.argv) > 3:
        sys.exit(f"expected one of {', '.join(IMAGES)}, and perhaps a file of dpkg")
    print(json.dumps(bill(sys.argv[1], "".join(_read(Path(one)) for one in sys.argv[2:])), indent=1))  # noqa: T201
