"""What a person needs to know to approve a run, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from stateferry.airflow.dag_runs.markup import cell, code
from stateferry.basics.quantities import noun
from stateferry.proof.expected.check_result import Outcome
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.report.report import Report
from stateferry.runs.report.report_text import fact_lines, foreseen_lines, tables_line


def report_summary(report: Report, plan: MigrationPlan) -> str:
    """The report in Markdown, and what an approval and a rejection lead to."""
    return "\n".join(_lines(report, plan))


def _lines(report: Report, plan: MigrationPlan) -> Iterator[str]:
    passed, failed, unsure = (report.count(outcome) for outcome in Outcome)
    verdict = "green" if report.is_green else "red"
    checks = noun(passed, "check")
    yield f"**The report is {verdict}**: {passed} {checks} passed, {failed} failed, {unsure} could not tell."
    yield ""
    yield f"- from `{code(report.source.path)}` (checkpoint {report.source.checkpoint_id})"
    yield f"- to `{code(plan.target)}`"
    yield f"- run `{code(report.run_id)}` of job `{code(report.job)}`"
    if plan.rescales_only:
        yield "- no state is migrated, and there are no tables: the whole savepoint is written in another layout"
    for line in foreseen_lines(report):
        yield f"- {cell(line)}"
    if report.tables_pending:
        yield f"- {tables_line(report)}"
    for note in report.notes:
        yield f"- note: {cell(note)}"
    yield ""
    yield from check_rows(report)
    yield ""
    yield from figure_rows(report)
    yield ""
    if plan.rehearse:
        return
    job = "job" if plan.rescales_only else "new job"
    yield f"Approve: the savepoint is published, and the {job} starts if the request says so. Reject: the run ends."


def check_rows(report: Report) -> Iterator[str]:
    """The checks of the report as a table."""
    yield "| check | outcome | expected | found |"
    yield "|---|---|---|---|"
    for check in report.checks:
        cells = (check.name, check.outcome.value, check.expected, check.actual)
        yield f"| {' | '.join(cell(text) for text in cells)} |"


def figure_rows(report: Report) -> Iterator[str]:
    """The figures of each step as a list, those of each state below it; lines of a paragraph would run together."""
    for step, facts in report.facts.items():
        for line in fact_lines(step, facts):
            text = line.lstrip(" ")
            yield f"{' ' * (len(line) - len(text))}- {cell(text)}"
