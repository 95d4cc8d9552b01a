"""What the repository says of itself: where things are, when decisions were made, what checks a change."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import yaml

HOUSE = Path(__file__).parents[1]
WORKFLOW = HOUSE / ".github/workflows/ci.yml"


def test_what_the_list_of_places_names_is_there() -> None:
    text = (HOUSE / "CONTRIBUTING.md").read_text()
    section = text[text.index("### Where is it") : text.index("## Conventions")]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 20
    for row in rows:
        files = re.findall(r"`([a-z_]+/[^`]+)`", row.split("|")[2])
        assert files, row
        for file in files:
            assert (HOUSE / file).is_file(), row


def test_every_decision_has_a_date_and_is_listed() -> None:
    listed = (HOUSE / "docs/adr/README.md").read_text()
    files = sorted((HOUSE / "docs/adr").glob("0*.md"))
    assert len(files) > 10
    for file in files:
        decided = re.search(
            r"\n\nDecided on (\d{4}-\d{2}-\d{2})\.\n\n(?:\*\*Later\*\*[^#]*\n\n)?## Context", file.read_text()
        )
        assert decided, file.name
        assert re.search(rf"\[{file.name[:4]}\]\({file.name}\) \| {decided[1]} \|", listed), file.name


def test_the_workflow_runs_the_checks_on_the_oldest_and_the_newest_python() -> None:
    check = [str(Path(sys.executable).parent / "check-jsonschema"), "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*check, str(WORKFLOW)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    job = yaml.safe_load(WORKFLOW.read_text())["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert "http" not in WORKFLOW.read_text()


# Compiled code: a kernel keeps its loop in one piece.
KERNELS = re.compile(
    r"kernels\.py$|flinkstate/kryo/(flat_maps|kryo_2_leaves|objects|other_kryo_\w+|primitives|scalars|tuples)\.py$"
)


def test_modules_have_at_most_400_lines_and_functions_60_but_kernels() -> None:
    too_long = []
    for package in ("flinkstate", "stateferry", "plugins", "spark_jobs", "local_airflow", "benchmarks"):
        for path in sorted((HOUSE / package).rglob("*.py")):
            file, text = str(path.relative_to(HOUSE)), path.read_text()
            if KERNELS.search(file):
                continue
            lines = len(text.splitlines())
            too_long += [f"{file}: {lines}"] if lines > 400 else []
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                    size = node.end_lineno - node.lineno + 1
                    too_long += [f"{file}: {node.name} {size}"] if size > 60 else []
    assert too_long == []
