"""What the catalog's database has to say when it can't be reached or used, in one line without its password."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, InterfaceError, InternalError, OperationalError

from stateferry.errors import PassingError, StateferryError
from stateferry.os_errors import LONGEST_REASON

# As SQLite and Postgres name what no other try betters.
_STAYS = re.compile(
    r"unable to open|readonly|read-only|not a database|malformed|no such (table|column)|does not exist"
    r"|authentication failed|no password|no pg_hba|permission denied|not permitted|unsupported file format",
    re.IGNORECASE,
)


@contextmanager
def asking(uri: str) -> Iterator[None]:
    """Whatever the database answers that isn't about the question itself has its name, and says whether it may pass."""
    try:
        yield
    except DBAPIError as error:
        if (said := _told(error, uri)) is not None:
            raise said from error
        raise


def tell(engine: Engine) -> Engine:
    """From now on the engine's errors are told as `asking` does."""
    uri = engine.url.render_as_string()

    @event.listens_for(engine, "handle_error")
    def _handle(context: Any) -> None:
        if isinstance(context.sqlalchemy_exception, DBAPIError):
            said = _told(context.sqlalchemy_exception, uri)
            if said is not None:
                raise said from context.original_exception

    return engine


def _told(error: DBAPIError, uri: str) -> StateferryError | None:
    """None for an answer to the question, such as a row that is there already."""
    if not isinstance(error, (OperationalError, InterfaceError, InternalError)) and type(error) is not DatabaseError:
        return None
    text = " ".join(str(error.orig).split())
    reason = text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."
    if _STAYS.search(text):
        return StateferryError(f"the catalog {_shown(uri)} can't be used: {reason}")
    return PassingError(f"the catalog {_shown(uri)} can't be reached: {reason}")


def _shown(uri: str) -> str:
    try:
        return make_url(uri).render_as_string(hide_password=True)
    except ArgumentError:
        return "(its address can't be read)"
