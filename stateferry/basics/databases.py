"""Makes clear errors of a database that can't be reached or used: one line, without the password."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DBAPIError,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
)

from flinkstate.errors import StateferryError, TransientError
from flinkstate.files.os_errors import LONGEST_REASON
from stateferry.basics.catalog_address import hidden

# The words of SQLite and Postgres for errors that a retry doesn't solve.
_PERMANENT = re.compile(
    r"unable to open|readonly|read-only|not a database|malformed|no such (table|column)|does not exist"
    r"|authentication failed|no password|no pg_hba|permission denied|not permitted|unsupported file format",
    re.IGNORECASE,
)
# Postgres gives this as if the statement were wrong.
_DENIED = re.compile(r"permission denied|must be owner", re.IGNORECASE)

# What Postgres's own client library waits, in seconds (the last one in milliseconds), until it takes a connection on
# which nothing arrives for lost. By its defaults it may wait for hours.
_SILENCE = {
    "connect_timeout": "30",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
_OF_POSTGRES = ("postgresql", "postgresql+psycopg", "postgresql+psycopg2")


def noticing_silence(url: URL) -> URL:
    """Returns the address with the times after which a silent Postgres is given up; what it says itself stays."""
    if url.drivername not in _OF_POSTGRES:
        return url
    return url.set(query={**_SILENCE, **url.query})


@contextmanager
def asking(uri: str) -> Iterator[None]:
    """Turns errors of the database itself into ours, with its name, and whether a retry may help.

    Errors that answer the statement, such as a row that exists already, stay as they are.
    """
    try:
        yield
    except DBAPIError as error:
        if (known := _known_error(error, uri)) is not None:
            raise known from error
        raise


def tell(engine: Engine) -> Engine:
    """Makes the engine raise errors as `asking` does, from now on, and returns it."""
    uri = engine.url.render_as_string()

    @event.listens_for(engine, "handle_error")
    def _handle(context: Any) -> None:
        if isinstance(context.sqlalchemy_exception, DBAPIError):
            known = _known_error(context.sqlalchemy_exception, uri)
            if known is not None:
                raise known from context.original_exception

    return engine


def _known_error(error: DBAPIError, uri: str) -> StateferryError | None:
    """Returns our error, or None if the error answers the statement, such as a row that exists already."""
    text = " ".join(str(error.orig).split())
    of_database = isinstance(error, (OperationalError, InterfaceError, InternalError)) or type(error) is DatabaseError
    is_denied = isinstance(error, ProgrammingError) and _DENIED.search(text) is not None
    if not of_database and not is_denied:
        return None
    reason = text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."
    if is_denied or _PERMANENT.search(text):
        return StateferryError(f"the catalog {shown(uri)} can't be used: {reason}")
    return TransientError(f"the catalog {shown(uri)} can't be reached: {reason}")


def shown(uri: str | URL) -> str:
    """The address without its password, and without what `noticing_silence` has added."""
    try:
        url = make_url(uri)
    except ArgumentError:
        return "(its address can't be read)"
    given = {name: value for name, value in url.query.items() if _SILENCE.get(name) != value}
    return hidden(url.set(query=given).render_as_string(hide_password=True))
