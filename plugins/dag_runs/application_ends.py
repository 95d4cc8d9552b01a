"""A Spark application of ours: which file it is, and what it means how it has ended."""

from __future__ import annotations

import os
import re
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stateferry.airflow.dag_runs.refusals import refusal
from stateferry.basics.exit_codes import DAMAGED_OR_REFUSED, REJECTED, USAGE
from stateferry.runs.catalog.lease import BEING_WORKED_ON

JOBS_VARIABLE = "STATEFERRY_SPARK_JOBS"

FINAL = (REJECTED, USAGE, DAMAGED_OR_REFUSED)
"""Exit codes that mean that another try can't help."""
# Airflow's hook reports in this form how spark-submit ended, with its last lines.
_EXIT_CODE = re.compile(r"Error code is: (-?\d+)")
_OWN_LINE = re.compile(r"^stateferry: (.*)$", re.MULTILINE)


def application_file(name: str) -> str:
    """The application's file, as the driver sees it; that may differ from the path here."""
    named = os.environ.get(JOBS_VARIABLE)
    if named:
        # It may be an address, whose slashes count.
        return f"{named.rstrip('/')}/{name}.py"
    spec = find_spec("stateferry.spark_jobs")
    if spec is None or not spec.submodule_search_locations:
        raise refusal(f"stateferry is not installed here: install it, or set {JOBS_VARIABLE}")
    return str(Path(spec.submodule_search_locations[0]) / f"{name}.py")


def own_refusal(output: str) -> str:
    """The driver's last line, if its exit code says that another try can't help; else empty.

    In cluster mode, spark-submit knows neither line nor exit code. Then the state of the run must be enough.
    """
    line = _OWN_LINE.findall(output)
    return line[-1] if exit_code(output) in FINAL and line and BEING_WORKED_ON not in line[-1] else ""


def exit_code(output: str) -> int | None:
    """The exit code with which spark-submit has ended; below zero if a signal has ended it itself."""
    code = _EXIT_CODE.search(output)
    return int(code[1]) if code is not None else None


def in_form_of_hook(code: int, output: str) -> str:
    """What `exit_code` and `own_refusal` understand, for an end that Airflow's hook doesn't report."""
    return f"the step has failed. Error code is: {code}.\n{output}"


def ended_text(name: str, code: int) -> str:
    """How the application has ended."""
    # A shell, and Spark for its driver, add 128 to the number of the signal.
    number = -code if code < 0 else code - 128
    names = {one.value: one.name for one in signal.Signals}
    by = f": {names[number]} has ended it" if number in names else ""
    if number == signal.SIGKILL:
        by += ", as the system does when memory is short, or a person"
    return f"the application of {name} has ended with exit code {code}{by}"


def what_is_next(ti: Any) -> str:
    """What happens after a lost application."""
    tries, most = getattr(ti, "try_number", 1), getattr(ti, "max_tries", 0)
    again = "Airflow doesn't try again by itself. Remove the cause and clear this task: then"
    if tries <= most:
        again = f"Airflow tries again soon (that is try {tries + 1} of {most + 1}), and"
    return f"{again} the step goes on where it was"
