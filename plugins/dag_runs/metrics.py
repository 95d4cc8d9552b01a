"""Metrics of a run, by Airflow's own stats: they go where Airflow's go, and nowhere if it sends none."""

from __future__ import annotations

from collections.abc import Iterator

from airflow.sdk.observability import stats

from stateferry.runs.predict.prediction import part_times, predicted_after
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import TablesFacts


def send_metrics(run: Run) -> None:
    """Sends each metric with the job as a tag, and once more with the job in its name, for receivers without tags."""
    job = stats.normalize_name_for_stats(run.plan.job, log_warning=False)
    for name, value in _metrics(run):
        stats.gauge(f"stateferry.{name}", value, tags={"job": job})
        stats.gauge(f"stateferry.{job}.{name}", value)


def _metrics(run: Run) -> Iterator[tuple[str, float]]:
    if run.plan.rehearse:
        yield "rehearsal_seconds", sum(time.seconds for time in part_times(run))
        outage = predicted_after(run).outage
        if outage is not None:
            yield "predicted_outage_seconds", outage.seconds
    tables = run.facts(TablesFacts)
    if tables is not None:
        yield "keys_left", sum(counts.keys_left for counts in tables.counts.values())
