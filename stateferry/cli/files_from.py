"""`--files-from`: where the files of a checkpoint are that was moved."""

from __future__ import annotations

import argparse

from stateferry.errors import UsageError


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--files-from",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="the files that a checkpoint's _metadata has below OLD are below NEW now (paths or URIs); may be repeated",
    )


def roots_of(options: argparse.Namespace) -> dict[str, str]:
    """Returns the new beginnings of addresses by the old ones."""
    roots: dict[str, str] = {}
    for text in options.files_from:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise UsageError(f"expected --files-from OLD=NEW, two paths or URIs, found {text!r}")
        roots[old] = new
    return roots
