"""The shell completes what the parsers know."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stateferry.cli import main


@pytest.fixture(scope="module")
def script() -> str:
    return subprocess.run(
        [sys.executable, "-m", "stateferry.cli", "completion", "bash"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("", {"inspect", "run", "runs", "rollback", "completion", "--version"}),
        ("ru", {"run", "runs"}),
        ("run --comp", {"--compression"}),
        ("run --compression s", {"snappy", "stored", "source"}),
        ("run --flag-", {"--flag-state", "--flag-ttl"}),
        ("run --savepoint ", set()),
        ("inspect /t", set()),
        ("inspect ", set()),
        ("inspect --j", {"--json"}),
        ("verify a b --laz", {"--lazy"}),
        ("completion ", {"bash", "zsh"}),
    ],
)
def test_bash_offers_what_fits(script: str, line: str, offered: set[str]) -> None:
    ask = 'read -ra COMP_WORDS <<< "stateferry $1"; [[ $1 != *" " && -n $1 ]] || COMP_WORDS+=("")\n'
    ask += 'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _stateferry; printf "%s\\n" "${COMPREPLY[@]}"'
    ran = subprocess.run(["bash", "-c", f"{script}\n{ask}", "bash", line], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    found = set(ran.stdout.split())
    assert offered <= found if not line else offered == found


def test_another_shell_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 2
    assert "unknown shell 'fish'. There are: bash, zsh" in capsys.readouterr().err
