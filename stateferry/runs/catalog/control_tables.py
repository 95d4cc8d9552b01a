"""The tables of leases, publications and rejections, in the database that holds the catalog: SQLite or Postgres."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Engine,
    Insert,
    MetaData,
    NullPool,
    Table,
    Text,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from flinkstate.errors import MissingHereError, UsageError
from flinkstate.files.stores import reaching
from stateferry.basics import catalog_address
from stateferry.basics.databases import noticing_silence, shown, tell
from stateferry.basics.durations import now_ms
from stateferry.basics.formats import FIRST, FORMAT, check_format
from stateferry.basics.private_files import private_files

# A transaction takes milliseconds, so a wait as long as this means that another process is stuck.
_WAIT_SECONDS = 60
# The key of the advisory lock under which these tables are created. All versions must use the same one.
_POSTGRES_LOCK = 7837302110

_metadata = MetaData()

lease = Table(
    "stateferry_lease",
    _metadata,
    Column("job", Text, primary_key=True),
    Column("run_id", Text),
    Column("token", BigInteger, nullable=False),
    Column("holder", Text),
    Column("since", BigInteger),
    Column("expires_at", BigInteger),
)

publication = Table(
    "stateferry_publication",
    _metadata,
    Column("job", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("previous", BigInteger),
    Column("run_id", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("published_at", BigInteger, nullable=False),
    Column("rolled_back_at", BigInteger),
    Column("record", Text, nullable=False),
)

# Runs that a person has rejected, for good.
rejection = Table(
    "stateferry_rejection",
    _metadata,
    Column("job", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("rejected_at", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
)

# Which publication stands, if any. Every change increases the version.
standing_publication = Table(
    "stateferry_standing",
    _metadata,
    Column("job", Text, primary_key=True),
    Column("sequence", BigInteger),
    Column("version", BigInteger, nullable=False),
)

# The largest is the version of these tables, and of the Iceberg tables that the same database names. The table comes
# with version 2: a role that may not create tables can still use a catalog of version 1.
format_version = Table(
    "stateferry_format", MetaData(), Column("format", BigInteger, primary_key=True, autoincrement=False)
)


class ControlDatabase:
    """The database of the records of control. Use it as a context manager; each call is one transaction.

    `clock` returns milliseconds and is for tests.
    """

    def __init__(self, catalog_uri: str, clock: Callable[[], int] | None = None, engine: Engine | None = None) -> None:
        """Connects to the catalog; an `engine` that is passed in must have the tables already."""
        self._clock = clock
        self._engine = engine or engine_for(catalog_uri)
        if engine is None:
            create_tables(self._engine)

    @classmethod
    def if_there(cls, catalog_uri: str) -> Self | None:
        """Opens the catalog to read it, without creating anything; None if no run was ever made with this catalog."""
        engine = engine_to_read(catalog_uri)
        return None if engine is None else cls(catalog_uri, engine=engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.dispose()

    def _now(self, connection: Connection) -> int:
        """The present time in milliseconds: with Postgres by the database's clock, which all drivers share."""
        if self._clock is not None:
            return self._clock()
        if connection.dialect.name == "postgresql":
            seconds = connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one()
            return int(float(seconds) * 1000)
        return now_ms()


def engine_for(catalog_uri: str) -> Engine:
    """An engine for writing; creates a SQLite database that doesn't exist yet."""
    if (file := sqlite_file(catalog_uri)) is not None:
        with reaching(str(file), "written" if os.path.exists(file) else "made"), private_files():
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.exists():
                file.touch()
            else:
                _make_database(file)
    # With a plain BEGIN, a transaction that reads and then writes would fail if another one wrote in between.
    return _engine(catalog_uri, "BEGIN IMMEDIATE")


