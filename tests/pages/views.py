"""Views of runs as their folders might describe them, and what a browser would make of their pages."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from stateferry.changes.counts import ConversionCounts
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.plan.plan import MigrationPlan
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.predict.convergence import Night
from stateferry.runs.predict.estimates import Estimate, Prediction
from stateferry.runs.record.facts import StagedDigests
from stateferry.runs.record.key_group_sizes import OperatorSizes, SourceSizes, StagedSizes, bins
from stateferry.runs.record.run_states import RunState, StateChange
from stateferry.runs.record.state_ages import FoundAges, Holds, StateAges
from stateferry.runs.record.step_facts import MigrateFacts, RescaleFacts, SnapshotFacts, StateSize, TablesFacts
from stateferry.runs.report.report import FileDigest, Report, SavepointDigests
from stateferry.show.run_view import RunView

DAY = 86_400_000
NOW = 1_790_000_000_000
EVIL = '<script>alert("1")</script><img src=x onerror=alert(2)>&lt;\' \ud800 \u202e \x1b[31m'

PASSED = Check("main: rows", Outcome.PASSED, "120 = 100 + 20", "120")
FAILED = Check("main: content", Outcome.FAILED, "120 entries", "119 entries", (3, 4, 9), ("key a is missing", "key b"))
UNSURE = Check("main: keys", Outcome.COULD_NOT_TELL, "each in its key group", "a class of the job")


def plan(**values: object) -> MigrationPlan:
    return plan_of(
        {
            "job": "orders",
            "run_id": "one",
            "now": NOW,
            "source": "/savepoints/one",
            "target": "/savepoints/two",
            "home": "/home",
            "operators": [{"operator": "main", "states": [{"legacy": "old", "new": "new"}]}],
            **values,
        },
        "the plan",
    )


def report(*checks: Check, **values: Any) -> Report:
    source = SavepointDigests("/savepoints/one", 7, {"_metadata": FileDigest(5, "0" * 16)})
    return Report("orders", "one", "ab" * 32, NOW, source, source, checks or (PASSED,), **values)


def predicted(**seconds: float) -> Prediction:
    return Prediction(1, parts={part: Estimate(taken, taken, taken, 1) for part, taken in seconds.items()})


def sizes(key_groups: int, subtasks: int) -> OperatorSizes:
    """Of key groups and subtasks that grow from the first to the last, in as many bins as facts have."""
    key_bins, subtask_bins = (len(list(bins(range(number)))) for number in (key_groups, subtasks))
    return OperatorSizes(
        "main",
        subtasks,
        key_groups,
        tuple(1000 + number for number in range(key_bins)),
        tuple(5000 + number for number in range(subtask_bins)),
        ((key_groups - 1, 9000),),
        idle=2,
        empty=3,
    )


def movement(old: int, new: int) -> dict[str, Any]:
    reads = [
        {"subtask": target, "from_subtask": target * old // new, "file": "f", "key_groups": [0, 1], "bytes": [10, 110]}
        for target in range(new)
    ]
    return {
        "operator": "main",
        "parallelism": [old, new],
        "max_parallelism": [128, 128],
        "bytes": 100 * new,
        "bytes_staying": 100,
        "reads": reads,
    }


def whole(key_groups: int = 128, old: int = 4, new: int = 6) -> RunView:
    """A run with all facts."""
    counts = ConversionCounts(blobs=10, blob_entries=100, rows_read=20, rows_kept=20, rows_written=100)
    ages = StateAges(
        "main", "old", "old", Holds.BLOBS, 30 * DAY, 100, 3, 1, -5000, (DAY, 7 * DAY, 14 * DAY), 31 * DAY, None, None
    )
    seconds = {"snapshot": 4.0, "migrate": 2.0, "rescale": 0.0, "validate": 3.0, "cut_over": 0.4, "tables": 1.5}
    return RunView(
        plan(),
        "/home/runs/orders/one",
        (StateChange(RunState.PLANNED, NOW, ""), StateChange(RunState.PUBLISHED, NOW + 12_000, "")),
        report(PASSED, UNSURE, prediction=predicted(snapshot=3.5, migrate=2.2, validate=2.0)),
        SnapshotFacts(states={"main/old": StateSize(10, 4000)}, ages=FoundAges(NOW, False, (ages,)), read={"a": "b"}),
        MigrateFacts(files=new, bytes=7000, counts={"main/old": counts}),
        RescaleFacts(),
        TablesFacts(),
        StagedDigests({"a": (1, "0" * 16), "b": (2, "0" * 16)}),
        SourceSizes((sizes(key_groups, old),)),
        StagedSizes((sizes(key_groups, new),)),
        movements=(movement(old, new),),
        seconds=seconds,
        nights={"main/new": tuple(Night(f"{at}", NOW + at * DAY, at, 3 * at, 40 - 4 * at, 1, 0, 0) for at in range(5))},
    )


def bare(**values: Any) -> RunView:
    """A run of which only the plan is known."""
    return replace(RunView(plan(), "/home/runs/orders/one"), **values)


class Page(HTMLParser):
    """What a browser finds on a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.left_open = self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words += f"{data} "
