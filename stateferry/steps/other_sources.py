"""Digests of the savepoints that a plan names beside its source: that from before an upgrade, and the old job's.

Each step reads these anew. If they are in the validation what they were in the snapshot, all steps have read the same.
"""

from __future__ import annotations

from flinkstate.files.digests import digest_of_bytes
from flinkstate.metadata.bytes_read import WHOLE, BytesRead
from flinkstate.metadata.file_names import METADATA
from flinkstate.metadata.metadata import EmptySegment, InlineBytes
from stateferry.changes.rules import RulesBack
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.report.file_digest import DigestTask
from stateferry.steps.cut_over import BYTES
from stateferry.steps.workers import Workers


def read_others(workers: Workers, resolved: ResolvedPlan) -> BytesRead:
    """Returns the digests, by addresses that no file of the source has."""
    plan, read = resolved.plan, BytesRead()
    for before in (one.before for one in resolved.changes if one.before is not None):
        folder = before.savepoint.folder
        streams = {stream for subtask in before.operator.subtasks for stream in subtask.streams()}
        tasks = [DigestTask(folder, one) for one in streams if not isinstance(one, InlineBytes | EmptySegment)]
        for task, (_, found) in zip(tasks, workers.do("digests", tasks, DigestTask.take, BYTES), strict=True):
            read.add(f"--before {task.uri}", WHOLE, found.digest)
        read.add(f"--before {folder.child(METADATA).uri}", WHOLE, digest_of_bytes(folder.child(METADATA).read()))
    if plan.like is not None:
        forms = (rules.old_form for _, rules in resolved.migrations if isinstance(rules, RulesBack))
        parts = (form.serializer.raw + bytes([form.kryo_5]) if form is not None else b"" for form in forms)
        read.add(f"--like {plan.like}", WHOLE, digest_of_bytes(b"|".join(parts)))
    return read
