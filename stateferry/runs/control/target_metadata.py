"""Keeps the target's `_metadata` until the publication stands, then makes the target a savepoint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from flinkstate.errors import RejectedError, StateferryError
from flinkstate.files.storage import Location
from flinkstate.metadata.file_names import METADATA, claimed_by, drafts, is_draft_of_metadata
from flinkstate.metadata.metadata import RelativeFile
from flinkstate.metadata.parse_metadata import parse_metadata
from stateferry.basics.private_files import private_files, usual_files
from stateferry.basics.quantities import noun
from stateferry.runs.catalog.publications import Publication
from stateferry.runs.record.facts import Claim
from stateferry.runs.record.run_list import readable_runs
from stateferry.runs.record.runs import Run


@dataclass(frozen=True, slots=True)
class TargetMetadata:
    """The `_metadata` of the target, kept in the run's folder until the publication stands."""

    run: Run

    def keep(self, metadata: bytes) -> None:
        """Stores the `_metadata` in the run's folder."""
        with private_files():
            self.run.target_metadata.parent.make_folder()
            self.run.target_metadata.write_atomically(metadata)

    def read(self) -> bytes:
        """The stored `_metadata`."""
        return self.run.target_metadata.read()

    def is_kept(self) -> bool:
        """Whether the `_metadata` is stored."""
        return self.run.target_metadata.exists()

    def roll_forward(self, digest: str, kept: bytes | None = None) -> None:
        """Writes `_metadata` into the target, if it isn't there yet.

        `kept` is what is stored, if it was read already and its files were found. It must have the digest of the
        publication. Two processes may do this at once, because both write the same bytes.
        """
        target = Location.of(self.run.plan.target)
        metadata = target.child(METADATA)
        found = metadata.read_if_there()
        if found is None:
            content = self.read() if kept is None else kept
            if digest_of_metadata(content) != digest:
                raise self._other(
                    f"{self.run.target_metadata.shown} is no longer the one that was validated and published, so it is "
                    f"not written into {target.shown}, and no job can start from there"
                )
            if kept is None:
                self._check_files(target, content)
            try:
                self.publish(target, content)
            except (OSError, StateferryError):
                if not metadata.is_file():
                    raise
        elif digest_of_metadata(found) != digest:
            raise self._other(f"{metadata.shown} is not the one that was validated and published: start no job from it")
        # `_metadata` is in place now, so its drafts are useless, even to a process that still writes one. It refuses
        # other runs from now on, so the claim isn't needed either.
        for draft in filter(is_draft_of_metadata, drafts(target)):
            draft.remove()
        for claim in (entry for entry in target.entries() if claimed_by(entry.name) == self.run.plan.run_id):
            claim.remove()

    def _check_files(self, target: Location, content: bytes) -> None:
        """Refuses to make a savepoint of a target whose files are gone: it would be one by its name alone."""
        metadata = parse_metadata(content, self.run.target_metadata.shown)
        named = {
            stream.name
            for operator in metadata.operators
            for subtask in operator.subtasks
            for stream in subtask.streams()
            if isinstance(stream, RelativeFile)
        }
        if gone := sorted(named - {entry.name for entry in target.entries()}):
            raise self._other(
                f"{len(gone)} {noun(len(gone), 'file')} of {target.shown} {noun(len(gone), 'is', 'are')} gone, such as "
                f"{gone[0]}: start no job from there"
            )

    def _other(self, what: str) -> RejectedError:
        plan = self.run.plan
        return RejectedError(
            f"run {plan.run_id}: {what}. Roll the publication back (stateferry rollback --job {plan.job}), then run "
            "again with another target"
        )

    def publish(self, target: Location, content: bytes) -> None:
        """Makes a savepoint of a folder with the run's files, with the permissions that the target is to have."""
        claim = self.run.facts(Claim)
        access = None if claim is None else claim.access
        if access is None:
            with usual_files():
                target.child(METADATA).write_atomically(content)
        else:
            access.open(target, self.run.plan.home)
            target.child(METADATA).write_atomically(content, access.metadata.give_to)


def digest_of_metadata(metadata: bytes) -> str:
    """The digest by which a publication knows its `_metadata`."""
    return hashlib.sha256(metadata).hexdigest()


def published_run(home: str, publication: Publication) -> Run | None:
    """The run that made the publication, or None if its folder is gone."""
    runs = readable_runs(home, publication.job)
    return next((run for run in runs if run.plan.run_id == publication.record.run_id), None)
