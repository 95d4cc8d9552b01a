"""Both images as a team builds them: what is in them, and that a user without rights can migrate with them.

Containers have no network and a read-only root file system.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docker.images.buildah import Store
from tests.docker.images.conftest import AIRFLOW, REPOSITORY, SPARK, base_tag
from tests.docker.images.containers import Container, Image, Pod
from tests.docker.test_sbom import bill

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.timeout(2400)]

_MB = 1_000_000
# More than the base image has. Raise them only for what is used at run time.
_LARGEST = {SPARK: 860 * _MB, AIRFLOW: 1150 * _MB}
_BUILD_TOOLS = ("cc", "g++", "gcc", "javac", "jlink", "ld", "pip", "pip3", "strip", "uv", "wheel")
_EMPTY = ("build", "root", "tmp", "var/cache/apt", "var/lib/apt/lists", "var/tmp")
_OWNED = {"/opt/airflow/home", "/opt/stateferry/kernels"}
_STATES = "--operator main --legacy-state mainState --new-state newMainState --flag-state isMigratedState --ttl 30d"
_HOST = "here"
_DEMO = "stateferry demo-savepoint /data/legacy --ttl 30d"
_MIGRATION = f"stateferry run --savepoint /data/legacy --target /data/migrated {_STATES}"
_WIDER = "stateferry run --savepoint /data/migrated --target /data/wider --max-parallelism 256 --job wider"
_SQL = """
from stateferry.spark_jobs.session import local_session
spark = local_session("sql")
state = spark.read.format("flink_savepoint").option("path", "/data/wider").option("operator", "main")
state.option("state", "newMainState").load().createOrReplaceTempView("entry")
(row,) = spark.sql("SELECT count(DISTINCT key), min(key_group), max(key_group) FROM entry").collect()
print(*row)
"""
_EXECUTOR = """
from airflow.executors.executor_loader import ExecutorLoader
from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
print(ExecutorLoader.import_default_executor_cls()[0].__name__, KubernetesHook.__name__)
"""


def size(folder: Path) -> int:
    command = ["du", "--summarize", "--one-file-system", "--bytes", str(folder)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])


def in_a_container(image: Image, folder: Path, *commands: list[str]) -> str:
    """What the last of the commands says."""
    data = folder / "data"
    data.mkdir(mode=0o777)
    data.chmod(0o777)
    with Pod(folder / "pod", [_HOST]).running() as pod:
        for command in commands:
            done = pod.run(Container(image, _HOST, {"/data": data}), *command)
            assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.mark.parametrize("tag", [SPARK, AIRFLOW])
def test_an_image_is_not_larger_than_it_must_be(
    tag: str, images: dict[str, Image], base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, beneath = size(images[tag].root), size(base)
    with capsys.disabled():
        sys.stdout.write(f"\n{tag}: {whole // _MB} MB, of which the base {beneath // _MB} MB\n")
    assert whole - beneath <= _LARGEST[tag]


@pytest.mark.parametrize("tag", [SPARK, AIRFLOW])
def test_an_image_has_nothing_that_builds_and_no_cache(tag: str, images: dict[str, Image], base: Path) -> None:
    root = images[tag].root
    folders = [*images[tag].environment["PATH"].split(":"), "/opt/airflow/venv/bin"]
    there = [f"{folder}/{tool}" for folder in folders for tool in _BUILD_TOOLS]
    assert [tool for tool in there if (root / tool[1:]).exists()] == []
    for folder in _EMPTY:
        files = {
            file.relative_to(root) for file in (root / folder).rglob("*") if file.is_file() and file.stat().st_size
        }
        assert files <= {file.relative_to(base) for file in (base / folder).rglob("*")}, folder


def test_a_package_with_another_hash_is_refused(store: Store, tmp_path: Path) -> None:
    """One that comes with another: no line of the Dockerfile names it."""
    constraints = shutil.copytree(REPOSITORY / "constraints", tmp_path / "constraints")
    hashes = constraints / "hashes/spark.txt"
    (found,) = re.findall(r"^packaging==(?:.*\\\n)+.*\n", hashes.read_text(), re.MULTILINE)
    hashes.write_text(hashes.read_text().replace(found, re.sub(r"sha256:....", "sha256:0000", found)))
    with pytest.raises(RuntimeError, match="Hash mismatch for `packaging=="):
        store.build(REPOSITORY / "docker/spark.Dockerfile", tmp_path, "altered", f"--from={base_tag()}")


def test_the_bill_of_materials_has_debians_packages_of_both_images(images: dict[str, Image]) -> None:
    of_dpkg = images[SPARK].root / "var/lib/dpkg"
    assert (of_dpkg / "status").read_text() == (images[AIRFLOW].root / "var/lib/dpkg/status").read_text()
    command = ["dpkg-query", f"--admindir={of_dpkg}", "-W", "-f", "${Package} ${Version}\n"]
    there = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    listed = [one for one in bill("spark", of_dpkg / "status")["components"] if one["purl"].startswith("pkg:deb/")]
    assert sorted(f"{one['name']} {one['version']}" for one in listed) == sorted(there)
    assert {"procps", "tini"} < {one.split()[0] for one in there}


def test_airflows_image_has_the_executor_of_the_charts_values_and_the_hook_of_kubernetes(
    images: dict[str, Image], tmp_path: Path
) -> None:
    executor = yaml.safe_load((REPOSITORY / "docker/kubernetes/airflow-values.yaml").read_text())["executor"]
    settings = ["env", f"AIRFLOW__CORE__EXECUTOR={executor}", "AIRFLOW_HOME=/tmp/airflow"]
    said = in_a_container(images[AIRFLOW], tmp_path, [*settings, "/opt/airflow/venv/bin/python", "-c", _EXECUTOR])
    assert said.split()[-2:] == [executor, "KubernetesHook"]


@pytest.mark.parametrize("tag", [SPARK, AIRFLOW])
def test_an_images_user_owns_nothing_but_its_folders(tag: str, images: dict[str, Image]) -> None:
    root, user = images[tag].root, int(images[tag].user)
    assert user != 0
    owned = {
        f"/{file.relative_to(root)}"
        for folder in ("etc", "opt", "usr")
        for file in (root / folder).rglob("*")
        if not file.is_symlink() and (file.stat().st_uid == user or file.stat().st_mode & 0o002)
    }
    assert {name for name in owned if not name.startswith("/opt/stateferry/kernels/")} <= _OWNED


@pytest.mark.parametrize("tag", [SPARK, AIRFLOW])
def test_a_container_can_write_nowhere_but_where_it_may(tag: str, images: dict[str, Image], tmp_path: Path) -> None:
    command = ["sh", "-c", "id --user; find / -xdev -type d -writable 2>/dev/null"]
    user, *writable = in_a_container(images[tag], tmp_path, command).split()
    assert user == "50000"
    assert set(writable) == {"/data", "/tmp"}


@pytest.mark.parametrize("tag", [SPARK, AIRFLOW])
def test_an_image_migrates_rehashes_and_answers_sql(tag: str, images: dict[str, Image], tmp_path: Path) -> None:
    python = "/opt/spark/bin/python"
    commands = [_DEMO.split(), _MIGRATION.split(), _WIDER.split(), [python, "-W", "ignore", "-c", _SQL]]
    keys, first, last = map(int, in_a_container(images[tag], tmp_path, *commands).split()[-3:])
    # A few keys have nothing but entries that have expired.
    assert 9_000 < keys <= 10_000
    assert (first, last) == (0, 255)


def test_the_images_kernels_are_used(images: dict[str, Image], tmp_path: Path) -> None:
    image = images[SPARK]
    compiled = {file.name for file in (image.root / "opt/stateferry/kernels").rglob("*.nbc")}
    script = f"{_DEMO} && {_MIGRATION} && find $NUMBA_CACHE_DIR -name '*.nbc'"
    said = in_a_container(image, tmp_path, ["bash", "-c", script])
    assert compiled
    assert {Path(word).name for word in said.split() if word.endswith(".nbc")} == compiled
