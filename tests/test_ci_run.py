"""`.ci/run` gives the tests the environment of a new login, so that no setting of one machine can hide a fault."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "run"
# In the place of make: says which variables it was given, and how many tests passed.
MAKE = f"""#!{sys.executable}
import json, os, pathlib
pathlib.Path("given.json").write_text(json.dumps(dict(os.environ)))
print("7 passed in 0.01s")
raise SystemExit(int(os.environ["TMPDIR"][-1]))
"""


def given(folder: Path, variables: dict[str, str], code: int = 0) -> dict[str, str]:
    """The environment of make when these variables are set where `.ci/run` is started."""
    (folder / ".ci").mkdir()
    shutil.copy(SCRIPT, folder / ".ci" / "run")
    (folder / "bin").mkdir()
    (folder / "bin" / "make").write_text(MAKE)
    (folder / "bin" / "make").chmod(0o755)
    (folder / f"tmp{code}").mkdir()
    own = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "TMPDIR": str(folder / f"tmp{code}")}
    ran = subprocess.run([folder / ".ci" / "run"], env=own | variables, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (code, "")
    assert ran.stdout.splitlines()[-1] == "7 passed in 0.01s"
    found: dict[str, str] = json.loads((folder / "given.json").read_text())
    return found


def test_what_one_machine_happens_to_set_is_not_seen(tmp_path: Path) -> None:
    set_here = dict.fromkeys(
        ("PYTHONUNBUFFERED", "PYTHONPATH", "STATEFERRY_HOME", "AIRFLOW_HOME", "SPARK_HOME", "AWS_ACCESS_KEY_ID"), "1"
    )
    assert not set(set_here) & set(given(tmp_path, set_here))


@pytest.mark.parametrize(
    "name",
    [
        *("JAVA_HOME", "LANG", "LC_ALL", "CI", "PIP_INDEX_URL", "PIP_CONFIG_FILE", "UV_INDEX", "https_proxy"),
        *("HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"),
        *("JAVA_TOOL_OPTIONS", "APT_CONFIG"),
    ],
)
def test_how_packages_are_fetched_stays_as_it_is(tmp_path: Path, name: str) -> None:
    # Not one that bash itself would complain about.
    value = "C.UTF-8" if name == "LC_ALL" else "two words\nand a line"
    assert given(tmp_path, {name: value})[name] == value


def test_the_exit_code_is_that_of_the_tests(tmp_path: Path) -> None:
    given(tmp_path, {}, 2)
