"""Publications and rejections of runs, in the catalog's database.

A publication is one record: which savepoint and which snapshots of the tables belong together, and their source. One
row of each job says which publication stands, and it is replaced only if it still has the version that the transaction
read. The history is kept: a rollback sets that row back to the earlier publication. Publications and rollbacks need the
job's lease (`lease.py`).

A person's rejection of a run is a record as well. It needs no lease. The publishing transaction looks for it, so a run
is either rejected or published, in whatever order both are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from flinkstate.errors import RejectedError
from stateferry.runs.catalog.control_tables import publication, rejection, standing_publication, upsert_nothing
from stateferry.runs.catalog.lease import Lease, Leases


class OlderSourceError(RejectedError):
    """The source savepoint is older than the one whose publication stands."""


class RunEndedError(RejectedError):
    """The run was rejected, published or rolled back, so what was asked for can't be done with it."""


class PublicationConflictError(RejectedError):
    """The publication that stands is not the one that was to be replaced."""


class Record(BaseModel):
    """The content of a publication; readers who need consistent data go through it.

    `metadata_digest` is the SHA-256 of the target's `_metadata`, `tables` are the snapshot ids by table. While
    `tables_pending`, the tables don't follow this publication yet, and it names none of their snapshots.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    plan_fingerprint: str
    source: str
    checkpoint_id: int
    target: str
    metadata_digest: str
    tables: dict[str, int]
    tables_pending: bool = False


@dataclass(frozen=True, slots=True)
class Publication:
    """A record in the history of its job; `previous` is the sequence of the publication that stood before it."""

    job: str
    sequence: int
    previous: int | None
    published_at: int
    record: Record
    rolled_back_at: int | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """A person's rejection of a run; `at` is in milliseconds."""

    run_id: str
    at: int
    reason: str


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What a rollback did: `undone` is the publication that it undid, `standing` the one that stands again, if any.

    `problem` says what is wrong with the target of the latter, from which the job isn't restored.
    """

    undone: Publication
    standing: Publication | None
    problem: str = ""

    @property
    def restore_from(self) -> str:
        """The savepoint to restore: the one that the undone run read.

        The target of a publication that stands again may be older: its job, or the one before, has run since.
        """
        return self.undone.record.source


class Control(Leases):
    """Reads and changes the records of control: leases, publications and rejections."""

    def publish(
        self, held: Lease, record: Record, *, replaces: int | None, check: Callable[[], None] = lambda: None
    ) -> Publication:
        """Makes the record the standing publication, if the one that stands now has the sequence `replaces`.

        To publish again what stands already is no error, so that a run that was killed may repeat it. `check` raises
        an error if nothing may be published; it is called while the job is locked.
        """
        with self._engine.begin() as connection:
            self._check_held(connection, held)
            before, version = self._standing(connection, held.job)
            if before is not None and before.record.run_id == record.run_id and before.record == record:
                return before
            self._check_may_publish(connection, held.job, record.run_id)
            check()
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
                    record=record.model_dump_json(),
                )
            )
            self._stand(connection, held.job, published.sequence, version)
            return published

    def are_tables_pending(self, job: str, run_id: str) -> bool:
        """Whether the run's publication stands, and its tables haven't followed it yet.

        The tables of a publication that doesn't stand stay as they are: they belong to the one that does.
        """
        standing = self.standing(job)
        return standing is not None and standing.record.run_id == run_id and standing.record.tables_pending

    def complete(self, held: Lease, run_id: str, tables: dict[str, int]) -> None:
        """Records that the tables of the run's publication have followed; to repeat this is no error."""
        with self._engine.begin() as connection:
            self._check_held(connection, held)
            for one in self._publications_of(connection, held.job, run_id):
                complete = one.record.model_copy(update={"tables": tables, "tables_pending": False})
                connection.execute(
                    update(publication)
                    .where(publication.c.job == held.job, publication.c.sequence == one.sequence)
                    .values(record=complete.model_dump_json())
                )

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
            made = Rejection(run_id, self._now(connection), reason)
            connection.execute(delete(rejection).where(rejection.c.job == job, rejection.c.run_id == run_id))
            values = {"job": job, "run_id": run_id, "rejected_at": made.at, "reason": reason}
            connection.execute(insert(rejection).values(**values))
            return made

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

    def publication_of(self, job: str, run_id: str) -> Publication:
        """The publication of a run, which must have one."""
        with self._engine.begin() as connection:
            for one in self._publications_of(connection, job, run_id):
                return one
        raise RejectedError(
            f"run {run_id} of job {job} calls itself published, but the catalog has no publication of it: nothing is "
            "written into its target. Start no job from there, and run again with another target"
        )

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

    def _standing(self, connection: Connection, job: str) -> tuple[Publication | None, int]:
        """The publication that stands, and the version of the row that says so; 0 if there is no row yet."""
        row = (
            connection.execute(select(standing_publication).where(standing_publication.c.job == job)).mappings().first()
        )
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
        connection.execute(upsert_nothing(connection, standing_publication, job=job, sequence=None, version=0))
        changed = connection.execute(
            update(standing_publication)
            .where(standing_publication.c.job == job, standing_publication.c.version == version)
            .values(sequence=sequence, version=version + 1)
        )
        if changed.rowcount != 1:
            raise PublicationConflictError(
                f"job {job}: another publication or rollback came first, so nothing was changed: look at the status"
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
            f"{standing_now.record.checkpoint_id} of {_shown(standing_now)}: roll that publication back first. If the "
            "job was started without state, so that its checkpoints count from 1 again, give the run another job name"
        )


def _publication(row: RowMapping) -> Publication:
    return Publication(
        row["job"],
        row["sequence"],
        row["previous"],
        row["published_at"],
        Record.model_validate_json(row["record"]),
        row["rolled_back_at"],
    )


def _shown(one: Publication | None) -> str:
    return "nothing" if one is None else f"publication {one.sequence} (run {one.record.run_id})"
