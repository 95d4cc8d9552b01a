"""Each message that the documentation quotes is one that the code can print.

A message is made of the texts between the holes of f-strings, and of values. A quoted line is held against all texts
of the code: two ordinary words in a row that are in none of them are words that nothing prints.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]
CODE = ("flinkstate", "stateferry", "spark_jobs", "plugins", "local_airflow", "dags")
DOCS = [HOUSE / "README.md", *sorted((HOUSE / "docs").glob("*.md"))]
# Not a path, a number, an id or a name with capitals: these are values.
ORDINARY_WORD = re.compile(r"(?<![^\s(])[a-z][a-z']+(?=[,.;:)]*(?:\s|$))")
# A text of two words is the mark of a message. A single word, such as *of* between two holes, may stand anywhere.
TELLING = re.compile(r"[A-Za-z]{2,}[^A-Za-z]+[A-Za-z]+|[A-Za-z]+[^A-Za-z]+[A-Za-z]{2,}")
SINGLE_WORD = re.compile(r"[^A-Za-z]*[a-z]{2,}[^A-Za-z]*")
COMMANDS = ("$", "airflow ", "cp ", "curl ", "docker ", "helm ", "kubectl ", "make ", "stateferry ", ".venv/")
# The words of others that our messages repeat.
FOREIGN = (
    re.compile(r"^Invalid input for param .*"),
    re.compile(r"(?<=can't be read: )AWS Error .*"),
    re.compile(r"(?<=can't be reached: )connection failed: .*"),
)


def texts_in(code: str) -> Iterator[str]:
    """The lines of all texts but docstrings; of an f-string what is between its holes."""
    tree = ast.parse(code)
    statements = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield from node.value.splitlines()


@cache
def texts() -> tuple[frozenset[str], frozenset[str]]:
    """The code's texts of several words, and the words that are a text by themselves."""
    files = [
        file for place in map(HOUSE.joinpath, CODE) for file in (place.rglob("*.py") if place.is_dir() else [place])
    ]
    found = {text for file in files for text in texts_in(file.read_text())}
    telling = {text for text in found if TELLING.search(text)}
    return frozenset(telling), frozenset(text.strip(" ,.;:()*") for text in found if SINGLE_WORD.fullmatch(text))


def places(texts: frozenset[str], line: str) -> set[int]:
    """The characters of the line that are in one of the texts."""
    return {
        place
        for text in texts
        if text in line
        for found in re.finditer(re.escape(text), line)
        for place in range(*found.span())
    }


def not_printed(line: str) -> str:
    """The longest row of words in a line that are in no text of the code; single words between holes don't count."""
    for foreign in FOREIGN:
        line = foreign.sub("", line)
    telling, single = texts()
    printed = places(telling, line)
    rows: list[list[str]] = [[]]
    for word in ORDINARY_WORD.finditer(line):
        if printed.issuperset(range(*word.span())):
            rows.append([])
        elif word.group() not in single:
            rows[-1].append(word.group())
    return max(map(" ".join, rows), key=lambda row: row.count(" "))


def quoted(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of output in blocks without a language; commands, and the lines that go on with one, are left out."""
    language: str | None = None
    goes_on = False
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            language = line.strip().removeprefix("```") if language is None else None
            goes_on = False
        elif language == "":
            is_command = goes_on or line.startswith(COMMANDS)
            goes_on = is_command and (line.endswith("\\") or line.count("'") % 2 == 1)
            if not is_command:
                yield number, line


@pytest.mark.parametrize("file", DOCS, ids=lambda file: file.name)
def test_what_is_quoted_is_printed(file: Path) -> None:
    strange = [(number, words) for number, line in quoted(file) if len((words := not_printed(line)).split()) > 1]
    assert strange == [], f"{file.name} quotes words that nothing prints"


def test_a_message_that_nothing_prints_is_found() -> None:
    lines = {line for file in DOCS for _, line in quoted(file) if line.startswith("stateferry: ")}
    assert len(lines) > 20
    assert not_printed("stateferry: /sp: operator main has a full checkpoint's handle (type 12), so this is native")
    changed = [line.replace(" that ", " which ").replace(" is ", " was ").replace(" has ", " had ") for line in lines]
    assert sum(len(not_printed(line).split()) > 1 for line in changed) > 10
