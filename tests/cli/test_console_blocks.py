"""Commands in the documentation: all are understood, and those on the demo savepoint print what is shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateferry.cli import _parser, main

HOUSE = Path(__file__).parents[2]
PAGES = {page.name: page for page in (HOUSE / "README.md", *sorted((HOUSE / "docs").glob("*.md")))}
COMMAND = re.compile(r"(?:\$ )?(?:\.venv/bin/)?stateferry (.*)")
# These savepoints are made on the page, or on the one that it names.
MADE = {
    "ages.md": ["demo-savepoint /tmp/demo --ttl 30d"],
    "balance.md": ["demo-savepoint /tmp/demo --ttl 30d"],
    "reading.md": [],
    "worth-it.md": [],
}
# What differs from day to day, or from terminal to terminal.
VARIES = re.compile(r"[0-9][0-9.,:TZ-]*|[━─┃│┏┳┓┡╇┩└┴┘├┼┤╭╮╰╯█▁▂▃▄▅▆▇ ]+")


def shown(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The commands of a page's blocks, each with the lines that it prints there."""
    command, printed, inside, goes_on = "", list[str](), False, False
    for line in page.read_text().splitlines():
        text = line.strip()
        begins = COMMAND.match(text) if inside and not goes_on else None
        if text.startswith("```") or begins or (inside and text.startswith("$ ") and not goes_on):
            if command:
                yield command, printed
            inside, goes_on = inside != text.startswith("```"), False
            command, printed = begins[1] if begins else "", []
            goes_on = command.endswith("\\")
        elif goes_on:
            command, goes_on = f"{command[:-1]}{text}", text.endswith("\\")
        elif command:
            printed.append(line)


def bare(line: str) -> str:
    return VARIES.sub(" ", line).strip()


def words(command: str) -> list[str]:
    return [word for word in shlex.split(command, comments=True) if word not in ("…", "...")]


@pytest.mark.parametrize("page", [name for name, page in PAGES.items() if any(shown(page))])
def test_every_command_is_understood(page: str) -> None:
    for command, _ in shown(PAGES[page]):
        arguments = words(command.partition(" > ")[0])
        _parser().parse_args([word.replace("TTL", "30d") for word in arguments])


@pytest.mark.parametrize("page", MADE)
def test_commands_on_the_demo_savepoint_print_what_is_shown(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    compared = 0
    for command, printed in [*((one, list[str]()) for one in MADE[page]), *shown(PAGES[page])]:
        if re.match(r"run |.*(--measure|--files-from)", command):
            continue
        arguments = words(command.partition(" > ")[0].replace("/tmp/", f"{tmp_path}/"))
        main(arguments)
        out = capsys.readouterr()
        said = {bare(line) for line in (out.out + out.err).replace(str(tmp_path), "/tmp").splitlines()}
        shown_lines = [line for line in printed if line.strip() not in ("...", "…")]
        assert [line for line in shown_lines if bare(line) not in said] == [], command
        compared += len(shown_lines)
    assert compared > 5
