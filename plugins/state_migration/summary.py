"""What a person needs to know to approve a run, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from stateferry.printable import printable
from stateferry.quantities import noun
from stateferry.runs.plan import MigrationPlan
from stateferry.runs.prediction import prediction_text
from stateferry.runs.report import Report
from stateferry.runs.report_text import fact_lines, tables_line
from stateferry.validation.check_result import Outcome


def report_summary(report: Report, plan: MigrationPlan) -> str:
    """The report in Markdown, and what an approval and a rejection lead to."""
    return "\n".join(_lines(report, plan))


def _lines(report: Report, plan: MigrationPlan) -> Iterator[str]:
    passed, failed, unsure = (report.count(outcome) for outcome in Outcome)
    verdict = "green" if report.is_green else "red"
    checks = noun(passed, "check")
    yield f"**The report is {verdict}**: {passed} {checks} passed, {failed} failed, {unsure} could not tell."
    yield ""
    yield f"- from `{_code(report.source.path)}` (checkpoint {report.source.checkpoint_id})"
    yield f"- to `{_code(plan.target)}`"
    yield f"- run `{_code(report.run_id)}` of job `{_code(report.job)}`"
    if report.predictions:
        yield f"- a cut-over is likely to take: {prediction_text(report.predictions)}"
    if report.tables_pending:
        yield f"- {tables_line(report)}"
    for note in report.notes:
        yield f"- note: {_cell(note)}"
    yield ""
    yield "| check | outcome | expected | found |"
    yield "|---|---|---|---|"
    for check in report.checks:
        cells = (check.name, check.outcome.value, check.expected, check.actual)
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |"
    yield ""
    yield "```"
    for step, facts in report.facts.items():
        yield from map(_code, fact_lines(step, facts))
    yield "```"
    yield ""
    if plan.rehearse:
        return
    yield "Approve: the savepoint is published, and the new job starts if the request says so. Reject: the run ends."


def _cell(text: str) -> str:
    """Escapes text for a cell, because names from the savepoint must not act as markup."""
    return "".join(f"\\{c}" if c in "|\\`*_<>[]&" else c for c in printable(text))


def _code(text: str) -> str:
    """Escapes text for use between backquotes, where only a backquote has a meaning."""
    return printable(text).replace("`", "'")
