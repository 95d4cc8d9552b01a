"""The application that several steps of a run share, and how a step asks it to be carried out.

Each run has one row in the catalog's database. Whoever starts the application announces it there and keeps saying that
it is alive. A step writes its name into the row and reads what the application prints, until that has ended the step.

Nothing depends on it: a step whose application doesn't answer has one of its own. If both are at work by mistake, the
job's lease lets one of them continue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import BigInteger, Column, Connection, MetaData, RowMapping, Table, Text, delete, insert, select, update
from sqlalchemy import inspect as inspected

from flinkstate.errors import StateferryError, TransientError
from stateferry.runs.catalog.control_tables import ControlDatabase, lock_tables

T = TypeVar("T")

ALIVE_MS = 20_000
"""For how long an application counts as alive after its last sign of life."""
_SECONDS_TO_END = 15.0
# The catalog may be away for so long, and is asked again so often.
_PATIENCE, _PAUSE = 300.0, 1.0
_KEPT_MS = 7 * 24 * 3600 * 1000
# The table comes with the first application: a role that may not create tables can do without it.
_application = Table(
    "stateferry_application",
    MetaData(),
    # The folder of the run.
    Column("run", Text, primary_key=True),
    # Null once it was dismissed, or who started it has seen its end.
    Column("name", Text),
    Column("alive_at", BigInteger, nullable=False),
    # Not 0 once the application itself serves no more.
    Column("ends", BigInteger, nullable=False),
    # Requests are counted; the newest one is answered if both counts are the same.
    Column("asked", BigInteger, nullable=False),
    Column("step", Text),
    Column("answered", BigInteger, nullable=False),
    Column("exit_code", BigInteger),
    # The end of what the step has printed, and how much came before; or that Spark has started, before the first step.
    Column("output", Text, nullable=False),
    Column("output_before", BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A step that the application is asked to carry out."""

    number: int
    step: str


@dataclass(frozen=True, slots=True)
class Output:
    """The end of what a step has printed, how many characters came before, and its exit code once it has ended."""

    text: str
    before: int = 0
    exit_code: int | None = None

    def after(self, seen: int) -> str:
        """What follows the characters that were seen."""
        return self.text[max(0, seen - self.before) :]

    @property
    def length(self) -> int:
        return self.before + len(self.text)


