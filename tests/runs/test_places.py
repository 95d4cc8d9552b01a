"""The names of places in a plan: each place has one name, and home and tables lie where their names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from flinkstate.errors import PlanError, UsageError
from flinkstate.files.storage import Location
from stateferry.runs.checks.separate_places import check_separate_places
from stateferry.runs.plan.plan_json import plan_of
from tests.runs.test_plan import VALUES, problems

UNCLEAR = (
    "s3://b/sp/x/../demo/in",
    "s3a://b/sp/./demo/in",
    "s3://b/sp//demo/in",
    "s3://b//sp/demo/in",
    "gs://b/sp/x/../demo/in",
    "abfss://c@a.dfs.core.windows.net/sp/x/../demo/in",
    "hdfs://nn:8020/sp/x/../demo/in",
    "hdfs:///sp/./demo",
    "viewfs://cluster//sp",
    "s3://b:9000/sp/demo/in",
    "s3://me@b/sp/demo/in",
    "s3://b%2e/sp/demo/in",
    "S3://b/sp/demo/in",
    "FILE:///sp/demo/in",
)


@pytest.mark.parametrize("name", UNCLEAR)
@pytest.mark.parametrize("field", ["source", "target", "home", "warehouse"])
def test_a_place_that_may_be_another_than_it_seems_is_refused(field: str, name: str) -> None:
    (line, *_) = problems({**VALUES, "catalog_uri": "postgresql://db/catalog", field: name})
    assert line.startswith((f"{field}: {name} ", f"{field}: {name}: "))
    with pytest.raises(UsageError):
        Location.of(name)
    (line,) = problems({**VALUES, "files_from": {"s3://old": name}})
    assert line.startswith(f"files_from: {name}")


@pytest.mark.parametrize(("old", "new"), [("/old", "new/folder"), ("old", "/new")])
def test_a_place_of_files_is_absolute(old: str, new: str) -> None:
    (line,) = problems({**VALUES, "files_from": {old: new}})
    assert line.startswith("files_from: expected an absolute path or a URI, found ")


@pytest.mark.parametrize("name", [" ", "\n", "\0", "/sp/\0demo", "file:/sp/\0demo", "s3://b/sp/\0demo"])
@pytest.mark.parametrize("field", ["source", "target", "home", "warehouse"])
def test_what_no_file_can_be_called_is_refused(field: str, name: str) -> None:
    """A blank was taken for a folder below the working folder, and a NUL ended in an internal error."""
    (line, *_) = problems({**VALUES, "catalog_uri": "postgresql://db/catalog", field: name})
    assert line == f"{field}: {name!r} is no name of a place: expected a path or URI"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://b/sp", "s3a://b/sp/in"),
        ("s3p://b/sp", "s3://b/sp/in"),
        ("gs://b/sp", "gcs://b/sp/in"),
        ("abfs://c@a.dfs.core.windows.net/sp", "wasbs://c@A.blob.core.windows.net/sp/in"),
        ("hdfs://nn/sp", "hdfs://NN:8020/sp/in"),
        ("hdfs://nn/sp/in", "hdfs://nn:8020/sp"),
    ],
)
def test_two_names_of_a_store_are_the_same_place(one: str, other: str) -> None:
    plan = plan_of({**VALUES, "source": one, "target": other})
    with pytest.raises(PlanError, match="the one contain the other"):
        check_separate_places(plan)
    check_separate_places(plan_of({**VALUES, "source": one, "target": "s3://other/target"}))


def test_a_file_uri_is_the_path_that_it_names(tmp_path: Path) -> None:
    values = {**VALUES, "source": str(tmp_path / "demo")}
    for target in (
        f"file://{tmp_path}/x/../demo/in",
        f"file:{tmp_path}/./demo//in",
        f"file://localhost{tmp_path}/demo",
    ):
        (line,) = problems({**values, "target": target})
        assert "lie one in the other" in line


@pytest.mark.parametrize("sign", ["?", "#", "%20", "%3f", "\n", "\t", "\r", "\x7f"])
def test_a_name_that_sqlite_or_iceberg_takes_for_another_is_refused(sign: str, tmp_path: Path) -> None:
    for field, name in (("home", f"{tmp_path}/a{sign}b"), ("warehouse", f"{tmp_path}/a{sign}b")):
        (line,) = problems({**VALUES, field: name})
        assert line.startswith(f"{field}: {name!r} has ")
        assert line.endswith("so that SQLite or Iceberg would write somewhere else: choose a name without it")
    (line,) = problems({**VALUES, "catalog_uri": f"sqlite:///{tmp_path}/a{sign}b/catalog.db"})
    assert line.startswith("catalog_uri: ")
    plan_of({**VALUES, "catalog_uri": "postgresql://me@db/catalog?sslmode=require"})


@pytest.mark.parametrize("address", ["sqlite:///", "sqlite:///catalog.db", "sqlite:///:memory:", "mysql://db/catalog"])
def test_a_catalog_that_each_working_folder_has_another_of_is_refused(address: str) -> None:
    (line,) = problems({**VALUES, "catalog_uri": address})
    assert line.startswith("catalog_uri: expected sqlite:////absolute/path.db or postgresql://host/database, found ")


def test_a_catalog_in_the_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    values = {**VALUES, "source": str(tmp_path / "source"), "home": str(tmp_path / "home")}
    with pytest.raises(PlanError, match=r"catalog .* lies in the source"):
        check_separate_places(plan_of({**values, "catalog_uri": f"sqlite:///{tmp_path}/source/catalog.db"}))
    check_separate_places(plan_of(values))


@pytest.mark.parametrize("inside", ["home/runs/orders/mine", "home/runs", "home/link/mine", "tables/orders", "."])
def test_a_target_among_the_runs_or_the_tables_is_refused(inside: str, tmp_path: Path) -> None:
    """`stateferry clean` would remove what was published there, as a run without a plan."""
    (tmp_path / "home" / "runs").mkdir(parents=True)
    (tmp_path / "home" / "link").symlink_to(tmp_path / "home" / "runs" / "orders")
    values = {**VALUES, "source": "/elsewhere/source", "home": str(tmp_path / "home")}
    values |= {"warehouse": str(tmp_path / "tables"), "catalog_uri": "postgresql://db/catalog"}
    with pytest.raises(PlanError, match=r"the folder of the (runs|tables), lie one in the other"):
        check_separate_places(plan_of({**values, "target": f"{tmp_path}/{inside}"}))
    for beside in ("home/targets/mine", "home/runs-of-mine", "tables-2"):
        check_separate_places(plan_of({**values, "target": f"{tmp_path}/{beside}"}))
