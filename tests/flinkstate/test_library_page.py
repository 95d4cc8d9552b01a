"""The examples of docs/library.md run as they stand there, one after the other."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import flinkstate
from stateferry.cli import main

PAGE = Path(__file__).parents[2] / "docs/library.md"


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (made,) = [line.split()[2:] for line in PAGE.read_text().splitlines() if line.startswith("$ stateferry")]
    assert main(made) == 0
    results = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.REPORT_NDIFF)
    assert results.failed == 0
    assert results.attempted > 20


def test_the_page_names_all_that_the_package_offers() -> None:
    text = PAGE.read_text()
    classes = {"OpenSavepoint", "OpenOperator", "OpenState"}  # These are what `open` returns, and come with it.
    assert [name for name in flinkstate.__all__ if name not in text] == sorted(classes)
