"""The report of a run, as long as it is the one that the validation has written: it alone allows a publication."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flinkstate.errors import DamagedError, RejectedError
from flinkstate.files.digests import digest_of_bytes
from stateferry.runs.record.facts import ENDED_AT
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import FACTS_OF, MigrateFacts, RescaleFacts, ValidateFacts
from stateferry.runs.record.steps import Step
from stateferry.runs.report import source_check
from stateferry.runs.report.report import Report

# The many digests of what the snapshot read, and moments in milliseconds.
_NOT_REPORTED = ("read", ENDED_AT)
_OF_NEW_SAVEPOINT = (ValidateFacts, RescaleFacts, MigrateFacts)


def reported_facts(run: Run, steps: Iterable[Step]) -> dict[str, dict[str, Any]]:
    """The facts of these steps, as they are stored, without what isn't for people."""
    return {step.value: shown_facts(run.stored(FACTS_OF[step]) or {}) for step in steps}


def shown_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Stored facts without what isn't for people."""
    return {name: fact for name, fact in facts.items() if name not in _NOT_REPORTED}


def digest_of_report(report: Report) -> str:
    """The digest of what the validation has found; the tables, which follow it, don't count."""
    return digest_of_bytes(report.without_tables().to_json().encode())


def proven_report(run: Run) -> Report:
    """The report, if it is still what the validation has written."""
    facts, report = run.facts(ValidateFacts), None
    try:
        report = Report.read(run.report)
    except DamagedError:
        if facts is None or facts.report is None:
            raise
    if report is None or (facts is not None and not _is_of(report, facts)):
        run.forget(ValidateFacts)
        raise RejectedError(
            f"run {run.plan.run_id}: {run.report.shown} is not the report that the validation has written, so nothing "
            "is published: validate again"
        )
    return report


def is_proven(run: Run, report: Report) -> bool:
    """Whether the run's validation still stands, and has written this report; nothing is changed."""
    facts = run.facts_if_sound(ValidateFacts)
    return facts is not None and _is_of(report, facts)


def _is_of(report: Report, facts: ValidateFacts) -> bool:
    return facts.report in (None, digest_of_report(report))


def green_report(run: Run) -> Report:
    """The report, if it is green; else the next try writes the new savepoint and validates it again."""
    report = proven_report(run)
    if report.is_green:
        return report
    # The cause may be fixed. Until the next try, the report says what differs.
    run.forget(*_OF_NEW_SAVEPOINT)
    if (changed := source_check.changed_source(report.failed)) is not None:
        raise RejectedError(f"{changed} ({run.report.shown})")
    failed = ", ".join(check.name for check in report.failed)
    raise RejectedError(
        f"the staged savepoint failed its checks, so nothing is published: {failed} ({run.report.shown})"
    )


def forget_new_savepoint(run: Run) -> None:
    """Has the next try write the new savepoint again, and validate it: what the run had validated is no more."""
    run.forget(*_OF_NEW_SAVEPOINT)
    remove_report(run)


def remove_report(run: Run) -> None:
    """Removes the report and its page, which are of files that are no more, or are about to change."""
    run.report.remove()
    run.report_page.remove()
