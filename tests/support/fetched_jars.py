"""Jars from a Maven repository, fetched once and shared by all test runs; a file pins each of them by its digest.

They come through the Ivy that Spark bundles, from the repositories that Ivy knows by itself; a machine needs no Maven.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_FETCH_SECONDS = 900


def java_tool(name: str) -> str:
    """The path of ``java`` or ``javac``: from ``JAVA_HOME`` if there is one, else by name from the search path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / name) if home else name


@dataclass(frozen=True)
class Jars:
    """Artifacts as ``group:name:version``, and the file that pins all their jars.

    With ``:classifier`` behind it, an artifact's jar with that classifier comes, too.
    What ``artifacts`` depend on comes along, without the groups in ``without``; of those ``alone`` nothing else comes.
    """

    name: str
    pins: Path
    artifacts: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def cache(self) -> Path:
        """The folder of these jars, and of what is made with them."""
        root = os.environ.get("STATEFERRY_CACHE")
        cache = (Path(root) if root else Path.home() / ".cache" / "stateferry") / self.name
        cache.mkdir(parents=True, exist_ok=True)
        return cache

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from the cache."""
        with (self.cache / "lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def folder(self) -> Path:
        """The folder with exactly the pinned jars. Its name follows the pins, so it is complete if it exists."""
        with self.locked():
            return self.folder_under_lock()

    def folder_under_lock(self) -> Path:
        pins = self.pins.read_text()
        target = self.cache / f"jars-{digest(pins.encode())}"
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=self.cache) as scratch:
                fetched = Path(scratch) / "jars"
                self._fetch(Path(scratch), fetched)
                found = _pins(fetched)
                if found != pins:
                    difference = sorted(set(found.splitlines()) ^ set(pins.splitlines()))
                    raise RuntimeError(f"the jars of {self.name} are not those of {self.pins}: {difference}")
                fetched.rename(target)
        return target

    def pin(self) -> None:
        """Writes anew which jars there are, after a deliberate change of version."""
        with tempfile.TemporaryDirectory() as scratch:
            fetched = Path(scratch) / "jars"
            self._fetch(Path(scratch), fetched)
            self.pins.write_text(_pins(fetched))
        sys.stdout.write(f"{self.pins}\n")

    def _fetch(self, scratch: Path, target: Path) -> None:
        dependencies = "".join(
            f'<dependency org="{group}" name="{name}" rev="{version}" conf="default->{conf}">{_classified(name, more)}'
            "</dependency>"
            for artifacts, conf in ((self.artifacts, "default"), (self.alone, "master"))
            for group, name, version, *more in (artifact.split(":") for artifact in artifacts)
        )
        dependencies += "".join(f'<exclude org="{group}"/>' for group in self.without)
        # Else no file has another name than it is pinned by.
        classified = "(-[classifier])" if "m:classifier" in dependencies else ""
        wanted = scratch / "ivy.xml"
        wanted.write_text(
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
            '<info organisation="stateferry" module="jars-for-tests"/>'
            '<configurations><conf name="default"/></configurations>'
            f"<dependencies>{dependencies}</dependencies></ivy-module>"
        )
        command = [java_tool("java"), "-cp", str(_ivy()), "org.apache.ivy.Main", "-cache", str(scratch / "cache")]
        command += ["-ivy", str(wanted), "-retrieve", str(target / f"[artifact]-[revision]{classified}.[ext]")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
        if done.returncode != 0 or not target.exists():
            raise RuntimeError(f"Ivy could not fetch {self.name}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


def digest(content: bytes) -> str:
    """A short name that follows from the content."""
    return hashlib.sha256(content).hexdigest()[:16]


def _classified(name: str, classifiers: Sequence[str]) -> str:
    """What of an artifact is fetched, if that isn't its jar alone."""
    jars = ["", *(f' m:classifier="{one}"' for one in classifiers)] if classifiers else []
    return "".join(f'<artifact name="{name}" type="jar" ext="jar"{one}/>' for one in jars)


def _ivy() -> Path:
    """Of this environment's Spark, or of the one for Spark: Airflow's brings only Spark's client."""
    spec = importlib.util.find_spec("pyspark")
    here = [Path(spec.origin).parent] if spec is not None and spec.origin is not None else []
    there = (Path(__file__).parents[2] / ".venv" / "lib").glob("python*/site-packages/pyspark")
    found = [jar for pyspark in (*here, *there) for jar in sorted((pyspark / "jars").glob("ivy-*.jar"))]
    if not found:
        raise RuntimeError("expected pyspark in this environment or in .venv, for the Ivy in it; run 'make setup'")
    return found[0]


def _pins(folder: Path) -> str:
    return "".join(f"{hashlib.sha256(j.read_bytes()).hexdigest()}  {j.name}\n" for j in sorted(folder.iterdir()))
