"""Builds HTML: elements are `Markup`, all other text is escaped.

Names, keys and messages come from savepoints, whose authors may be strangers. So text becomes markup in this module
alone, and a browser runs nothing of it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

from stateferry.basics.printable import printable

_VOID = frozenset({"br", "hr", "meta", "path", "rect", "line", "circle"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content: TypeAlias = "Markup | str | int | float | Iterable[Content] | None"
Attribute = str | int | float | bool | None


def text(value: object) -> Markup:
    """Text as HTML: what is markup, invisible or not representable in UTF-8 is escaped."""
    return Markup(html.escape(printable(str(value))))


def join(*contents: Content) -> Markup:
    """All contents, one after the other; `None` is nothing."""
    return Markup("".join(_parts(contents)))


def element(tag: str, *contents: Content, **attributes: Attribute) -> Markup:
    """An element. `class_` is the attribute `class`, and `_` in a name is `-`; what is None or False is left out."""
    given = "".join(
        f" {_name(name)}" if value is True else f' {_name(name)}="{text(value)}"'
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _VOID and not contents:
        return Markup(f"<{tag}{given}/>")
    return Markup(f"<{tag}{given}>{join(*contents)}</{tag}>")


def link(label: Content, address: str, **attributes: Attribute) -> Markup:
    """A link, if the address is one of the web or of the same server; else the label alone."""
    is_safe = address.startswith(("https://", "http://", "/", "?", "#")) and not address.startswith("//")
    return element("a", label, href=address, **attributes) if is_safe else join(label)


def _name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _parts(contents: Iterable[Content]) -> Iterable[str]:
    for one in contents:
        if isinstance(one, Markup):
            yield one
        elif isinstance(one, str | int | float):
            yield text(one)
        elif one is not None:
            yield from _parts(one)
