"""The wheel: built without a network, installed beside other packages, and used far from the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]
PACKED = ("flinkstate", "stateferry", "plugins", "spark_jobs", "pyproject.toml", "README.md", "LICENSE")
DATA = {
    "flinkstate/py.typed",
    "stateferry/py.typed",
    "stateferry/show/style.css",
    "stateferry/spark_jobs/log4j2.properties",
}
AIRFLOW_PYTHON = HOUSE / ".venv-airflow/bin/python"
_IMPORTED = """
import importlib, pathlib, pkgutil, sys
for name in sys.argv[2:]:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        if not found.name.startswith("stateferry.airflow") or name == "stateferry.airflow":
            if found.name.rpartition(".")[2] != "__main__":
                module = importlib.import_module(found.name)
                assert pathlib.Path(module.__file__).is_relative_to(sys.argv[1]), module.__file__
print(sum(name.split(".")[0] in ("flinkstate", "stateferry") for name in sys.modules))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is packed, and tests beside it, as a fresh clone has them."""
    folder = tmp_path_factory.mktemp("clone")
    for name in PACKED:
        if (HOUSE / name).is_dir():
            shutil.copytree(HOUSE / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(HOUSE / name, folder)
    for test in ("tests/__init__.py", "tests/support/__init__.py"):
        (folder / test).parent.mkdir(exist_ok=True)
        (folder / test).touch()
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-q"]
    said(*build, "--wheel-dir", str(dist), str(sources))
    (made,) = dist.iterdir()
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment with the wheel, which sees the packages of this one, but not the checkout."""
    folder = tmp_path_factory.mktemp("environment")
    said(sys.executable, "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin/python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "-q"]
    said(*install, str(wheel))
    # Such a line adds the folder alone; the files in it that lead to the checkout aren't read.
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _bring_kernels(site)
    yield folder
    shutil.rmtree(folder)


def _bring_kernels(site: Path) -> None:
    """Brings what the checkout has of compiled kernels, or each process would compile those that it calls.

    numba takes them for those of a file that was changed at the same time and is as large.
    """
    for package in ("flinkstate", "stateferry"):
        for compiled in (HOUSE / package).rglob("__pycache__/*.nb[ci]"):
            shutil.copy(compiled, site / compiled.parent.relative_to(HOUSE))
        for file in (HOUSE / package).rglob("*.py"):
            changed = file.stat().st_mtime_ns
            os.utime(site / file.relative_to(HOUSE), ns=(changed, changed))


def said(*command: str, folder: Path | None = None, path: str = "") -> str:
    """What a command prints, with neither the checkout nor its environment in sight."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "STATEFERRY_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    variables |= {"PATH": path + os.environ["PATH"], "STATEFERRY_HOME": str(folder)} if path else {}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_has_two_import_names_and_their_files(wheel: Path, sources: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        (top,) = [name for name in names if name.endswith("top_level.txt")]
        assert opened.read(top).decode().split() == ["flinkstate", "stateferry"]
        said = opened.read(metadata).decode()
    for line in ("License-Expression: Apache-2.0", "Classifier: Typing :: Typed", "# Stateferry"):
        assert f"{line}\n" in said
    for extra in ("airflow", "hdfs", "kubernetes", "openlineage", "postgres", "s3", "spark"):
        assert f"Provides-Extra: {extra}\n" in said
    packed = {name for name in names if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in packed} == {"flinkstate", "stateferry"}
    assert {name for name in packed if not name.endswith(".py")} == DATA
    for package, folder in (("flinkstate", "flinkstate"), ("stateferry", "stateferry"),
                            ("stateferry/airflow", "plugins"), ("stateferry/spark_jobs", "spark_jobs")):  # fmt: skip
        modules = {f"{package}/{file.relative_to(sources / folder)}" for file in (sources / folder).rglob("*.py")}
        assert len(modules) > 20
        assert modules <= packed


def test_the_page_says_what_it_is_called(wheel: Path) -> None:
    named = re.findall(r"[\w.-]+\.whl", (HOUSE / "docs/deploy.md").read_text())
    assert len(named) > 2
    assert set(named) == {wheel.name}


def test_the_source_distribution_has_the_same_files(wheel: Path, sources: Path, tmp_path: Path) -> None:
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    said(sys.executable, "-c", build, str(tmp_path), folder=sources)
    (made,) = tmp_path.iterdir()
    with tarfile.open(made) as opened:
        found = {member.name.partition("/")[2] for member in opened if member.isfile()}
    with zipfile.ZipFile(wheel) as opened:
        packed = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert packed <= found
    assert not any(name.startswith("tests") for name in found)


def test_all_its_modules_can_be_imported(environment: Path, tmp_path: Path) -> None:
    python = str(environment / "bin/python")
    assert int(said(python, "-c", _IMPORTED, str(environment), "flinkstate", "stateferry", folder=tmp_path)) > 300


def test_airflow_can_import_what_its_dags_are_made_of(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(tmp_path / "unpacked")
    unpacked = str(tmp_path / "unpacked")
    code = (
        f"import os, sys; sys.path.insert(0, {unpacked!r}); os.environ['AIRFLOW_HOME'] = {str(tmp_path)!r}\n{_IMPORTED}"
    )
    command = [str(AIRFLOW_PYTHON), "-c", code, unpacked, "stateferry.airflow"]
    assert int(said(*command, folder=tmp_path).split()[-1]) > 60


@pytest.mark.full
def test_the_command_works_far_from_the_checkout(environment: Path, tmp_path: Path) -> None:
    command = str(environment / "bin/stateferry")
    assert said(command, "--version", folder=tmp_path).startswith("stateferry 0.1.0")
    assert "50 keys" in said(command, "demo-savepoint", "demo", "--keys", "50", folder=tmp_path)
    assert "newMainState" in said(command, "inspect", "demo", folder=tmp_path)
    library = (HOUSE / "examples/library.py").read_text()
    assert "30 in " in said(str(environment / "bin/python"), "-c", library, folder=tmp_path)


@pytest.mark.spark
def test_a_migration_works_far_from_the_checkout(environment: Path, tmp_path: Path) -> None:
    """By the script in examples/, with a real Spark."""
    script = str(shutil.copy(HOUSE / "examples/migration.sh", tmp_path))
    shown = said("sh", script, str(tmp_path), folder=tmp_path, path=f"{environment / 'bin'}:")
    assert "can be migrated" in shown
    assert shown.count('"user_key":"item') == 3
    assert (tmp_path / "new/_metadata").exists()


_DAGS = """
import json, os, sys
os.environ["AIRFLOW_VAR_STATE_MIGRATION"] = json.dumps({"jobs": {"orders": {
    "own_tasks": "stateferry.airflow.examples.own_tasks", "request": {
    "source": "flink", "flink_job": "orders", "savepoint_directory": "/savepoints", "operator": "main",
    "legacy_state": "maps", "new_state": "rows", "start_job": True, "runs_on": "own tasks"}}}})
sys.path.insert(0, sys.argv[1])
from airflow.dag_processing.dagbag import DagBag
found = DagBag(sys.argv[1], safe_mode=True, known_pools={"default_pool", "stateferry_outage"})
assert not found.import_errors, found.import_errors
from stateferry.airflow.kubernetes.connection import api_server
server = api_server("here")
import stateferry, stateferry.airflow.tasks.lineage
from stateferry.airflow.examples.own_dag import dag
assert dag.dag_id == "orders_on_mondays"
assert stateferry.__file__.startswith(sys.prefix), stateferry.__file__
print(*sorted(found.dags), server.url, dict(server.headers()))
"""


_PAGE = """
from airflow.api_fastapi.app import create_app
from starlette.testclient import TestClient
with TestClient(create_app()) as client:
    shown = client.get("/stateferry/")
    print(shown.status_code, "there" if "Stateferry" in shown.text else shown.text)
"""


def installed(wheel: str, folder: Path, *constraints: str) -> Path:
    """The Python of a fresh environment with the wheel and all that it brings, from the index that pip has."""
    python = folder / "environment/bin/python"
    said(sys.executable, "-m", "venv", "--without-pip", str(folder / "environment"))
    uv = [sys.executable, str(HOUSE / "constraints/uv_like_pip.py"), "pip", "install", "-q", "--python", str(python)]
    said(*uv, *(f"--constraints={HOUSE / 'constraints/hashes' / name}.txt" for name in constraints), wheel)
    return python


@pytest.mark.parametrize("name", sorted(file.stem for file in HOUSE.glob("constraints/*.txt")))
def test_every_pinned_package_has_its_hashes(name: str) -> None:
    text = (HOUSE / f"constraints/hashes/{name}.txt").read_text()
    pinned = [line.partition("==") for line in (HOUSE / f"constraints/{name}.txt").read_text().lower().split()]
    hashed = re.findall(r"^(\S+==\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text, re.MULTILINE)
    names = {re.sub("[_.]", "-", package) + equals + version for package, equals, version in pinned}
    assert {package for package, _ in hashed} == names
    assert not re.search(r"://|index", text)


@pytest.mark.full
def test_a_package_with_another_hash_is_refused(tmp_path: Path) -> None:
    text = (HOUSE / "constraints/hashes/airflow.txt").read_text()
    (mdurl,) = re.findall(r"^mdurl==(?:.*\\\n)+.*\n", text, re.MULTILINE)
    (tmp_path / "altered.txt").write_text(text.replace(mdurl, re.sub(r"sha256:....", "sha256:0000", mdurl)))
    said(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "environment"))
    uv = [sys.executable, str(HOUSE / "constraints/uv_like_pip.py"), "pip", "install", "--no-cache"]
    # rich comes with it.
    command = [*uv, "--python", str(tmp_path / "environment"), "-c", str(tmp_path / "altered.txt"), "rich"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Hash mismatch for `mdurl==" in done.stderr


@pytest.mark.full
@pytest.mark.spark
def test_a_fresh_environment_migrates_and_shows_the_page(wheel: Path, tmp_path: Path) -> None:
    """With nothing of the checkout but the script that people copy: demo savepoint, run, report as a page."""
    python = installed(f"{wheel}[spark]", tmp_path, "spark")
    script = str(shutil.copy(HOUSE / "examples/migration.sh", tmp_path))
    said("sh", script, str(tmp_path), folder=tmp_path, path=f"{python.parent}:")
    assert (tmp_path / "new/_metadata").exists()
    command = [str(python.with_name("stateferry")), "report", "2", "--html", "report.html"]
    said(*command, folder=tmp_path / "home", path=f"{python.parent}:")
    assert "newMainState" in (tmp_path / "home/report.html").read_text()


@pytest.mark.full
def test_airflow_and_what_goes_beside_it_are_extras(wheel: Path, tmp_path: Path) -> None:
    """With all that they bring, from the index that pip has: the DAGs by import are parsed far from the checkout, and
    Airflow's API server has the pages."""
    python = installed(f"{wheel}[airflow,kubernetes,openlineage]", tmp_path, "airflow", "kubernetes")
    dags = tmp_path / "dags"
    dags.mkdir()
    page = (HOUSE / "docs/airflow.md").read_text()
    for name, lines in re.findall(r"^```python\n# (state_\w+\.py)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        (dags / name).write_text(lines)
    cluster = {"name": "here", "cluster": {"server": "http://127.0.0.1:9"}}
    user = {"name": "me", "user": {"token": "secret"}}
    context = {"name": "here", "context": {"cluster": "here", "user": "me"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "here"}
    lists = {"clusters": [cluster], "users": [user], "contexts": [context]}
    (tmp_path / "kubeconfig").write_text(json.dumps(config | lists))
    extra = {"kube_config_path": str(tmp_path / "kubeconfig")}
    code = (
        f"import os; os.environ['AIRFLOW_HOME'] = {str(tmp_path)!r}\n"
        f"os.environ['AIRFLOW_CONN_HERE'] = {json.dumps({'conn_type': 'kubernetes', 'extra': extra})!r}\n{_DAGS}"
    )
    shown = said(str(python), "-c", code, str(dags), folder=tmp_path).splitlines()[-1]
    assert shown.startswith("state_migration state_migration_orders state_rollback http://127.0.0.1:9 ")
    assert "Bearer secret" in shown
    settings = {"AIRFLOW_HOME": tmp_path / "airflow", "STATEFERRY_HOME": tmp_path / "home"}
    asked = ["env", *(f"{name}={value}" for name, value in settings.items())]
    asked += ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS=True"]
    said(*asked, str(python.with_name("airflow")), "db", "migrate", folder=tmp_path)
    assert said(*asked, str(python), "-c", _PAGE, folder=tmp_path).splitlines()[-1] == "200 there"
