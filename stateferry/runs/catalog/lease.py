"""The lease of a job: the right to work on it, which one run has at a time.

A lease has a token, which grows each time the lease gets a new holder. Each publication compares its token with the
newest one inside its own transaction. So a driver that lost its lease without noticing can't publish.

Times only decide when a silent holder may be replaced. A wrong clock can make a run wait or lose its lease, but never
lets two runs publish. With Postgres, all drivers use the database's clock. A SQLite file belongs to one machine, so
that machine's clock is used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, select, update

from flinkstate.errors import RejectedError, StateferryError, TransientError
from stateferry.basics.durations import moment
from stateferry.runs.catalog.control_tables import ControlDatabase, lease, upsert_nothing
from stateferry.runs.catalog.processes import Process

LEASE_MS = 60_000
# Messages contain these words when another run holds the lease.
BEING_WORKED_ON = "is being worked on by"
# How long the lease is kept between two steps of a run, so that the next step can be started.
BETWEEN_STEPS_MS = 600_000
# The holder of a lease that is left to a process of the run that isn't known yet.
_TO_BEGIN = "a process that is about to begin"


class LeaseHeldError(RejectedError):
    """Another run works on the job, or the same run in another process."""


class LeaseLostError(TransientError):
    """The lease was released, or another run or process has taken it."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a job, as one run holds it; times are in milliseconds."""

    job: str
    run_id: str
    token: int
    holder: str
    since: int
    expires_at: int


class Leases(ControlDatabase):
    """Takes, renews and releases the leases of jobs."""

    def acquire(self, job: str, run_id: str, *, lease_ms: int = LEASE_MS, force: bool = False) -> Lease:
        """Takes the job's lease for this process.

        A run gets its own lease back, unless another process on this machine holds it and is known to run. The lease of
        another run must have been released or have expired. `force` takes the lease in any case: use it when the holder
        is known to have ended.
        """
        me = Process.this()
        with self._engine.begin() as connection:
            row = self._locked(connection, job)
            now = self._now(connection)
            if not force:
                _check_free(row, run_id, me, now)
            taken = Lease(job, run_id, row["token"] + 1, str(me), now, now + lease_ms)
            connection.execute(
                update(lease)
                .where(lease.c.job == job)
                .values(run_id=run_id, token=taken.token, holder=taken.holder, since=now, expires_at=taken.expires_at)
            )
            return taken

    def renew(self, held: Lease, *, lease_ms: int = LEASE_MS) -> Lease:
        """Extends the lease; one that has expired is still valid as long as no other process has taken it."""
        with self._engine.begin() as connection:
            self._check_held(connection, held)
            expires_at = self._now(connection) + lease_ms
            connection.execute(update(lease).where(lease.c.job == held.job).values(expires_at=expires_at))
            return Lease(held.job, held.run_id, held.token, held.holder, held.since, expires_at)

    def leave(self, held: Lease) -> None:
        """Leaves the lease to the run's next process, for some minutes: that may begin before this one has ended."""
        with self._engine.begin() as connection:
            self._check_held(connection, held)
            expires_at = self._now(connection) + BETWEEN_STEPS_MS
            values = {"holder": _TO_BEGIN, "expires_at": expires_at}
            connection.execute(update(lease).where(lease.c.job == held.job).values(**values))

    def release(self, held: Lease) -> None:
        """Releases the lease; does nothing if another process holds it by now."""
        with self._engine.begin() as connection:
            connection.execute(
                update(lease)
                .where(lease.c.job == held.job, lease.c.token == held.token)
                .values(run_id=None, holder=None, since=None, expires_at=None)
            )

    def release_between_steps(self, job: str, run_id: str) -> None:
        """Releases the lease that the run keeps between two steps, unless a process of this machine surely has it.

        Whoever calls this knows that no step of the run is at work.
        """
        held = self.lease_of(job)
        if held is not None and held.run_id == run_id:
            with suppress(LeaseHeldError):
                self.release(self.acquire(job, run_id))

    def lease_of(self, job: str) -> Lease | None:
        """The job's lease, which may have expired, or None."""
        with self._engine.begin() as connection:
            row = connection.execute(select(lease).where(lease.c.job == job)).mappings().first()
            return Lease(**row) if row is not None and row["run_id"] is not None else None

    def at_work(self, job: str) -> Lease | None:
        """The job's lease, if its time hasn't ended, by the clock of the catalog; else None."""
        held = self.lease_of(job)
        with self._engine.begin() as connection:
            return held if held is not None and held.expires_at > self._now(connection) else None

    def why_not_free(self, job: str, run_id: str) -> str:
        """Says which process keeps this run's next driver from the lease; empty if there is none."""
        with self._engine.begin() as connection:
            row = connection.execute(select(lease).where(lease.c.job == job)).mappings().first()
            try:
                if row is not None:
                    _check_free(row, run_id, Process.this(), self._now(connection))
            except LeaseHeldError as error:
                return str(error)
            return ""

    def jobs(self) -> tuple[str, ...]:
        """All jobs that ever had a lease."""
        with self._engine.begin() as connection:
            return tuple(connection.execute(select(lease.c.job).order_by(lease.c.job)).scalars())

    def _locked(self, connection: Connection, job: str) -> RowMapping:
        """The job's lease, locked against changes by others until the transaction ends."""
        connection.execute(upsert_nothing(connection, lease, job=job, token=0))
        return connection.execute(select(lease).where(lease.c.job == job).with_for_update()).mappings().one()

    def _check_held(self, connection: Connection, held: Lease) -> None:
        row = self._locked(connection, held.job)
        if row["token"] == held.token and row["run_id"] == held.run_id:
            return
        now = "no run has it" if row["run_id"] is None else f"run {row['run_id']} has it ({row['holder']})"
        raise LeaseLostError(
            f"run {held.run_id} has lost the lease of job {held.job} (token {held.token}; the newest is "
            f"{row['token']}, {now}): what this process does from now on is not committed"
        )


