"""Links of the documentation, and the site that `make docs` makes of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import flinkstate
from docs_site import names
from tests.support import browser
from tests.support.servers import Handler, serving

HOUSE = Path(__file__).parents[1]
PAGES = [
    *map(HOUSE.joinpath, ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((HOUSE / "docs").rglob("*.md")),
]
MARKDOWN = MarkdownIt("commonmark").enable("table")
SHOWN = ("h1", "h2", "h3", "ul", "ol", "li", "tr", "td", "pre", "code", "strong", "em")


def anchors(page: Path) -> set[str]:
    """As GitHub names the headings."""
    tokens = MARKDOWN.parse(page.read_text())
    heads = [after for before, after in pairwise(tokens) if before.type == "heading_open"]
    texts = ["".join(part.content for part in head.children or []) for head in heads]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r'<a href="([^"]*)"', MARKDOWN.render(page.read_text())):
        if not re.match(r"https?:", target):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), target


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made in a fresh environment of the pinned packages, from the index that pip has."""
    folder = tmp_path_factory.mktemp("site")
    python = folder / "environment/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "environment"], check=True)
    packages = re.search(r"^DOCS_PACKAGES := (.*)", (HOUSE / "Makefile").read_text(), re.MULTILINE)
    assert packages is not None
    uv = [sys.executable, str(HOUSE / "constraints/uv_like_pip.py"), "pip", "install", "-q", "--python", str(python)]
    subprocess.run([*uv, "-c", str(HOUSE / "constraints/docs.txt"), *packages[1].split()], check=True)
    build = [
        str(python),
        "-m",
        "mkdocs",
        "build",
        "-f",
        str(HOUSE / "docs_site/mkdocs.yml"),
        "-d",
        str(folder / "made"),
    ]
    # Whatever asks for something over the network fails here.
    closed = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        build, cwd=HOUSE, env=os.environ | closed | {"PYTHONPATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "made"


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    class Files(Handler, SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(site))  # type: ignore[arg-type]

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Files)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.full
def test_the_site_shows_what_the_pages_say(site: Path) -> None:
    for page in PAGES:
        name = page.relative_to(HOUSE / "docs").with_suffix("") if "docs" in page.parts else Path(page.stem.lower())
        place = name.parent if name.name in ("README", "readme") else name
        shown = (site / place / "index.html").read_text()
        shown, meant = shown[shown.index("<article") : shown.index("</article>")], MARKDOWN.render(page.read_text())
        for tag in SHOWN:
            assert len(re.findall(rf"<{tag}[ >]", shown)) == len(re.findall(rf"<{tag}[ >]", meant)), (page.name, tag)


@pytest.mark.full
def test_the_site_brings_all_that_its_pages_load(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link rel="?(?:stylesheet|icon))[^>]* (?:src|href)="?([^" >]+)', page.read_text()
        )
        assert len(loaded) > 2
        for one in loaded:
            file = (site / one[1:]) if one.startswith("/") else (page.parent / one.partition("?")[0])
            assert file.exists(), (page, one)


@pytest.mark.full
def test_the_reference_has_what_is_public(site: Path) -> None:
    listed = zlib.decompress((site / "objects.inv").read_bytes().split(b"zlib.\n", 1)[1]).decode().split("\n")
    found = {line.split()[0] for line in listed if line}
    assert {f"flinkstate.{name}" for name in flinkstate.__all__} <= found
    assert {name for public in names.PUBLIC.values() for name in public} <= found
    entries = json.loads((site / "search/search_index.json").read_text())["docs"]
    places = {entry["location"].partition("#")[0] for entry in entries}
    assert {"", "upgrade/", "reference/flinkstate/", "reference/airflow/", "adr/", "examples/"} <= places


@pytest.mark.full
@pytest.mark.skipif(bool(browser.why_not()), reason=browser.why_not() or "there is a browser")
def test_a_search_finds_the_page(address: str, tmp_path: Path) -> None:
    with browser.browser(tmp_path) as window:
        window.open(f"{address}/")
        window.click("//label[@for='__search']/parent::*//input[@class='md-search__input']")
        window.type("//input[contains(@class, 'md-search__input')]", "tombstone")
        window.wait_for("//li[contains(@class, 'md-search-result__item')]//mark")
        assert "Query your state" in window.text()
