from __future__ import annotations

import sys

import pytest

from stateferry.spark_jobs.startup.import_path import prefer_installed


def test_the_installed_pyspark_comes_before_its_own_zip_but_not_before_another_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lib = "/env/site-packages/pyspark/python/lib"
    cluster = "/opt/spark/python/lib/pyspark.zip"
    zips = [f"{lib}/pyspark.zip", f"{lib}/py4j-0.10.9.9-src.zip"]
    monkeypatch.setattr(sys, "path", ["/jobs", *zips, cluster, "/lib/python", "/env/site-packages"])
    prefer_installed()
    assert sys.path == ["/jobs", cluster, "/lib/python", "/env/site-packages", *zips]


def test_the_zip_of_a_pyspark_that_cannot_be_imported_otherwise_stays_first(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ["/elsewhere/pyspark/python/lib/pyspark.zip", "/env/site-packages"]
    monkeypatch.setattr(sys, "path", list(path))
    prefer_installed()
    assert sys.path == path
