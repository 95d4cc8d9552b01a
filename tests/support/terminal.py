"""The command line, run in this process as people run it in a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateferry.cli import main

Line = dict[str, Any]


class Terminal:
    """Runs the command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def fails(self, *arguments: str | Path) -> tuple[int, str]:
        """The exit code and the one line of stderr."""
        code = main([str(argument) for argument in arguments])
        out, error = self._capsys.readouterr()
        assert out == ""
        assert error.startswith("stateferry: ")
        assert error.count("\n") == 1
        assert error.endswith("\n")
        return code, error

    def says(self, *arguments: str | Path) -> str:
        code = main([str(argument) for argument in arguments])
        out, error = self._capsys.readouterr()
        assert error == ""
        assert code == 0
        return out

    def refuses(self, class_name: str, savepoint: Path, operator: str, state: str) -> None:
        """A dump of a value that can't be read; the entries before it are printed."""
        code = main(["dump", str(savepoint), "--operator", operator, "--state", state])
        _, error = self._capsys.readouterr()
        assert code == 3
        assert error.startswith(f"stateferry: state {state} of operator ")
        assert class_name in error

    def inspects(self, savepoint: Path) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.says("inspect", savepoint, "--json"))
        return facts

    def dumps(self, savepoint: Path, state: str, *more: str, operator: str = "main") -> list[Line]:
        out = self.says("dump", savepoint, "--operator", operator, "--state", state, *more)
        return [json.loads(line) for line in out.split("\n")[:-1]]
