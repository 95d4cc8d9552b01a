"""Shows a report to people: the facts of each step, the checks, what failed and where, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stateferry.basics.counts import shown_count
from stateferry.basics.people_text import console_on, plain, print_line
from stateferry.basics.quantities import noun
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.predict.estimates import prediction_lines
from stateferry.runs.predict.prediction import PartTime
from stateferry.runs.record.facts import TablesProblem
from stateferry.runs.record.step_facts import MigrateFacts, RescaleFacts, SnapshotFacts
from stateferry.runs.record.steps import Step
from stateferry.runs.report.report import PUBLISHED_FILES, Report

_MOST_RANGES = 8
_MAY_HAVE_NOTHING_TO_DO = {one.name: one.nothing_to_do for one in (MigrateFacts, RescaleFacts)}
# The ages are facts of the snapshot that have lines of their own.
_AGES = "ages"
_STYLES = {Outcome.PASSED: "green", Outcome.FAILED: "bold red", Outcome.COULD_NOT_TELL: "yellow"}


def show_report(
    report: Report,
    file: TextIO,
    *,
    width: int | None = None,
    is_over: bool = False,
    problem: TablesProblem | None = None,
) -> None:
    """Prints the report to the file; its table is not wider than `width`, if that is given.

    `is_over` says whether the cut-over that was predicted is over, `problem` what is wrong since the publication.
    """
    source = report.source
    with console_on(file, width) as console:
        console.print(plain(f"run {report.run_id} of job {report.job}"))
        console.print(plain(f"{source.path} (checkpoint {source.checkpoint_id}) -> {report.staged.path}"))
        for step, facts in report.without_tables().facts.items():
            for line in fact_lines(step, facts):
                print_line(console, line)
        for line in (line for one in report.balance for line in one.lines):
            print_line(console, line)
        _show(console, report.checks)
        for line in foreseen_lines(report, is_over=is_over):
            print_line(console, line)
        for note in report.notes:
            print_line(console, f"note: {note}")
        console.print(_verdict(report))
        # Where the tables were checked, `show_tables` says how they are.
        if report.is_green and not report.tables and (report.tables_pending or problem is not None):
            print_line(console, tables_line(report, problem), "" if problem is None else "bold red")


def foreseen_lines(report: Report, *, is_over: bool = False) -> list[str]:
    """What was predicted for the run."""
    return [] if report.prediction is None else prediction_lines(report.prediction, is_over=is_over)


def show_tables(
    report: Report, file: TextIO, *, width: int | None = None, problem: TablesProblem | None = None
) -> None:
    """Prints the checks of the tables, which are made last, to the file."""
    with console_on(file, width) as console:
        for line in fact_lines(Step.TABLES, report.facts.get(Step.TABLES, {})):
            print_line(console, line)
        if report.tables:
            _show(console, report.tables)
        red = report.tables_pending or problem is not None
        print_line(console, tables_line(report, problem), "bold red" if red else "bold green")


def tables_line(report: Report, problem: TablesProblem | None = None) -> str:
    """How far the tables have followed the new savepoint, or what is wrong since the publication."""
    if problem is not None:
        return problem.reason if problem.published_differs else f"tables pending: {problem.reason}"
    if not report.tables_pending:
        if any(check.name != PUBLISHED_FILES for check in report.tables):
            return "tables: they hold what the new savepoint does"
        return "tables: there are none" + ("; the published files are as validated" if report.tables else "")
    if not report.tables:
        return "tables pending: this step comes last"
    return "tables pending: they don't hold what the new savepoint does. The savepoint is not affected"


def show_checks(checks: Iterable[Check], file: TextIO) -> None:
    """Prints a table of the checks, and the samples of those that failed."""
    with console_on(file) as console:
        _show(console, tuple(checks))


def _show(console: Console, checks: Sequence[Check]) -> None:
    console.print(_checks(checks))
    for check in checks:
        if check.outcome is Outcome.FAILED:
            _show_failure(console, check)


def fact_lines(step: str, facts: Mapping[str, Any]) -> Iterator[str]:
    """The step's own figures on one line, and those of each state on indented lines; leaves out lists."""
    own = _figures(facts)
    if step in _MAY_HAVE_NOTHING_TO_DO and not facts.get("files") and not facts.get("sent"):
        own = _MAY_HAVE_NOTHING_TO_DO[step]
    yield f"{step}: {own}" if own else step
    yield from _nested({name: value for name, value in facts.items() if name != _AGES}, "  ")
    if step != Step.SNAPSHOT:
        return
    snapshot = SnapshotFacts.of_json(facts, "the report")
    yield from (f"  {line}" for line in (snapshot.ages.lines() if snapshot.ages is not None else ()))
    yield from (f"  maps: {one.line}" for one in snapshot.kryo or ())
    yield from (f"  new job: {line}" for line in snapshot.declarations or ())
    yield from (f"  flags: {one.line}" for one in snapshot.flags or ())
    yield from (f"  lazy: {choice.line}" for choice in snapshot.lazy or ())