@contextmanager
def job_locked(catalog_uri: str, job: str) -> Iterator[None]:
    """Locks the job's lease, which may be free or another's, against changes, as others do who call this."""
    with Leases(catalog_uri) as leases, leases._engine.begin() as connection:
        leases._locked(connection, job)
        yield


class LeaseRenewal:
    """Renews a lease in a thread, as long as it is used as a context manager."""

    def __init__(self, leases: Leases, held: Lease) -> None:
        self._leases, self._held = leases, held
        self._lost: StateferryError | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def check(self) -> None:
        """Raises an error if the lease is lost, else extends it."""
        if self._lost is not None:
            raise self._lost
        self._leases.renew(self._held)

    def __enter__(self) -> None:
        self._ended.clear()
        self._thread = threading.Thread(target=self._renew, daemon=True, name="lease")
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _renew(self) -> None:
        while not self._ended.wait(LEASE_MS / 3000):
            try:
                self._leases.renew(self._held)
            except StateferryError as error:
                # The lease stays valid until another run takes it, and the next renewal may succeed.
                if isinstance(error, TransientError) and not isinstance(error, LeaseLostError):
                    continue
                self._lost = error
                return


def _check_free(row: RowMapping, run_id: str, me: Process, now: int) -> None:
    if row["run_id"] is None or row["expires_at"] <= now:
        return
    holder = Process.parse(row["holder"])
    if row["run_id"] == run_id and (holder == me or not holder.surely_runs()):
        return
    same = "the same run" if row["run_id"] == run_id else f"run {row['run_id']}"
    raise LeaseHeldError(
        f"job {row['job']} {BEING_WORKED_ON} {same}: {holder.shown}, since {moment(row['since'])}. Its lease "
        f"ends at {moment(row['expires_at'])} unless it is renewed. Wait until that process is done, or end it"
    )
