"""What an upgrade lost: a savepoint that isn't the one from before it is refused, and the run says what was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flinkstate.errors import RefusedError
from flinkstate.reading.reader import Savepoint
from stateferry.basics.quantities import noun
from stateferry.changes.counts import LossCounts
from stateferry.inventory.inventory import Inventory
from stateferry.runs.checks.before_upgrade import not_held_against
from stateferry.runs.checks.resolved_plan import ResolvedPlan
from stateferry.runs.guards.lost_elements import lost_elements


def check_before(resolved: ResolvedPlan, inventory: Inventory) -> None:
    """Raises an error if the savepoint of `--before` has nothing in common with the source."""
    if resolved.plan.before is not None:
        expect_same_job(resolved.plan.before, inventory.losses.values())


def expect_same_job(before: str, losses: Iterable[LossCounts]) -> None:
    """Raises an error if no key, or no value, is the same in both savepoints."""
    total = LossCounts()
    for one in losses:
        total.add(one)
    if total.unread and not total.misread and (total.lost or total.gone):
        raise RefusedError(
            f"{before} (--before) isn't the savepoint from which this job was restored, or nobody can tell: "
            f"{total.unread:,} {noun(total.unread, 'row')} of its savepoint have values as they were that a job of "
            "Flink 2 can't have read there, and none shows that it has misread any. If the job was restored from one "
            "that stateferry wrote, nothing was lost, and what is missing the job has removed. Else, with the HashMap "
            "backend, it has written such values anew, and its losses can't be told from what it has removed. Leave "
            "--before out"
        )
    why = ""
    if total.rows and not total.found:
        why = "none of its keys is in the savepoint of the upgraded job"
    elif total.rows and not (total.equal or total.agreeing) and (total.lost or total.gone or total.overwritten):
        why = "no value, and no entry of a map, is as it was there"
    if why:
        raise RefusedError(
            f"{before} (--before) isn't the savepoint from which the upgraded job was restored: {why}. Give that one"
        )


def lost_notes(resolved: ResolvedPlan, inventory: Inventory) -> Iterator[str]:
    """Notes on what was lost of each state, and on what no savepoint says of `--before`."""
    plan = resolved.plan
    if plan.before is not None:
        yield (
            f"{plan.before} (--before) was not taken after the upgraded job began, by the numbers of the "
            "checkpoints. If the old job took several savepoints, none of them says from which the new job was "
            "restored: be sure that it was this one"
        )
        old = Savepoint.open(plan.before, files_from=plan.files_from)
        by_kryo = {one.operator.id: one.by_kryo for one in resolved.changes if one.by_kryo}
        found, others = lost_elements(old, resolved.source, plan.job_classes, inventory.losses.values())
        for one in found:
            if (line := losses_line(one.counts)) is not None:
                yield (
                    f"operator state {one.state} of operator {one.operator}: {line}. Operator state is carried over as "
                    "it is; stateferry check --before lists what was lost, with its values"
                )
        for other in (*not_held_against(old, resolved.source, by_kryo, plan.job_classes), *others):
            yield f"not compared, so nobody can tell what was lost of it: {other}"
    labels = {operator.hex_id: operator.label for operator in resolved.source.metadata.operators}
    for state, counts in sorted(inventory.losses.items()):
        if (line := losses_line(counts)) is not None:
            done = "" if plan.restore_lost or not counts.lost else ". --restore-lost puts back what is lost"
            yield f"{state.shown(labels)}: {line}{done}"


def losses_line(counts: LossCounts) -> str | None:
    """What the upgrade lost of a state; None if nothing."""
    words = (
        (counts.lost, "lost"),
        (counts.gone, "lost with rows that are gone"),
        (counts.overwritten, "overwritten since"),
        (counts.removed, "removed by the job later"),
        (counts.expired, "expired"),
    )
    entries = ", ".join(f"{count:,} {what}" for count, what in words if count)
    untold = f"{counts.untold:,} {noun(counts.untold, 'row')} of which nobody can tell" if counts.untold else ""
    back = ", ".join(
        f"{count:,} {what}" for count, what in ((counts.put_back, "put back"), (counts.corrected, "corrected")) if count
    )
    found = "; ".join(part for part in (entries, untold, back) if part)
    return f"of the entries from before the upgrade: {found}" if found else None
