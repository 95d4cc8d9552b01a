"""Controls who may work on a job and what is published: lease, publications, rejections, in the catalog's database.

A run works under the job's lease. The lease has a token, which grows each time the lease gets a new holder. Each
publication compares its token with the newest one inside its own transaction. So a driver that lost its lease without
noticing can't publish.

Times only decide when a silent holder may be replaced. A wrong clock can make a run wait or lose its lease, but never
lets two runs publish. With Postgres, all drivers use the database's clock. A SQLite file belongs to one machine, so
that machine's clock is used.

A person's rejection of a run is a record as well. It needs no lease. The publishing transaction looks for it, so a run
is either rejected or published, in whatever order both are tried.

A publication is one record. One row of each job says which publication stands, and it is replaced only if it still has
the version that the transaction read. The history is kept: a rollback sets that row back to the earlier publication.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from sqlalchemy import Connection, Engine, RowMapping, delete, func, insert, select, update

from stateferry.durations import moment, now_ms
from stateferry.errors import PassingError, RejectedError
from stateferry.runs.control_tables import (
    create_tables,
    engine_for,
    engine_to_read,
    lease,
    publication,
    rejection,
    standing,
    upsert_nothing,
)
from stateferry.runs.processes import Process
from stateferry.runs.publication import Publication, Record

LEASE_MS = 60_000
# Messages contain these words when another run holds the lease.
BEING_WORKED_ON = "is being worked on by"
# How long the lease is kept between two steps of a run, so that the next step can be started.
BETWEEN_STEPS_MS = 600_000


class LeaseHeldError(RejectedError):
    """Another run works on the job, or the same run in another process."""


class LeaseLostError(PassingError):
    """The lease was released, or another run or process has taken it."""


class OlderSourceError(RejectedError):
    """The source savepoint is older than the one whose publication stands."""


class RunEndedError(RejectedError):
    """The run was rejected, published or rolled back, so it can't get another state."""


class PublicationConflictError(RejectedError):
    """The publication that stands is not the one that was to be replaced."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a job, as one run holds it; times are in milliseconds."""

    job: str
    run_id: str
    token: int
    holder: str
    since: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """A person's rejection of a run; `at` is in milliseconds."""

    run_id: str
    at: int
    reason: str


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What a rollback did: `undone` is the publication that it undid, `standing` the one that stands again, if any."""

    undone: Publication
    standing: Publication | None

    @property
    def restore_from(self) -> str:
        """The savepoint to restore: the target of the publication that stands again, else the undone one's source."""
        return self.standing.record.target if self.standing is not None else self.undone.record.source


