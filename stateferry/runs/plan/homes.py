"""Where runs, catalog and tables are kept, if neither a plan nor an option says it."""

from __future__ import annotations

import os

from flinkstate.errors import UsageError
from stateferry.basics import catalog_address
from stateferry.runs.plan.plan_fields import absolute_place

HOME_VARIABLE, WAREHOUSE_VARIABLE = "STATEFERRY_HOME", "STATEFERRY_WAREHOUSE"
REST_VARIABLE = "STATEFERRY_REST_CATALOG"
CATALOG_VARIABLE = catalog_address.VARIABLE
DEFAULT_HOME = "~/.stateferry"


def default_home() -> str:
    """The home that the environment names, or the default one."""
    return os.environ.get(HOME_VARIABLE) or DEFAULT_HOME


def default_catalog(home: str) -> str:
    """The catalog's address: from the environment, without a password, else a SQLite database in the home."""
    if named := os.environ.get(CATALOG_VARIABLE):
        return catalog_address.without_password(named)
    folder = str(absolute_place(home)).rstrip("/")
    if "://" in folder:
        raise UsageError(
            f"{folder} can't hold a catalog in SQLite: name a Postgres database in {CATALOG_VARIABLE}, such as "
            "postgresql://host/database"
        )
    return f"sqlite:///{folder}/catalog.db"


def default_warehouse(home: str) -> str:
    """The folder of the tables' files: from the environment, else in the home."""
    return os.environ.get(WAREHOUSE_VARIABLE) or f"{str(absolute_place(home)).rstrip('/')}/warehouse"


def default_rest_catalog() -> str | None:
    """The address of the REST catalog that has the tables, if the environment names one."""
    return os.environ.get(REST_VARIABLE) or None