def _make_database(file: Path) -> None:
    """Makes a SQLite database that appears with all of its tables, whoever else makes it at the same time."""
    draft = file.with_name(f"{file.name}.{uuid.uuid4().hex}.draft")
    try:
        # SQLite would give the group fewer permissions than the umask allows. The files that it writes beside the
        # database get the mode of the database.
        try:
            draft.touch()
        except OSError as error:
            error.filename = str(file)
            raise
        engine = _sqlite_engine(URL.create("sqlite", database=str(draft)), "BEGIN IMMEDIATE")
        create_tables(engine)
        engine.dispose()
        try:
            os.link(draft, file)
        except FileExistsError:
            return
        except OSError:
            # A filesystem without links.
            file.touch()
    finally:
        draft.unlink(missing_ok=True)


def engine_to_read(catalog_uri: str) -> Engine | None:
    """An engine for reading; None if the database doesn't exist, or doesn't have these tables."""
    file = sqlite_file(catalog_uri)
    if file is not None and not file.exists():
        return None
    engine = _engine(catalog_uri, "BEGIN")
    with engine.begin() as connection:
        _check_format(connection)
        return engine if inspect(connection).has_table(lease.name) else None


def check_catalog(catalog_uri: str) -> None:
    """Refuses a catalog that a newer version of Stateferry has written; creates nothing."""
    if (engine := engine_to_read(catalog_uri)) is not None:
        engine.dispose()


def sqlite_file(catalog_uri: str) -> Path | None:
    """The file that the catalog is in, or None if it is not in a file."""
    url = _url(catalog_uri)
    if url.get_backend_name() != "sqlite":
        return None
    if not url.database or url.database == ":memory:":
        raise UsageError("expected a catalog in a file, found one in memory, which ends with its process")
    file = Path(url.database)
    if not file.is_absolute():
        raise UsageError(
            f"expected a catalog by its whole path, such as sqlite:////absolute/path.db, found {catalog_uri}, which is "
            "another one in each working folder"
        )
    return file


def _engine(catalog_uri: str, begin: str) -> Engine:
    url = _url(catalog_uri)
    try:
        if url.get_backend_name() != "sqlite":
            return tell(create_engine(noticing_silence(url), poolclass=NullPool))
        return _sqlite_engine(url, begin)
    except NoSuchModuleError as error:
        raise _no_address(error) from None
    except ImportError as error:
        raise MissingHereError(f"the catalog's database needs a driver that isn't installed here: {error}") from None


def _url(catalog_uri: str) -> URL:
    try:
        return make_url(catalog_address.to_connect(catalog_uri))
    except ArgumentError as error:
        raise _no_address(error) from None


def _no_address(error: Exception) -> UsageError:
    return UsageError(f"expected a catalog such as sqlite:////absolute/path.db or postgresql://...: {error}")


def _sqlite_engine(url: URL, begin: str) -> Engine:
    engine = tell(create_engine(url, poolclass=NullPool, connect_args={"timeout": _WAIT_SECONDS}))

    @event.listens_for(engine, "connect")
    def _leave_transactions_to_us(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def create_tables(engine: Engine) -> None:
    """Creates the tables that don't exist yet, and records the version of the formats."""
    with engine.begin() as connection:
        lock_tables(connection)
        recorded = _check_format(connection)
        _metadata.create_all(connection)
        if recorded < FORMAT:
            format_version.create(connection, checkfirst=True)
            connection.execute(upsert_nothing(connection, format_version, format=FORMAT))


def lock_tables(connection: Connection) -> None:
    """Keeps others from creating tables until the transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _POSTGRES_LOCK})


def _check_format(connection: Connection) -> int:
    """The version that the database records, 1 if it records none; refuses a newer one than this program knows."""
    if not inspect(connection).has_table(format_version.name):
        return FIRST
    recorded = connection.execute(select(func.max(format_version.c.format))).scalar_one()
    return check_format(recorded, f"the catalog {shown(connection.engine.url)}")


def upsert_nothing(connection: Connection, table: Table, **values: object) -> Insert:
    """An insert of a row that does nothing if its key exists."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).values(**values).on_conflict_do_nothing()
    return sqlite.insert(table).values(**values).on_conflict_do_nothing()
