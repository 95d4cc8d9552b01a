"""Which Java Spark would start: refused before it is started where Spark surely can't start with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flinkstate.errors import MissingHereError
from stateferry.basics.exit_codes import MISSING_HERE
from stateferry.spark_jobs.startup import java
from tests.support.legacy_states import LegacyState

_SAYS = {
    "8": 'java version "1.8.0_392"\nJava(TM) SE Runtime Environment (build 1.8.0_392-b08)',
    "11": 'openjdk version "11.0.22" 2024-01-16',
    "17": 'openjdk version "17.0.15" 2025-04-15',
    "21": 'openjdk version "21.0.8" 2025-07-15 LTS',
    "25": 'openjdk version "25" 2025-09-16',
    "strange": "Picked up nothing",
}


def installed(folder: Path, version: str, *, release: str | None = None, modules: str = "") -> Path:
    """A Java that says what it is, and fails at everything else as one does that doesn't know Spark's options."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/started\n'
        f"if [ \"$1\" = -version ]; then echo '{_SAYS[version]}' >&2; exit 0; fi\n"
        "echo 'Unrecognized option: --add-modules=jdk.incubator.vector' >&2\n"
        "echo 'Error: Could not create the Java Virtual Machine.' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    if release is not None:
        text = f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{release}"\n'
        (folder / "release").write_text(text + (f'MODULES="{modules}"\n' if modules else ""))
    return folder


@pytest.mark.parametrize(("version", "refused"), [(name, name in ("8", "11")) for name in _SAYS])
def test_a_java_without_a_release_file_is_asked(
    version: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed(tmp_path, version)))
    if refused:
        said = rf"^Spark needs Java 17 or later: {tmp_path}/bin/java is Java (1\.8|11)\..*set JAVA_HOME to its folder$"
        with pytest.raises(MissingHereError, match=said):
            java.check()
    else:
        java.check()
    assert (tmp_path / "started").read_text() == "-version\n"


@pytest.mark.parametrize(
    ("release", "refused"),
    [("1.8.0_392", True), ("11.0.22", True), ("16", True), ("17.0.15", False), ("21.0.8", False), ("26-ea", False)],
)
def test_its_release_file_is_enough(
    release: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed(tmp_path, "strange", release=release)))
    if refused:
        with pytest.raises(MissingHereError, match=f"is Java {release}"):
            java.check()
    else:
        java.check()
    assert not (tmp_path / "started").exists()


def test_one_without_the_module_that_spark_asks_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = installed(tmp_path / "small", "21", release="21.0.8", modules="java.base java.se")
    whole = installed(tmp_path / "whole", "21", release="21.0.8", modules="java.base jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(small))
    with pytest.raises(MissingHereError, match=r"jdk\.incubator\.vector, and .*/small/bin/java \(Java 21\.0\.8\)"):
        java.check()
    monkeypatch.setenv("JAVA_HOME", str(whole))
    java.check()


def test_the_java_of_the_path_is_found_behind_its_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = installed(tmp_path / "java-11", "strange", release="11.0.22")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(folder / "bin" / "java")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(MissingHereError, match=r"is Java 11\.0\.22"):
        java.check()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingHereError, match="there is no java on the PATH, and JAVA_HOME isn't set"):
        java.check()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "bin" / "java").unlink()
    with pytest.raises(MissingHereError, match=f"no program bin/java in {tmp_path}"):
        java.check()


@pytest.mark.slow
def test_a_run_says_it_in_one_line_instead_of_starting_spark(tmp_path: Path) -> None:
    LegacyState(blobs={"a": ({"x": 1}, 0)}).write(str(tmp_path / "source"))
    environment = os.environ | {
        "JAVA_HOME": str(installed(tmp_path / "java", "11")),
        "STATEFERRY_HOME": str(tmp_path / "home"),
    }
    command = [sys.executable, "-m", "stateferry.cli", "run", "--savepoint", str(tmp_path / "source"), "--target"]
    command += [str(tmp_path / "target"), "--operator", "main", "--legacy-state", "mainState", "--new-state", "new"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400)
    assert done.returncode == MISSING_HERE, done.stderr
    sign, error = done.stderr.splitlines()
    assert sign == "Spark is starting"
    assert error.startswith("stateferry: Spark needs Java 17 or later: ")