def patiently(ask: Callable[[], T]) -> T:
    """Asks again while the catalog is away: step and application work on meanwhile."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return ask()
        except TransientError:
            if time.monotonic() > end:
                raise
            time.sleep(_PAUSE)


class DismissedError(StateferryError):
    """The application is no longer that of its run: another one was announced, or nobody waits for it any more."""


class SharedApplication(ControlDatabase):
    """The row of one run, for who starts the application, for the steps, and for the application itself.

    `run` is the folder of the run, as text.
    """

    def __init__(self, catalog_uri: str, run: str, clock: Callable[[], int] | None = None) -> None:
        super().__init__(catalog_uri, clock)
        self._run = run
        self._has_table = False

    # For who starts the application.

    def announce(self, name: str) -> None:
        """Makes an application of this name that of the run; a request that an earlier one has not answered is lost."""
        with self._engine.begin() as connection:
            lock_tables(connection)
            _application.create(connection, checkfirst=True)
            row = self._row(connection)
            asked, now = 0 if row is None else row["asked"], self._now(connection)
            old = (_application.c.run == self._run) | (_application.c.alive_at < now - _KEPT_MS)
            connection.execute(delete(_application).where(old))
            values = {"name": name, "alive_at": now, "ends": 0, "asked": asked, "answered": asked}
            connection.execute(insert(_application).values(run=self._run, **values, output="", output_before=0))

    @contextmanager
    def kept_alive(self, name: str, end: Callable[[], object] = lambda: None) -> Iterator[threading.Event]:
        """Says that the application is alive, as long as the context lasts; then, that it has ended.

        Yields an event that is set if it is dismissed meanwhile. `end` is called if it doesn't end by itself then.
        """
        ended, dismissed = threading.Event(), threading.Event()

        def say_so() -> None:
            while not ended.wait(ALIVE_MS / 4000):
                # The next time may succeed. If none does, the steps go on without the application.
                with suppress(StateferryError), self._engine.begin() as connection:
                    if not self._set(connection, name, alive_at=self._now(connection)):
                        dismissed.set()
                if dismissed.is_set():
                    if not ended.wait(_SECONDS_TO_END):
                        end()
                    return

        thread = threading.Thread(target=say_so, daemon=True, name="shared application")
        thread.start()
        try:
            yield dismissed
        finally:
            ended.set()
            thread.join()
            with suppress(StateferryError), self._engine.begin() as connection:
                self._set(connection, name, name=None)

    # For the steps.

    def is_alive(self) -> bool:
        """Whether the run has an application that steps may ask."""
        with self._engine.begin() as connection:
            row = self._row(connection)
            return row is not None and self._lives(connection, row)

    def is_ready(self) -> bool:
        """Whether the run has an application that begins a step at once, because its Spark has started."""
        with self._engine.begin() as connection:
            row = self._row(connection)
            return row is not None and self._lives(connection, row) and row["output"] != ""

    def ask(self, step: str) -> int | None:
        """Asks for the step; returns the number of the request, or None if the application can't be asked.

        A step that is at work already, because an earlier try has asked for it, isn't asked for twice.
        """
        with self._engine.begin() as connection:
            row = self._row(connection)
            if row is None or not self._lives(connection, row):
                return None
            if row["answered"] < row["asked"]:
                return int(row["asked"]) if row["step"] == step else None
            values = {"asked": row["asked"] + 1, "step": step, "exit_code": None, "output": "", "output_before": 0}
            connection.execute(update(_application).where(_application.c.run == self._run).values(**values))
            return int(row["asked"]) + 1

    def output(self, number: int) -> Output | None:
        """What the application says to a request; None if it has ended without an answer."""
        with self._engine.begin() as connection:
            row = self._row(connection)
            if row is None or row["asked"] != number:
                return None
            if row["answered"] == number:
                return (
                    None if row["exit_code"] is None else Output(row["output"], row["output_before"], row["exit_code"])
                )
            return Output(row["output"], row["output_before"]) if self._lives(connection, row) else None

    def dismiss(self, *, if_idle: bool = False) -> None:
        """Has the run's application end; with `if_idle`, only if no step is at work."""
        with self._engine.begin() as connection:
            row = self._row(connection)
            if row is not None and not (if_idle and row["answered"] != row["asked"]):
                connection.execute(update(_application).where(_application.c.run == self._run).values(name=None))

    # For the application.

    def say_ready(self, name: str) -> None:
        """Tells that Spark has started, unless a step waits already: it would take that for its own first words."""
        with self._engine.begin() as connection:
            row = self._row(connection)
            if row is not None and row["answered"] == row["asked"]:
                self._set(connection, name, output="Spark has started")

    def request(self, name: str) -> StepRequest | None:
        """The step that the application of this name is to carry out, or None.

        Raises a `DismissedError` if it is no longer the run's application.
        """
        with self._engine.begin() as connection:
            row = self._row(connection)
            if row is None or row["name"] != name:
                raise DismissedError("nobody waits for this application any more")
            return None if row["answered"] == row["asked"] else StepRequest(row["asked"], row["step"])

    def keep_output(self, name: str, number: int, output: Output) -> None:
        """Passes on what the step has printed so far; with an exit code, the request is answered."""
        values: dict[str, object] = {"output": output.text, "output_before": output.before}
        if output.exit_code is not None:
            values |= {"exit_code": output.exit_code, "answered": number}
        with self._engine.begin() as connection:
            self._set(connection, name, **values)

    def end_if_idle(self, name: str) -> bool:
        """Serves no more, unless it is asked for a step."""
        with self._engine.begin() as connection:
            row = self._row(connection)
            if row is not None and row["name"] == name and row["answered"] != row["asked"]:
                return False
            self._set(connection, name, ends=1)
            return True

    def end(self, name: str) -> None:
        """Serves no more, whatever it is asked for."""
        with self._engine.begin() as connection:
            self._set(connection, name, ends=1)

    def _row(self, connection: Connection) -> RowMapping | None:
        """The row, locked against changes by others until the transaction ends."""
        self._has_table = self._has_table or inspected(connection).has_table(_application.name)
        if not self._has_table:
            return None
        found = select(_application).where(_application.c.run == self._run).with_for_update()
        return connection.execute(found).mappings().first()

    def _lives(self, connection: Connection, row: RowMapping) -> bool:
        is_served = row["name"] is not None and not row["ends"]
        return is_served and self._now(connection) - row["alive_at"] < ALIVE_MS

    def _set(self, connection: Connection, of: str, **values: object) -> bool:
        """Changes the row, if the run's application still is the one of this name; returns whether it is."""
        where = (_application.c.run == self._run, _application.c.name == of)
        return connection.execute(update(_application).where(*where).values(**values)).rowcount > 0