class Control:
    """Reads and changes the records of control. Use it as a context manager; each call is one transaction.

    `clock` returns milliseconds and is for tests.
    """

    def __init__(self, catalog_uri: str, clock: Callable[[], int] | None = None, engine: Engine | None = None) -> None:
        """Connects to the catalog; an `engine` that is passed in must have the tables already."""
        self._clock = clock
        self._engine = engine or engine_for(catalog_uri)
        if engine is None:
            create_tables(self._engine)

    @classmethod
    def if_there(cls, catalog_uri: str) -> Control | None:
        """Opens the catalog to read it, without creating anything; None if no run was ever made with this catalog."""
        engine = engine_to_read(catalog_uri)
        return None if engine is None else cls(catalog_uri, engine=engine)

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.dispose()

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

    def release(self, held: Lease) -> None:
        """Releases the lease; does nothing if another process holds it by now."""
        with self._engine.begin() as connection:
            connection.execute(
                update(lease)
                .where(lease.c.job == held.job, lease.c.token == held.token)
                .values(run_id=None, holder=None, since=None, expires_at=None)
            )

    def lease_of(self, job: str) -> Lease | None:
        """The job's lease, which may have expired, or None."""
        with self._engine.begin() as connection:
            row = connection.execute(select(lease).where(lease.c.job == job)).mappings().first()
            return Lease(**row) if row is not None and row["run_id"] is not None else None

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

    def publish(self, held: Lease, record: Record, *, replaces: int | None) -> Publication:
        """Makes the record the standing publication, if the one that stands now has the sequence `replaces`.

        To publish again what stands already is no error, so that a run that was killed may repeat it.
        """
        with self._engine.begin() as connection:
            self._check_held(connection, held)
            before, version = self._standing(connection, held.job)
            if before is not None and before.record.run_id == record.run_id and before.record == record:
                return before
            self._check_may_publish(connection, held.job, record.run_id)
            _check_follows(held.job, record, before, replaces)
            published = Publication(
                held.job,
                self._last_sequence(connection, held.job) + 1,
                None if before is None else before.sequence,
                self._now(connection),
                record,
            )
            connection.execute(
                insert(publication).values(
                    job=held.job,
                    sequence=published.sequence,
                    previous=published.previous,
                    run_id=record.run_id,
                    token=held.token,
                    published_at=published.published_at,
                    record=record.to_json(),
                )
            )
            self._stand(connection, held.job, published.sequence, version)
            return published

    def reject(self, job: str, run_id: str, reason: str) -> Rejection:
        """Records that the run must never be published; a later rejection replaces the reason of an earlier one.

        A driver that works on the run finds the rejection before its next step, or at the latest when it publishes.
        """
        with self._engine.begin() as connection:
            self._locked(connection, job)
            for one in self._publications_of(connection, job, run_id):
                raise RunEndedError(
                    f"run {run_id} of job {job} can't be rejected any more: it is published already ({_shown(one)}). "
                    f"To undo that, roll it back: stateferry rollback --job {job}"
                )
            said = Rejection(run_id, self._now(connection), reason)
            connection.execute(delete(rejection).where(rejection.c.job == job, rejection.c.run_id == run_id))
            values = {"job": job, "run_id": run_id, "rejected_at": said.at, "reason": reason}
            connection.execute(insert(rejection).values(**values))
            return said

    def rejection(self, job: str, run_id: str) -> Rejection | None:
        """The rejection of the run, or None."""
        with self._engine.begin() as connection:
            return self._rejection(connection, job, run_id)

    def rollback(self, held: Lease, *, undo: int) -> RolledBack:
        """Makes the publication before `undo` (a sequence) stand again; to repeat this is no error."""
        with self._engine.begin() as connection:
            self._check_held(connection, held)
            standing_now, version = self._standing(connection, held.job)
            undone = self._publication(connection, held.job, undo)
            if undone is None:
                raise PublicationConflictError(f"job {held.job} has no publication {undo}: nothing to roll back")
            before = self._publication(connection, held.job, undone.previous)
            if undone.rolled_back_at is not None and standing_now == before:
                return RolledBack(undone, before)
            if standing_now != undone:
                raise PublicationConflictError(
                    f"job {held.job}: expected {_shown(undone)} to stand, found {_shown(standing_now)}: look at the "
                    "status, then decide again"
                )
            connection.execute(
                update(publication)
                .where(publication.c.job == held.job, publication.c.sequence == undo)
                .values(rolled_back_at=self._now(connection))
            )
            self._stand(connection, held.job, undone.previous, version)
            return RolledBack(undone, before)

    def standing(self, job: str) -> Publication | None:
        """The publication of the job that stands, or None."""
        with self._engine.begin() as connection:
            return self._standing(connection, job)[0]

    def history(self, job: str) -> tuple[Publication, ...]:
        """All publications of the job, including those that were rolled back, the oldest first."""
        with self._engine.begin() as connection:
            rows = connection.execute(
                select(publication).where(publication.c.job == job).order_by(publication.c.sequence)
            ).mappings()
            return tuple(_publication(row) for row in rows)

    def protected_runs(self, job: str) -> frozenset[str]:
        """The runs whose results must be kept: the published one, and the one that a rollback would bring back."""
        now = self.standing(job)
        before = [one for one in self.history(job) if now is not None and one.sequence == now.previous]
        return frozenset(one.record.run_id for one in (*before, now) if one is not None)

    def jobs(self) -> tuple[str, ...]:
        """All jobs that ever had a lease."""
        with self._engine.begin() as connection:
            return tuple(connection.execute(select(lease.c.job).order_by(lease.c.job)).scalars())

    def _now(self, connection: Connection) -> int:
        if self._clock is not None:
            return self._clock()
        if connection.dialect.name == "postgresql":
            seconds = connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one()
            return int(float(seconds) * 1000)
        return now_ms()

    def _locked(self, connection: Connection, job: str) -> RowMapping:
        """The job's lease, locked against changes by others until the transaction ends."""
        connection.execute(upsert_nothing(connection, lease, job=job, token=0))
        return connection.execute(select(lease).where(lease.c.job == job).with_for_update()).mappings().one()

    def _check_held(self, connection: Connection, held: Lease) -> None:
        row = self._locked(connection, held.job)
        if row["token"] == held.token and row["run_id"] == held.run_id:
            return
        now = "nobody has it" if row["run_id"] is None else f"run {row['run_id']} has it ({row['holder']})"
        raise LeaseLostError(
            f"run {held.run_id} has lost the lease of job {held.job} (token {held.token}; the newest is "
            f"{row['token']}, {now}): what it does can't be committed any more"
        )

    def _standing(self, connection: Connection, job: str) -> tuple[Publication | None, int]:
        """The publication that stands, and the version of the row that says so; 0 if there is no row yet."""
        row = connection.execute(select(standing).where(standing.c.job == job)).mappings().first()
        if row is None:
            return None, 0
        return self._publication(connection, job, row["sequence"]), row["version"]

    def _publication(self, connection: Connection, job: str, sequence: int | None) -> Publication | None:
        if sequence is None:
            return None
        where = (publication.c.job == job, publication.c.sequence == sequence)
        row = connection.execute(select(publication).where(*where)).mappings().first()
        return None if row is None else _publication(row)

    def _publications_of(self, connection: Connection, job: str, run_id: str) -> list[Publication]:
        where = (publication.c.job == job, publication.c.run_id == run_id)
        return [_publication(row) for row in connection.execute(select(publication).where(*where)).mappings()]

    def _rejection(self, connection: Connection, job: str, run_id: str) -> Rejection | None:
        where = (rejection.c.job == job, rejection.c.run_id == run_id)
        row = connection.execute(select(rejection).where(*where)).mappings().first()
        return None if row is None else Rejection(run_id, row["rejected_at"], row["reason"])

    def _check_may_publish(self, connection: Connection, job: str, run_id: str) -> None:
        if (no := self._rejection(connection, job, run_id)) is not None:
            raise RunEndedError(f"run {run_id} of job {job} was rejected ({no.reason}): nothing is published")
        for one in self._publications_of(connection, job, run_id):
            if one.rolled_back_at is not None:
                raise RunEndedError(
                    f"run {run_id} of job {job} was rolled back ({_shown(one)}): it isn't published again. Plan a new "
                    "run of the savepoint"
                )

    def _last_sequence(self, connection: Connection, job: str) -> int:
        last = select(func.max(publication.c.sequence)).where(publication.c.job == job)
        return connection.execute(last).scalar_one() or 0

    def _stand(self, connection: Connection, job: str, sequence: int | None, version: int) -> None:
        connection.execute(upsert_nothing(connection, standing, job=job, sequence=None, version=0))
        changed = connection.execute(
            update(standing)
            .where(standing.c.job == job, standing.c.version == version)
            .values(sequence=sequence, version=version + 1)
        )
        if changed.rowcount != 1:
            raise PublicationConflictError(f"job {job}: another publication came in between: look at the status")


