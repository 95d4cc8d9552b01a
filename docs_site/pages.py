"""Makes the site of docs/ and of what lies elsewhere in the repository: README, examples, and the reference.

MkDocs calls the functions named `on_...`. A link from a page to any other file of the repository leads to a copy of it.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs_site.names import PUBLIC

HOUSE = Path(__file__).resolve().parents[1]
# Where a page is in the repository, by its place in the site; all others are in docs/.
ELSEWHERE = {
    "index.md": "README.md",
    "benchmarks.md": "benchmarks/results.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "examples.md": "examples",
}
EXAMPLES = ("examples", "dags")
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
ITEM = re.compile(r"(?:-|\d[.]) ")
# The pages of the reference, by the packages that they describe.
REFERENCE = {
    "flinkstate": "What `import flinkstate` offers. [The library](../library.md) shows how to use it.",
    "airflow": (
        "What your own DAGs may import from `stateferry` ([Flink operators](../flink-operators.md), [DAGs by "
        "import](../airflow.md#dags-by-import), [notices](../airflow.md#notices))."
    ),
    "spark": "What programs on Spark may import from `stateferry` ([savepoints in Spark](../spark-source.md)).",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for place, origin in ELSEWHERE.items():
        content = _examples() if (HOUSE / origin).is_dir() else (HOUSE / origin).read_text()
        files.append(File.generated(config, place, content=content))
    for name, text in _reference():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    for file in list(files.documentation_pages()):
        for _, target, _ in LINK.findall(file.content_string):
            origin = _linked(file.src_uri, target)
            if (HOUSE / origin).is_file() and (place := _place(origin)) not in files.src_uris:
                files.append(File.generated(config, place, abs_src_path=str(HOUSE / origin)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links as they must be in the site."""
    del config, files
    here = page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        origin = _linked(here, link[2])
        if here.startswith("reference/") or not (HOUSE / origin).exists():
            return link[0]
        return f"{link[1]}{os.path.relpath(_place(origin), PurePosixPath(here).parent)}{link[3]}"

    return LINK.sub(moved, "\n".join(_indented(markdown.splitlines())))


def _indented(lines: list[str]) -> Iterator[str]:
    """Lists as Python-Markdown wants them, where elsewhere the column of an item's text counts.

    Four spaces are in front of what belongs to an item, and an empty line behind an item of several paragraphs.
    """
    more, paragraphs = "", False
    for line in lines:
        if line and not line.startswith(" "):
            item = ITEM.match(line)
            if item and more and paragraphs:
                yield ""
            more, paragraphs = " " * (4 - len(item[0])) if item else "", False
        paragraphs = paragraphs or not line
        yield f"{more}{line}" if line.startswith(" ") else line


def _linked(page: str, target: str) -> str:
    """The file of the repository to which a page's link leads."""
    origin = PurePosixPath(ELSEWHERE.get(page, f"docs/{page}"))
    folder = origin if (HOUSE / origin).is_dir() else origin.parent
    return os.path.normpath(folder / target)


def _place(origin: str) -> str:
    """Where a file of the repository is in the site."""
    for place, moved in ELSEWHERE.items():
        if origin == moved:
            return place
    if origin in EXAMPLES or str(PurePosixPath(origin).parent) in EXAMPLES:
        return "examples.md"
    return origin.removeprefix("docs/") if origin.startswith("docs/") else f"repository/{origin}"


def _examples() -> str:
    """The examples as a page."""
    parts = ["# Examples", "The files of `examples/` and `dags/`. Tests run each of them."]
    for file in (file for folder in EXAMPLES for file in sorted((HOUSE / folder).glob("*.*"))):
        language = {".py": "python", ".sh": "sh"}[file.suffix]
        parts += [f"## {file.relative_to(HOUSE)}", f"```{language}\n{file.read_text()}```"]
    return "\n\n".join(parts) + "\n"


def _reference() -> Iterator[tuple[str, str]]:
    """The pages of the reference, whose text are the docstrings."""
    for name, text in REFERENCE.items():
        parts = [f"# Reference: {name.replace('airflow', 'Airflow').replace('spark', 'Spark')}", text]
        yield name, "\n\n".join([*parts, *(f"::: {one}" for one in PUBLIC.get(name) or _exported())]) + "\n"


def _exported() -> Iterator[str]:
    tree = ast.parse((HOUSE / "flinkstate/__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from (f"flinkstate.{name}" for name in ast.literal_eval(node.value))
