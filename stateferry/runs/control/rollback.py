"""The rollback: withdraws a publication of a job, so that the one before it stands again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from flinkstate.errors import RejectedError, StateferryError
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.parse_metadata import parse_metadata
from stateferry.basics.durations import now_ms
from stateferry.runs.catalog.publications import Control, Publication, RolledBack
from stateferry.runs.control.target_metadata import TargetMetadata, published_run
from stateferry.runs.plan.plan_fields import folder_of
from stateferry.runs.plan.run_options import new_run_id
from stateferry.runs.record.run_states import RunState
from stateferry.runs.record.runs import check_home


def nothing_to_roll_back(job: str) -> RejectedError:
    """The error for a job without a publication that stands."""
    return RejectedError(f"job {job} has no publication that stands: nothing to roll back")


def check_source(undo: Publication) -> None:
    """Refuses a rollback of `undo` that would name another savepoint than its run has read."""
    record = undo.record
    found = _checkpoint_at(record.source)
    if found not in (None, record.checkpoint_id):
        raise RejectedError(
            f"publication {undo.sequence} (run {record.run_id}) can't be rolled back: its run has read checkpoint "
            f"{record.checkpoint_id} at {record.source}, and checkpoint {found} is there now, from which the old "
            "job would start. Put back what was there; if that is lost, move away what is there, and restore the "
            "job from another savepoint of its own"
        )


@dataclass(frozen=True, slots=True)
class Rollback:
    """The rollback of one job, whose runs are under `home`; `run_id` is the run that has the job's lease for it."""

    home: str
    control: Control
    job: str
    run_id: str = field(default_factory=lambda: f"rollback-{new_run_id()}")

    def publication(self) -> Publication | None:
        """The publication that a rollback would withdraw."""
        return self._left_unfinished() or self.control.standing(self.job)

    def reserve(self, undo: Publication) -> None:
        """Keeps other runs from the job until the rollback, for some minutes: nobody waits for them after this."""
        check_source(undo)
        self.control.leave(self.control.acquire(self.job, self.run_id))

    def carry_out(self, undo: Publication | None = None, *, force: bool = False) -> RolledBack:
        """Withdraws the publication that stands, or `undo`, also if that was withdrawn before. Removes no file.

        With `force` no other run is waited for: it publishes nothing, and no step of it counts, until it has the lease
        again.
        """
        check_home(self.home)
        undo = undo or self.publication()
        if undo is None:
            raise nothing_to_roll_back(self.job)
        check_source(undo)
        lease = self.control.acquire(self.job, self.run_id, force=force)
        try:
            undone = published_run(self.home, undo)
            if undone is not None:
                # The run may have been killed before it noted that it was published.
                undone.note(RunState.PUBLISHED, undo.published_at)
            rolled_back = self.control.rollback(lease, undo=undo.sequence)
            before = published_run(self.home, rolled_back.standing) if rolled_back.standing is not None else None
            if before is not None and rolled_back.standing is not None:
                try:
                    TargetMetadata(before).roll_forward(rolled_back.standing.record.metadata_digest)
                except (OSError, StateferryError) as error:
                    # The job isn't restored from there, so this keeps nobody from going back.
                    rolled_back = replace(rolled_back, problem=str(error))
            if undone is not None:
                undone.note(RunState.ROLLED_BACK, now_ms())
        finally:
            self.control.release(lease)
        return rolled_back

    def _left_unfinished(self) -> Publication | None:
        """A publication that was undone by a rollback that was then killed.

        Repeating the rollback must finish that one instead of undoing another publication.
        """
        standing = self.control.standing(self.job)
        for one in self.control.history(self.job):
            if one.rolled_back_at is not None and one.previous == (standing.sequence if standing else None):
                run = published_run(self.home, one)
                if run is not None and run.changes() and run.state is RunState.PUBLISHED:
                    return one
        return None


def _checkpoint_at(source: str) -> int | None:
    """The checkpoint of the savepoint at this place; None if it is gone, or can't be read now."""
    try:
        content = Location.of(folder_of(source)).child(METADATA).read_if_there()
        return None if content is None else parse_metadata(content, source).checkpoint_id
    except StateferryError:
        return None
