"""The bill of materials of the images: what the Dockerfiles install, as it is pinned, and nothing of the tests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HOUSE = Path(__file__).parents[2]


def bill(image: str, *status: Path) -> dict[str, Any]:
    command = [sys.executable, str(HOUSE / "constraints/sbom.py"), image, *map(str, status)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def pinned(environment: str) -> set[str]:
    """As the bills name packages."""
    text = (HOUSE / f"constraints/{environment}.txt").read_text()
    names = [line.partition("==") for line in text.split()]
    return {f"pkg:pypi/{re.sub('[-_.]+', '-', name.lower())}@{version}" for name, _, version in names}


PINNED = {"spark": pinned("spark"), "airflow": pinned("spark") | pinned("airflow") | pinned("kubernetes")}


@pytest.mark.parametrize("image", ["spark", "airflow"])
def test_each_package_is_a_pinned_one_and_each_reference_leads_somewhere(image: str) -> None:
    found = bill(image)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch("urn:uuid:[0-9a-f-]{36}", found["serialNumber"])
    references = [one["bom-ref"] for one in found["components"]]
    assert len(references) == len(set(references)) > 40
    own = {one for one in references if one.startswith("pkg:pypi/stateferry@")}
    assert len(own) == 1
    assert set(references) - own <= PINNED[image]
    root = found["metadata"]["component"]
    assert (root["type"], root["name"]) == ("container", f"stateferry-{image}")
    edges = {one["ref"]: one["dependsOn"] for one in found["dependencies"]}
    assert edges.keys() == {*references, root["bom-ref"]}
    assert {one for needed in edges.values() for one in needed} == set(references)
    assert bill(image) == found


def test_what_an_image_installs_is_there_and_what_it_removes_or_the_tests_need_is_not() -> None:
    of_spark, of_airflow = ({one["name"] for one in bill(image)["components"]} for image in ("spark", "airflow"))
    assert {"pyspark", "numba", "psycopg-binary", "botocore", "hdfs-native", "pyiceberg"} <= of_spark < of_airflow
    # grpcio came with the client of Spark Connect, which is removed again.
    assert {"apache-airflow-core", "asyncpg", "psycopg2-binary", "grpcio", "kubernetes-asyncio"} <= of_airflow
    of_tests = {"pytest", "mypy", "ruff", "hypothesis"}
    assert not (of_tests | {"pip", "setuptools", "uv", "wheel", "pyspark-client", "grpcio-status"}) & of_airflow


def test_a_package_that_is_not_the_pinned_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "constraints").mkdir()
    text = (HOUSE / "constraints/spark.txt").read_text()
    (tmp_path / "constraints/spark.txt").write_text(re.sub(r"^rich==.*$", "rich==1.2.3", text, flags=re.MULTILINE))
    (tmp_path / "constraints/sbom.py").write_text((HOUSE / "constraints/sbom.py").read_text())
    (tmp_path / "docker").symlink_to(HOUSE / "docker")
    (tmp_path / ".venv").symlink_to(HOUSE / ".venv")
    command = [sys.executable, str(tmp_path / "constraints/sbom.py"), "spark"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"rich \S+ isn't what constraints/spark.txt pins: make setup installs that\n", done.stderr)


STATUS = """\
Package: libgcc-s1
Status: install ok installed
Architecture: amd64
Version: 12.2.0-14+deb12u1
Description: GCC support library
 Version: of its own

Package: libstdc++6
Status: install ok installed
Architecture: amd64
Version: 12.2.0-14+deb12u1

Package: passwd
Status: install ok installed
Architecture: amd64
Version: 1:4.13+dfsg1-1

Package: removed
Status: deinstall ok config-files
Architecture: all
Version: 1
"""


def test_debians_packages_are_those_that_dpkg_says_are_installed(tmp_path: Path) -> None:
    (tmp_path / "status").write_text(STATUS)
    found, before = bill("spark", tmp_path / "status"), bill("spark")
    more = [one["purl"] for one in found["components"] if one not in before["components"]]
    assert more == [
        "pkg:deb/debian/libgcc-s1@12.2.0-14%2Bdeb12u1?arch=amd64",
        "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?arch=amd64",
        "pkg:deb/debian/passwd@1%3A4.13%2Bdfsg1-1?arch=amd64",
    ]
    (whole,) = [one["dependsOn"] for one in found["dependencies"] if one["ref"] == "spark"]
    assert set(more) <= set(whole)
    assert len(found["components"]) == len(before["components"]) + 3


def test_a_file_that_dpkg_has_not_written_is_an_error(tmp_path: Path) -> None:
    """Such as the one that a `docker run` leaves which has failed."""
    (tmp_path / "empty").touch()
    (tmp_path / "other").write_text("Unable to find image\n\nStatus: unknown\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, says in {
        "empty": "names no installed package",
        "other": "names no installed package",
        "binary": "can't be read",
        "missing": "can't be read",
    }.items():
        command = [sys.executable, str(HOUSE / "constraints/sbom.py"), "spark", str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert re.match(f"{re.escape(str(tmp_path / name))} {says}", done.stderr), done.stderr
        assert "Traceback" not in done.stderr
