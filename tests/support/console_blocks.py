"""The console blocks of the documentation: their commands, and what one prints held against what is shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HOUSE = Path(__file__).parents[2]
PAGES = {page.name: page for page in (HOUSE / "README.md", *sorted((HOUSE / "docs").glob("*.md")))}
_PROMPT = "$ "
_PROGRAM = re.compile(r"(stateferry|airflow|aws|cp|curl|docker|export|helm|kubectl|make|pip|\.venv/\S+) |[A-Z][A-Z_]+=")
_OURS = re.compile(r"(?:\.venv/bin/)?stateferry (?!-)")
# These folders of the pages are in the test's own.
_ROOTS = re.compile(r"(?<![\w.])/(?=(?:backup|checkpoints|new|savepoints|sp|tmp)(?:/|$))")
# What differs from day to day, or from terminal to terminal: ids and digests, numbers, the lines of tables.
_RUN_ID = r"\b[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}\b"
_VARIES = re.compile(rf"{_RUN_ID}|\b[0-9a-f]{{6,}}\b|[0-9][0-9.,:TZ-]*|[━─┃│┏┳┓┡╇┩└┴┘├┼┤╭╮╰╯█▁▂▃▄▅▆▇ ]+")
_LEFT_OUT = re.compile(r"\.\.\.|…")


@dataclass
class Shown:
    """A command of a page, and the lines that the page says it prints."""

    page: str
    command: str
    printed: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> list[str] | None:
        """Those of a command that is ours."""
        if not (begins := _OURS.match(self.command)):
            return None
        command = self.command[begins.end() :].partition(" > ")[0]
        return [word for word in shlex.split(command, comments=True) if not _LEFT_OUT.fullmatch(word)]


def commands(page: str) -> Iterator[Shown]:
    """The commands of a page's blocks without a language, or of a shell; behind a prompt, where a block has any."""
    language: str | None = None
    now: Shown | None = None
    has_prompts = False
    for line in PAGES[page].read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text.startswith("```"):
            if now is not None:
                yield now
            language, now, has_prompts = (text[3:] if language is None else None), None, False
        elif language in ("", "sh"):
            if now is not None and _goes_on(now.command):
                before = now.command
                now.command = f"{before[:-1]}{text}" if before.endswith("\\") else f"{before}\n{text}"
            elif text.startswith(_PROMPT) or (not has_prompts and _PROGRAM.match(text)):
                if now is not None:
                    yield now
                has_prompts = text.startswith(_PROMPT)
                now = Shown(page, text.removeprefix(_PROMPT))
            elif now is not None:
                now.printed.append(line)


def _goes_on(command: str) -> bool:
    return command.endswith("\\") or re.sub(r"\s#.*", "", command).count("'") % 2 == 1


def bare(line: str) -> str:
    """A line without what varies."""
    return _VARIES.sub(" ", line).strip()


def not_said(printed: list[str], said: str) -> list[str]:
    """The lines that a page shows and the command hasn't printed; in some of them something is left out."""
    lines = {bare(line) for line in said.splitlines()}
    return [line for line in printed if not any(_shows(line).fullmatch(one) for one in lines)]


def _shows(line: str) -> re.Pattern[str]:
    return re.compile(r".*".join(re.escape(bare(part)) for part in _LEFT_OUT.split(line)))


@dataclass
class Console:
    """Where a page's commands are given: below a folder, with other words for those that the page can't know."""

    folder: Path
    give: Callable[[list[str]], tuple[int, str]]
    """Gives our command these arguments; returns its exit code, and what it has printed."""
    words: dict[str, str] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """The page's text as it is meant here."""
        text = self._below(text)
        for word, meant in self.words.items():
            text = text.replace(self._below(word), meant)
        return text

    def _below(self, text: str) -> str:
        return _ROOTS.sub(f"{self.folder}/", text)

    def place(self, path: str) -> Path:
        """Where a path of the page is."""
        return Path(self.here(path))

    def as_on_page(self, text: str) -> str:
        """What was printed here, in the words of the page."""
        for word, meant in self.words.items():
            # Other words, such as ids, vary.
            if "/" in meant:
                text = text.replace(meant, word)
        return text.replace(str(self.folder), "")

    def do(self, command: str) -> str:
        """A command before those of the page, which must succeed."""
        code, said = self.give(shlex.split(self.here(command)))
        assert code == 0, said
        return said

    def check(self, shown: Shown) -> None:
        """Gives the command, and holds what it prints against what the page shows."""
        meant = Shown(shown.page, self.here(shown.command))
        assert meant.arguments is not None
        code, said = self.give(meant.arguments)
        said = self.as_on_page(said)
        missing = not_said(shown.printed, said)
        assert missing == [], f"{shown.command}\nhas printed:\n{said}"
        refuses = any(line.startswith("stateferry: ") for line in shown.printed)
        # What a check finds is in its exit code, too.
        assert (code != 0) is refuses or shown.command.startswith("stateferry check "), said
