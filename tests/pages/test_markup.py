"""Text stays text, whatever is in it."""

from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateferry.basics.printable import printable
from stateferry.show.markup import Markup, element, join, link, text
from tests.pages.views import EVIL, Page


@given(st.text())
def test_any_text_is_text_in_an_element_and_in_an_attribute(any_text: str) -> None:
    made = element("p", any_text, title=any_text)
    made.encode()
    page = Page(made)
    assert page.tags == ["p"]
    assert page.words.removesuffix(" ") == printable(any_text)
    assert html.unescape(made).count(printable(any_text)) >= (2 if any_text else 0)


def test_only_markup_is_not_escaped() -> None:
    assert join("<", Markup("<br/>"), None, ["a", ["&"]], 3) == "&lt;<br/>a&amp;3"
    assert element("td", class_="x", data_label="y", hidden=True, title=None, open=False) == (
        '<td class="x" data-label="y" hidden></td>'
    )
    assert "<script" not in text(EVIL)


@pytest.mark.parametrize("address", ["javascript:alert(1)", "//elsewhere", "data:text/html,x", " https://x", "ftp://x"])
def test_a_link_leads_to_the_web_or_to_this_server(address: str) -> None:
    assert link("a", address) == "a"


def test_links() -> None:
    assert link("a", '/b?c="d') == '<a href="/b?c=&quot;d">a</a>'
