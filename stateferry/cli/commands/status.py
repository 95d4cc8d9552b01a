"""`stateferry status`: shows what is published for each job, and which run works on it."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stateferry.basics.printable import say
from stateferry.cli.options import add_place_options, catalog_of

if TYPE_CHECKING:
    from stateferry.runs.catalog.publications import Control


HELP = "show what is published and which run is at work"
DESCRIPTION = "For each job: the publication that stands, what a rollback would bring back, and the lease."


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", metavar="NAME", help="only this job")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    add_place_options(parser)


def run(options: argparse.Namespace) -> int:
    from stateferry.runs.catalog.publications import Control
    from stateferry.runs.control.target_metadata import published_run
    from stateferry.runs.predict.convergence import convergence_of
    from stateferry.runs.predict.prediction import part_times
    from stateferry.runs.record.facts import TablesProblem

    home, catalog_uri = catalog_of(options)
    jobs: dict[str, dict[str, Any]] = {}
    known: tuple[str, ...] = ()
    # A command that only reads creates nothing: a home without any run stays as it is.
    with Control.if_there(catalog_uri) or nullcontext() as control:
        known = () if control is None else control.jobs()
        for job in _jobs(control, options.job):
            assert control is not None
            standing, lease = control.standing(job), control.at_work(job)
            run = None if standing is None else published_run(home, standing)
            problem = None if run is None else run.facts_if_sound(TablesProblem)
            before = [one for one in control.history(job) if standing and one.sequence == standing.previous]
            jobs[job] = {
                "published": None if standing is None else _shown(standing),
                "tables_problem": None if problem is None else problem.reason,
                "published_differs": problem is not None and problem.published_differs,
                "times": [] if run is None else [asdict(time) for time in part_times(run)],
                "before": _shown(before[0]) if before else None,
                "convergence": [asdict(one) | {"line": one.line} for one in convergence_of(home, job)],
                "lease": None if lease is None else asdict(lease),
            }
    if options.json:
        sys.stdout.write(json.dumps(jobs, indent=2) + "\n")
        return 0
    if not jobs:
        say(f"no job is known in {home}: nothing is published there, and no run is at work")
    for job, facts in jobs.items():
        for line in _lines(job, facts) if job in known else (_unknown(job, known, home),):
            say(line)
    return 0


def _jobs(control: Control | None, asked_for: str | None) -> tuple[str, ...]:
    if control is None:
        return ()
    return control.jobs() if asked_for is None else (asked_for,)


def _unknown(job: str, known: tuple[str, ...], home: str) -> str:
    from flinkstate.basics.did_you_mean import there_are

    return f"no job {job!r} is known in {home}. {there_are(job, known)}"


def _shown(publication: Any) -> dict[str, Any]:
    return {"sequence": publication.sequence, **publication.record.model_dump()}


def _lines(job: str, facts: dict[str, Any]) -> list[str]:
    from stateferry.runs.predict.prediction import PartTime
    from stateferry.runs.report.report_text import time_line

    published, before, lease = facts["published"], facts["before"], facts["lease"]
    lines = [f"job {job}"]
    if published is None:
        lines.append("  published: nothing")
    else:
        lines.append(
            f"  published: {published['target']} (publication {published['sequence']}, run {published['run_id']})"
        )
        if facts["published_differs"]:
            lines.append(f"  published files differ: {facts['tables_problem']}")
        elif published["tables_pending"]:
            why = facts["tables_problem"] or "this step comes after the publication"
            lines.append(f"  tables pending: {why}")
        if facts["times"]:
            lines.append(f"  {time_line([PartTime(**time) for time in facts['times']])}")
        also = f", and publication {before['sequence']} stands again" if before else ""
        lines.append(f"  a rollback brings back: {published['source']} (the source){also}")
    lines += [f"  {one['line']}" for one in facts["convergence"]]
    lines.append(f"  at work: run {lease['run_id']}, {lease['holder']}" if lease else "  at work: no run")
    return lines
