"""Builds the images with buildah, which needs no daemon, on a base image that debootstrap makes of Debian's packages.

The base stands in for the image that a Dockerfile names by its digest, else they are built as they are. All images are
in a store of their own.
What the machine says about its package indexes (apt's and pip's settings, certificates) is mounted into a build and
stays in no image.
"""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[3]
_SEEN_BY_BUILDS = ("/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/ssl/certs/ca-certificates.crt")
# What the Debian of the base image is called, and what it has beside the least.
_RELEASE = "bookworm"
_DOCUMENTATION = ("/usr/share/doc", "/usr/share/info", "/usr/share/locale", "/usr/share/man")
_NO_PACKAGES_KEPT = """DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
APT::Update::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
"""
_PACKAGES = "ca-certificates,netbase,python3,python3-venv,tzdata"


@dataclass(frozen=True, slots=True)
class Store:
    """A folder with images."""

    folder: Path

    def base(self, tag: str) -> None:
        """Makes the base image, unless it is there already."""
        if self._says("images", "--quiet", "--filter", f"reference={tag}"):
            return
        with TemporaryDirectory(prefix="stateferry-base-") as name:
            root = Path(name) / "root"
            command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _RELEASE, str(root), _mirror()]
            _run(command)
            # Where the image that is stood in for has them.
            for python in ("python", "python3"):
                (root / "usr/local/bin" / python).symlink_to("/usr/bin/python3.11")
            # Where packages come from, the machine says at each build.
            (root / "etc/apt/sources.list").unlink()
            # As in Debian's images: no package that was installed is kept, and none has documentation.
            (root / "etc/apt/apt.conf.d/docker-clean").write_text(_NO_PACKAGES_KEPT)
            (root / "etc/dpkg/dpkg.cfg.d/docker").write_text(
                "".join(f"path-exclude {name}/*\n" for name in _DOCUMENTATION)
            )
            for name in ("/var/cache/apt", "/var/lib/apt/lists", *_DOCUMENTATION):
                shutil.rmtree(root / name[1:])
                (root / name[1:]).mkdir()
            container = self._says("from", "scratch")
            try:
                self._says("copy", container, str(root), "/")
                self._says("config", "--cmd", "python3", container)
                self._says("commit", "--quiet", container, tag)
            finally:
                self._says("rm", container)

    def build(self, dockerfile: Path, context: Path, tag: str, *more: str) -> None:
        with _settings_of_this_machine() as mounts:
            options = [f"--volume={inside}:{there}:ro" for inside, there in mounts.items()]
            self._says(
                "build",
                "--format=docker",
                "--isolation=chroot",
                "--pull=never",
                "--layers",
                *options,
                *more,
                "--file",
                str(dockerfile),
                "--tag",
                tag,
                str(context),
            )

    @contextmanager
    def mounted(self, tag: str) -> Iterator[Path]:
        """The image's root file system."""
        container = self._says("from", "--pull=never", tag)
        try:
            yield Path(self._says("mount", container))
        finally:
            self._says("rm", container)

    def config(self, tag: str) -> dict[str, Any]:
        """What the image says about its processes: user, environment, entry point, folder."""
        found: dict[str, Any] = json.loads(self._says("inspect", "--type=image", tag))["Docker"]["config"]
        return found

    def _says(self, *words: str) -> str:
        where = [f"--root={self.folder / 'images'}", f"--runroot={self.folder / 'running'}"]
        return _run(["buildah", *where, *words]).strip()


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return done.stdout


def _mirror() -> str:
    """From where this machine's apt gets the release's packages."""
    targets = _run(["apt-get", "indextargets", "--format", "$(CODENAME) $(SITE)", "Created-By: Packages"])
    return next(site for name, _, site in (line.partition(" ") for line in targets.splitlines()) if name == _RELEASE)


@contextmanager
def _settings_of_this_machine() -> Iterator[dict[str, str]]:
    """Files of this machine by their names, and the names that a build sees them by."""
    with TemporaryDirectory(prefix="stateferry-build-") as name:
        folder = Path(name)
        apt, pip = folder / "apt.conf", folder / "pip.conf"
        apt.write_text(_run(["apt-config", "dump", "Acquire"]))
        pip_settings = runpy.run_path(str(_REPOSITORY / "constraints" / "uv_like_pip.py"))["pip_settings"]
        settings = pip_settings(_run([sys.executable, "-m", "pip", "config", "list"]))
        # Folders of this machine aren't there.
        settings.pop("find-links", None)
        pip.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
        mounts = {str(apt): "/etc/apt/apt.conf.d/99machine", str(pip): "/etc/pip.conf"}
        mounts |= {there: there for there in _SEEN_BY_BUILDS if Path(there).exists()}
        yield mounts