def _nested(facts: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            figures = _figures(value)
            yield f"{indent}{name}: {figures}" if figures else f"{indent}{name}"
            yield from _nested(value, f"{indent}  ")


def _figures(facts: Mapping[str, Any]) -> str:
    """The single figures as text; leaves out zeros, lists and nested facts."""
    return ", ".join(_figure(name, value) for name, value in facts.items() if _is_shown(value))


def _is_shown(value: object) -> bool:
    return not isinstance(value, Mapping | list | tuple) and value is not None and (value != 0 or value is False)


def _figure(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{name} {value}"
    if isinstance(value, float):
        return f"{value:,.1f} {name}"
    key, count = shown_count(name, value)
    return f"{count} {key}"


def _checks(checks: Iterable[Check]) -> Table:
    table = Table("check", "outcome", "expected", "found")
    for check in checks:
        outcome = Text(check.outcome.value, _STYLES[check.outcome])
        table.add_row(plain(check.name), outcome, plain(check.expected), plain(check.actual))
    return table


def _show_failure(console: Console, check: Check) -> None:
    where = f" in key groups {key_group_text(check.key_groups)}" if check.key_groups else ""
    print_line(console, f"{check.name}: failed{where}", "bold")
    for sample in check.samples:
        print_line(console, f"  {sample}")


def time_line(times: Sequence[PartTime]) -> str:
    """The time of each part of a cut-over beside its prediction."""
    predicted = any(time.predicted is not None for time in times)
    return f"took: {', '.join(_took(time) + (_predicted(time) if predicted else '') for time in times)}"


def _took(time: PartTime) -> str:
    return f"{time.part} {time.seconds:.1f} s"


def _predicted(time: PartTime) -> str:
    return " (not predicted)" if time.predicted is None else f" (predicted {time.predicted:.1f})"


def key_group_text(key_groups: Iterable[int]) -> str:
    """Key groups as ranges, and no more ranges than a person reads: `3, 7-9, 12`."""
    runs: list[tuple[int, int]] = []
    numbered = enumerate(sorted(set(key_groups)))
    for _, run in groupby(numbered, key=lambda pair: pair[1] - pair[0]):
        groups = [group for _, group in run]
        runs.append((groups[0], groups[-1]))
    shown = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs[:_MOST_RANGES])
    rest = sum(last - first + 1 for first, last in runs[_MOST_RANGES:])
    return f"{shown} and {rest} more" if rest else shown


def _verdict(report: Report) -> Text:
    passed, failed, unsure = (report.count(outcome) for outcome in Outcome)
    counts = f"{passed} {noun(passed, 'check')} passed, {failed} failed, {unsure} could not tell"
    if report.is_green:
        return plain(f"green: {counts}", "bold green")
    return plain(f"red: {counts}; nothing may be published", "bold red")
