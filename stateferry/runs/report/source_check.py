"""Checks whether the source still has the bytes that the snapshot read, as far as the validation has read them again.

The validation compares the staged savepoint with the source as it is then. If the source is unchanged since the
snapshot, the state that was converted in between is the state that the snapshot counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from flinkstate.errors import RejectedError, TransientError
from flinkstate.files.digests import digest_of_bytes
from flinkstate.files.storage import Location
from flinkstate.metadata.bytes_read import HEADER, SST, WHOLE, BytesRead
from flinkstate.metadata.file_names import METADATA
from flinkstate.reading.reader import Savepoint, metadata_of
from stateferry.basics.quantities import noun
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.plan.plan_fields import folder_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts
from stateferry.runs.report.report import MOST_SAMPLES

NAME = "source: unchanged since the snapshot"


def note_metadata(source: Savepoint, read: BytesRead, files_from: Mapping[str, str] | None = None) -> None:
    """Adds the digest of `_metadata` to `read`; refuses it if it differs from what the savepoint was opened with.

    `files_from` is what the savepoint was opened with for files that were moved.
    """
    file = source.folder.child(METADATA)
    data = file.read()
    if metadata_of(source.folder, data, files_from=files_from) != source.metadata:
        raise RejectedError(
            f"{file.shown} has changed since this step began: another program writes to the savepoint. Find out "
            "which one, then start a new run of the savepoint"
        )
    read.add(METADATA, WHOLE, digest_of_bytes(data))


def behind_link(name: str) -> str:
    """The folder to which a source leads that is a link, as one to the newest savepoint.

    The folders above keep their names: Flink may know them by no other.
    """
    folder = folder_of(name)
    if "://" in folder or not os.path.islink(folder):
        return name
    return behind_link(os.path.join(os.path.dirname(folder), os.readlink(folder)))


def replaced_source(run: Run) -> str | None:
    """Says that the run's source is another savepoint by now than the run has read; None if it is the same, or gone.

    The path alone doesn't tell: it may be a link to the newest savepoint. A store that can't be reached says nothing.
    """
    facts = run.facts_if_sound(SnapshotFacts)
    before = BytesRead.of_facts(facts.read if facts is not None else {}).files.get(METADATA, {}).get(WHOLE)
    try:
        now = Location.of(folder_of(run.plan.source)).child(METADATA).read_if_there()
    except TransientError:
        return None
    if None in (before, now) or before == digest_of_bytes(now or b""):
        return None
    return (
        f"run {run.plan.run_id} has read another savepoint at {run.plan.source} than the one that is there now (its "
        "`_metadata` differs)"
    )


def check_source(before: Mapping[str, str], now: BytesRead) -> Check:
    """The check that compares the two readings of the source; `before` are the digests that the snapshot kept."""
    snapshot = BytesRead.of_facts(before)
    parts = [(file, part) for file, digests in sorted(snapshot.files.items()) for part in sorted(digests)]
    expected = f"{_in_words(snapshot)} as the snapshot read them"
    found = [(one, _of(now, *one), _of(snapshot, *one)) for one in parts]
    unread = [one for one, after, _ in found if after is None]
    changed = [one for one, after, then in found if after not in (None, then)]
    if changed:
        texts = [f"{_place(*one)}: other bytes than at the snapshot" for one in changed]
        places = f"{len(changed)} {noun(len(changed), 'place')}"
        actual = f"the source changed since the snapshot, in {places}; the first is {_place(*changed[0])}"
        groups = tuple(sorted({part for _, part in changed if part >= 0}))
        return Check(NAME, Outcome.FAILED, expected, actual, groups, tuple(texts[:MOST_SAMPLES]))
    if unread:
        were = noun(len(unread), "place was", "places were")
        actual = f"{len(unread)} {were} not read again; the first is {_place(*unread[0])}"
        return Check(NAME, Outcome.COULD_NOT_TELL, expected, actual)
    return Check(NAME, Outcome.PASSED, expected, _in_words(now))


def changed_source(failed: Iterable[Check]) -> str | None:
    """If the check of the source failed: what that means and what to do. Else None."""
    for check in failed:
        if check.name == NAME:
            return (
                f"{check.actual}: what was converted is not what the snapshot read, so nothing is published. Find out "
                "which program writes to the savepoint, then start a new run: give another --target, or trigger a new "
                "DAG run"
            )
    return None


def _of(read: BytesRead, file: str, part: int) -> str | None:
    return read.files.get(file, {}).get(part)


def _in_words(read: BytesRead) -> str:
    groups = sum(part >= 0 for parts in read.files.values() for part in parts)
    files = sum(any(part != SST for part in parts) for parts in read.files.values())
    return f"{files} {noun(files, 'file')} with {groups} {noun(groups, 'key group')}"


def _place(file: str, part: int) -> str:
    return f"{file}, key group {part}" if part >= 0 else f"{file}, its header" if part == HEADER else file
