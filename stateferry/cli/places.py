"""The options for the home and the catalog, for commands that read them."""

from __future__ import annotations

import argparse
import os


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Declares these options."""
    parser.add_argument("--home", metavar="DIR", help="default: $STATEFERRY_HOME, else ~/.stateferry")
    parser.add_argument("--catalog", metavar="URI", help="the catalog's database (default: catalog.db in the home)")


def catalog_of(options: argparse.Namespace) -> tuple[str, str]:
    """The home and the catalog's address that the options name."""
    from stateferry.runs.plan import default_home
    from stateferry.runs.runs import check_home

    home = os.path.abspath(os.path.expanduser(options.home or default_home()))
    check_home(home)
    return home, options.catalog or f"sqlite:///{home}/catalog.db"