def _check_free(row: RowMapping, run_id: str, me: Process, now: int) -> None:
    if row["run_id"] is None or row["expires_at"] <= now:
        return
    holder = Process.parse(row["holder"])
    if row["run_id"] == run_id and (holder == me or not holder.surely_runs()):
        return
    same = "the same run" if row["run_id"] == run_id else f"run {row['run_id']}"
    raise LeaseHeldError(
        f"job {row['job']} {BEING_WORKED_ON} {same}: {holder.shown}, since {moment(row['since'])}, until "
        f"{moment(row['expires_at'])} unless it is renewed. Wait for it, or end it"
    )


def _check_follows(job: str, record: Record, before: Publication | None, replaces: int | None) -> None:
    if (None if before is None else before.sequence) != replaces:
        expected = "nothing" if replaces is None else f"publication {replaces}"
        raise PublicationConflictError(
            f"job {job}: expected {expected} to stand, found {_shown(before)}: validate against what stands now, then "
            "publish again"
        )
    if before is not None:
        check_age(job, record.source, record.checkpoint_id, before)


def check_age(job: str, source: str, checkpoint_id: int, standing_now: Publication) -> None:
    """Refuses a source with a lower checkpoint id than the source of the publication that stands."""
    if checkpoint_id < standing_now.record.checkpoint_id:
        raise OlderSourceError(
            f"job {job}: the source {source} is of checkpoint {checkpoint_id}, older than checkpoint "
            f"{standing_now.record.checkpoint_id} of {_shown(standing_now)}: roll that back first, or, if the job was "
            "started afresh and counts from 1 again, give it another job name"
        )


def _publication(row: RowMapping) -> Publication:
    return Publication(
        row["job"],
        row["sequence"],
        row["previous"],
        row["published_at"],
        Record.of_json(row["record"]),
        row["rolled_back_at"],
    )


def _shown(one: Publication | None) -> str:
    return "nothing" if one is None else f"publication {one.sequence} (run {one.record.run_id})"
