"""The digest of installed code: the same for the same sources wherever they are, another one for any other source."""

from __future__ import annotations

import hashlib
import py_compile
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stateferry.spark_jobs.installed_code import Code, difference, digest_of, folders, own_code

HERE = "host"


@pytest.fixture
def copy(tmp_path: Path) -> tuple[str, ...]:
    """The packages in another folder, where `spark_jobs` and `airflow` are folders and not links, as in a wheel."""
    for package in folders():
        shutil.copytree(package, tmp_path / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
    return tuple(str(tmp_path / Path(package).name) for package in folders())


def edited(folder: Path) -> None:
    plan = folder / "runs/plan/plan.py"
    plan.write_text(f"{plan.read_text()}\n")


def renamed(folder: Path) -> None:
    (folder / "demo.py").rename(folder / "demonstration.py")


def older(folder: Path) -> None:
    (folder / "spark_jobs/workers.py").unlink()


def test_the_same_code_elsewhere_is_the_same(copy: tuple[str, ...]) -> None:
    assert digest_of(copy) == digest_of(folders())
    assert difference((digest_of(copy), copy, HERE)) is None
    assert difference(("", copy, HERE)) is None


@pytest.mark.parametrize("change", [edited, renamed, older])
def test_any_other_source_is_another_code(change: Callable[[Path], None], copy: tuple[str, ...]) -> None:
    change(Path(copy[-1]))
    assert digest_of(copy) != digest_of(folders())
    for code in ((digest_of(copy), copy, HERE), ("", copy, HERE)):
        assert f"than the driver (in {copy[-1]} on {HERE})" in str(difference(code))


def test_an_environment_without_airflow_s_part_does_the_same(copy: tuple[str, ...]) -> None:
    shutil.rmtree(Path(copy[-1]) / "airflow")
    assert digest_of(copy) == digest_of(folders())


def test_compiled_files_count_where_there_are_no_sources(copy: tuple[str, ...]) -> None:
    plan = Path(copy[-1]) / "runs/plan/plan.py"
    py_compile.compile(str(plan), str(plan.with_suffix(".pyc")))
    assert digest_of(copy) == digest_of(folders())
    plan.unlink()
    assert digest_of(copy[-1:]) != digest_of(folders()[-1:])
    for package in copy:
        for file in Path(package).rglob("*.py"):
            file.unlink()
    assert digest_of(copy[::-1]) != hashlib.sha256().hexdigest()


def test_only_what_python_imports_counts(copy: tuple[str, ...]) -> None:
    (Path(copy[0]) / "__pycache__").mkdir()
    (Path(copy[0]) / "__pycache__/compiled.py").touch()
    (Path(copy[0]) / "notes.txt").touch()
    assert digest_of(copy) == digest_of(folders())


def test_the_same_folders_are_enough_on_one_machine_but_not_on_two() -> None:
    local: Code = own_code(is_local=True)
    assert local[0] == ""
    assert difference(local) is None
    assert difference(("another", *local[1:])) is not None
