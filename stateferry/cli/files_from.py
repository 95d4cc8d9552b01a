"""`--files-from`: where the files of a checkpoint are that was moved."""

from __future__ import annotations

import argparse

from flinkstate.metadata.moved_files import root_of


def add_to(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--files-from",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="the files that a checkpoint's _metadata has below OLD are below NEW now (paths or URIs); may be repeated",
    )


def roots_of(options: argparse.Namespace) -> dict[str, str]:
    """Returns the new beginnings of addresses by the old ones; Airflow's form gives several lines at once."""
    return dict(root_of(text, "--files-from") for given in options.files_from for text in given.splitlines())
