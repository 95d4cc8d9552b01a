"""The frame of every page: head, style, title. A page loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from stateferry.show.markup import Content, Markup, element, join

# Also what a text that was taken for markup by mistake could not get around.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@cache
def _style() -> Markup:
    return Markup(files("stateferry.show").joinpath("style.css").read_text("utf-8"))


def document(title: str, *content: Content, refresh: int | None = None) -> str:
    """A whole page; a browser loads it again every `refresh` seconds."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"/>'),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        None if refresh is None else Markup(f'<meta http-equiv="refresh" content="{refresh}"/>'),
        element("title", title),
        element("style", _style()),
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', *content), lang='en')}\n"


def section(title: str, hint: Content, *content: Content) -> Markup:
    """A part of a page, with a sentence that says how to read it."""
    return element("section", element("h2", title), element("p", hint, class_="hint") if hint else None, *content)


def figures(*rows: tuple[str, Content, Content]) -> Markup:
    """The key figures: name, figure, and a remark below it."""
    cells = [
        element("div", element("dt", name), element("dd", value, element("small", note) if note else None))
        for name, value, note in rows
    ]
    return element("dl", *cells, class_="figures")


def state(word: str, kind: str = "") -> Markup:
    """A word for a state; `kind` is good, bad, warn or empty."""
    return element("span", word, class_=f"state {kind}".strip())


def notice(kind: str, *paragraphs: Content) -> Markup:
    """What a reader must not miss."""
    return element("div", *(element("p", one) for one in paragraphs if one), class_=f"notice {kind}".strip())


def table(heads: Sequence[tuple[str, str]], rows: Sequence[Sequence[Content]], *, kind: str = "") -> Markup:
    """A table; a head is a name and the kind of its column: empty, `number`, or `word`, which stays on one line.

    The `kind` of a table is `stack` if it is a list of cards on a narrow screen.
    """
    head = element("tr", *(element("th", name, class_=of or None) for name, of in heads))
    body = [
        element("tr", *(_cell(head, cell, at) for at, (head, cell) in enumerate(zip(heads, row, strict=True))))
        for row in rows
    ]
    made = element("table", element("thead", head), element("tbody", *body), class_=kind or None)
    return made if kind == "stack" else element("div", made, class_="scroll")


def _cell(head: tuple[str, str], cell: Content, at: int) -> Markup:
    name, of = head
    return element("td", cell, class_=of or None, data_label=name if at else None)


def facts(rows: list[tuple[str, Content]]) -> Markup:
    """Names with their values; rows without a value are left out."""
    shown = [join(element("dt", name), element("dd", value)) for name, value in rows if value not in (None, "")]
    return element("dl", *shown, class_="facts")
