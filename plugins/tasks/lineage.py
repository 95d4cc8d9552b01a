"""What a step tells OpenLineage, whose provider may be absent: import this where it asks, never before.

The source savepoint, the new one and the tables are datasets, with the entries and bytes that were read and written.
The checks of the report are assertions on the new savepoint, and tests of the task's run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow.providers.openlineage.extractors.base import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    data_quality_assertions_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    test_run,
)

from stateferry.airflow.flink.lineage import named
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import MigrateFacts, RescaleFacts, SnapshotFacts, TablesFacts, WritingFacts
from stateferry.runs.record.steps import Step
from stateferry.runs.report.report import Report

_STATUS = {Outcome.PASSED: "pass", Outcome.FAILED: "fail", Outcome.COULD_NOT_TELL: "skip"}


def lineage_of(run: Run, step: Step) -> OperatorLineage[Any, Any]:
    """What the step of the run has read, written and found out, as far as it came."""
    report = Report.read(run.report) if run.report.exists() else None
    match step:
        case Step.SNAPSHOT:
            return OperatorLineage(inputs=[_source(run)])
        case Step.MIGRATE | Step.RESCALE:
            facts = run.facts(MigrateFacts if step is Step.MIGRATE else RescaleFacts)
            # Of migrate and rescale, mostly one alone writes files.
            outputs = [] if facts is not None and facts.files == 0 else [_written(run, facts)]
            return OperatorLineage(inputs=[_source(run)], outputs=outputs)
        case Step.VALIDATE:
            checks = () if report is None else report.checks
            return OperatorLineage(inputs=[_source(run), _checked(run, checks)], run_facets=_tests(checks))
        case Step.CUT_OVER:
            return OperatorLineage(inputs=[_source(run)], outputs=[OutputDataset(*named(run.plan.target))])
        case Step.TABLES:
            checks = () if report is None else report.tables
            facts_of_tables = run.facts(TablesFacts)
            outputs = [] if facts_of_tables is None else list(_tables(run, facts_of_tables))
            return OperatorLineage(inputs=[_checked(run, checks)], outputs=outputs, run_facets=_tests(checks))


def _source(run: Run) -> InputDataset:
    facts = run.facts(SnapshotFacts)
    facets: dict[str, Any] = {}
    if facts is not None:
        statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        facets["inputStatistics"] = statistics(rowCount=facts.rows, size=facts.size)
    return InputDataset(*named(run.plan.source), inputFacets=facets)


def _new_savepoint(run: Run) -> tuple[str, str]:
    """Where the new savepoint is, or will be."""
    return named(run.staged.shown if run.plan.rehearse else run.plan.target)


def _written(run: Run, facts: WritingFacts | None) -> OutputDataset:
    facets: dict[str, Any] = {}
    if facts is not None:
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        rows = facts.rows if facts.counts else None
        facets["outputStatistics"] = statistics(rowCount=rows, size=facts.bytes, fileCount=facts.files)
    return OutputDataset(*_new_savepoint(run), outputFacets=facets)


def _checked(run: Run, checks: Iterable[Check]) -> InputDataset:
    """The new savepoint with the checks that could tell: an assertion is true or false."""
    one = data_quality_assertions_dataset.Assertion
    assertions = [
        one(
            assertion="row_count" if check.name.endswith(": rows") else check.name,
            success=check.outcome is Outcome.PASSED,
            severity="error",
            name=check.name,
            expected=check.expected,
            actual=check.actual,
        )
        for check in checks
        if check.outcome is not Outcome.COULD_NOT_TELL
    ]
    facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=assertions)
    return InputDataset(*_new_savepoint(run), inputFacets={"dataQualityAssertions": facet} if assertions else {})


def _tests(checks: Iterable[Check]) -> dict[str, Any]:
    one = test_run.TestExecution
    tests = [
        one(
            name=check.name,
            status=_STATUS[check.outcome],
            severity="warn" if check.outcome is Outcome.COULD_NOT_TELL else "error",
            expected=check.expected,
            actual=check.actual,
        )
        for check in checks
    ]
    return {"test": test_run.TestRunFacet(tests=tests)} if tests else {}


def _tables(run: Run, facts: TablesFacts) -> Iterable[OutputDataset]:
    """The tables, by their names in the catalog. Rows are known of all of them together."""
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    known: dict[str, Any] = {"outputStatistics": statistics(rowCount=facts.rows)} if len(facts.tables) == 1 else {}
    catalog = run.plan.rest_catalog or run.plan.catalog_uri
    for name in facts.snapshots:
        of_entries = name.endswith(".map_entry")
        yield OutputDataset(namespace=catalog, name=name, outputFacets=known if of_entries else {})
