"""What a strange savepoint has in its names, keys and values never reaches a terminal as it is."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkstate.errors import DamagedError, PlanError
from flinkstate.metadata.build_metadata import build_metadata
from flinkstate.metadata.file_names import METADATA
from flinkstate.reading.reader import operator_id
from flinkstate.values.value_json import string_json
from stateferry.basics.exit_codes import exit_code_of
from stateferry.basics.printable import printable, printable_lines, say
from stateferry.cli import main
from tests.support import legacy_states
from tests.support.legacy_states import LegacyState

STEERING = "\x1b[31m\x1b]0;owned\x07\x9b2J\x7f\u202e\u2066\u200b\ufeff\x85"
READABLE = "日本😀é[red]x[/red]"
STRANGE = f"{READABLE}{STEERING}"
DAY = 86_400_000
NOW = 100 * DAY


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("日本 😀 ñ \u0301", "日本 😀 ñ \u0301"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b\u202e\ud800", "\\x9b\\u202e\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_steers_is_escaped_and_the_rest_stays(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_whatever_it_is_it_is_one_line_that_can_be_seen(text: str) -> None:
    assert printable(text).isprintable()
    assert string_json(text).isprintable()


@given(st.text(st.characters(codec="utf-8")))
def test_json_for_programs_says_exactly_the_same(text: str) -> None:
    assert json.loads(string_json(text)) == text


def test_lines_stay_lines() -> None:
    out = io.StringIO()
    say("a\nb", out)
    assert out.getvalue() == "a\\nb\n"
    assert printable_lines("a\n\x1bb\n") == "a\n\\x1bb\n"


@pytest.fixture
def strange(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A savepoint whose operator, states, keys and values are called so."""
    for name in ("LEGACY", "NEW", "FLAG"):
        monkeypatch.setattr(legacy_states, name, f"{name} {STRANGE}")
    state = LegacyState(
        blobs={f"blob {STRANGE}": ({f"user {STRANGE}": 1}, NOW)},
        rows={f"row {STRANGE}": {f"user {STRANGE}": (5, NOW)}},
        flags={f"row {STRANGE}": NOW},
        ttl=True,
    )
    savepoint = state.write(str(tmp_path / "source"))
    (operator,) = savepoint.metadata.operators
    metadata = replace(
        savepoint.metadata, operators=(replace(operator, id=operator_id(STRANGE), name=STRANGE, uid=STRANGE),)
    )
    (tmp_path / "source" / METADATA).write_bytes(build_metadata(metadata))
    return tmp_path / "source"


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Everything that a command says, once it was found to be harmless."""

    def answer(code: int, *command: object) -> str:
        assert main([str(word) for word in command]) == code
        out, error = capfd.readouterr()
        for line in (out + error).split("\n"):
            assert line.isprintable(), line
        return out + error

    return answer


@pytest.mark.slow
def test_no_command_lets_it_through(strange: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    named = [f"--{name}-state={name.upper()} {STRANGE}" for name in ("legacy", "new", "flag")]
    target = strange.parent / f"target {STRANGE}"
    run = ["run", "--savepoint", strange, "--target", target, "--operator", STRANGE, *named, "--ttl", "30d"]
    dump = ["dump", strange, "--operator", STRANGE, "--state"]
    # Nobody is asked where a terminal wraps lines.
    monkeypatch.setenv("COLUMNS", "2000")
    shown = {
        "inspect": said(0, "inspect", strange),
        "inspect --json": said(0, "inspect", strange, "--json"),
        "dump": said(0, *dump, f"LEGACY {STRANGE}"),
        "a wrong name": said(2, *dump, "another"),
        "a wrong name with its place": said(2, *dump, f"another {STRANGE}", "--debug"),
        "run": said(0, *run, "--now", NOW + 1),
        "run again": said(0, *run, "--now", NOW + 1),
        "a target that is taken": said(2, *run, "--now", NOW + 2),
        "status": said(0, "status"),
        "status --json": said(0, "status", "--json"),
        "runs": said(0, "runs"),
        "clean": said(0, "clean", "--keep", "0", "--older-than", "0s"),
        "rollback": said(0, "rollback", "--job", STRANGE),
        "rollback again": said(1, "rollback", "--job", STRANGE),
    }
    readable = {what for what, text in shown.items() if READABLE in text}
    assert readable == shown.keys() - {"inspect --json", "status --json", "rollback"}
    assert "\\x1b[31m" in shown["run"]
    assert json.loads(shown["dump"])["key"] == f"blob {STRANGE}"
    assert STRANGE in json.loads(shown["status --json"])
    assert json.loads(shown["inspect --json"])["operators"][0]["name"] == STRANGE


def test_no_error_lets_it_through(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> int:
        raise DamagedError("a name", STRANGE, file=f"/tmp/{STRANGE}")

    assert exit_code_of(fails) == 3
    _, error = capsys.readouterr()
    assert error.count("\n") == 1
    assert error[:-1].isprintable()
    assert READABLE in error
    exit_code_of(fails, debug=True)
    assert all(line.isprintable() for line in capsys.readouterr().err.split("\n"))


def test_problems_on_lines_of_their_own_stay_apart_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> int:
        raise PlanError("the plan: target: missing\nthe plan: nwo:   unknown field\n")

    assert exit_code_of(fails) == 2
    assert capsys.readouterr().err == "stateferry: the plan: target: missing; the plan: nwo: unknown field\n"
