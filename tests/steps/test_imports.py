"""What the steps import: each application of a step pays for it."""

from __future__ import annotations

import subprocess
import sys


def test_a_step_without_tables_imports_no_iceberg() -> None:
    code = (
        "import sys, stateferry.cli.step, stateferry.steps.pipeline; print({'pandas', 'pyiceberg'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
