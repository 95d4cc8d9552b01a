"""The parts of a run's page that say what was checked, what has changed, and how long it took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stateferry.basics.counts import shown_count
from stateferry.basics.durations import format_duration, moment, rough_duration
from stateferry.basics.quantities import noun, percent, shown_amount
from stateferry.proof.expected.check_result import Check, Outcome
from stateferry.runs.plan.plan_text import shown
from stateferry.runs.predict.estimates import AFTERWARDS, START
from stateferry.runs.record.state_ages import StateAges
from stateferry.runs.report.report_text import key_group_text
from stateferry.show import charts
from stateferry.show.document import facts, section, table
from stateferry.show.markup import Content, Markup, element, join
from stateferry.show.run_view import RunView

_KINDS = {Outcome.PASSED: "good", Outcome.FAILED: "bad", Outcome.COULD_NOT_TELL: "warn"}
_WORDS = {Outcome.PASSED: "passed", Outcome.FAILED: "failed", Outcome.COULD_NOT_TELL: "could not tell"}
_ORDER = (Outcome.FAILED, Outcome.COULD_NOT_TELL, Outcome.PASSED)
_NOTES = {START: " (before it)", **{part.name: " (after it)" for part in AFTERWARDS}}
_NAMES = {"take_savepoint": "stop with savepoint", "cut_over": "cut over", "start_job": "restore"}


def checks(view: RunView) -> Iterator[Markup]:
    """The checks of the report, the failed ones first; and those of the tables, which are made last."""
    if view.report is None:
        return
    yield section("Checks", "What the new savepoint must be, read again from its bytes.", _checks(view.report.checks))
    if view.report.tables:
        hint = "Made last: the new savepoint doesn't depend on them."
        yield section("Checks of the tables", hint, _checks(view.report.tables))


def _checks(found: Iterable[Check]) -> Markup:
    ordered = sorted(found, key=lambda check: _ORDER.index(check.outcome))
    rows: list[list[Content]] = [
        [
            check.name,
            element("span", _WORDS[check.outcome], class_=_KINDS[check.outcome]),
            check.expected,
            check.actual,
        ]
        for check in ordered
    ]
    return table((("check", ""), ("outcome", "word"), ("expected", ""), ("found", "")), rows, kind="stack")


def differences(view: RunView) -> Iterator[Markup]:
    """Samples of what differs, of each check that failed."""
    if view.report is None:
        return
    failed = [one for one in (*view.report.checks, *view.report.tables) if one.samples or one.outcome is Outcome.FAILED]
    if not failed:
        return
    parts: list[Content] = []
    for check in failed:
        where = f"in key groups {key_group_text(check.key_groups)}" if check.key_groups else None
        parts.append(element("h3", check.name))
        parts.append(element("p", where, class_="hint") if where else None)
        if check.samples:
            items = [element("li", sample, class_="code") for sample in check.samples]
            parts.append(element("ul", *items, class_="samples"))
    yield section("What differs", "Samples: at most ten of each check.", *parts)


def before_and_after(view: RunView) -> Iterator[Markup]:
    """Entries, bytes and files of both savepoints, and what became of the entries of each migrated state."""
    rows = [row for row in _totals(view) if any(cell is not None for cell in row[1:])]
    if not rows:
        return
    shown: list[list[Content]] = [
        [name, "–" if before is None else before, "–" if after is None else after] for name, before, after in rows
    ]
    heads = (("", ""), ("before", "number"), ("after", "number"))
    parts: list[Content] = [element("div", table(heads, shown))]
    for state, counts in view.converted.items():
        of_counts = [shown_count(name, number) for name, number in counts.to_json().items() if number]
        of_state: list[list[Content]] = [[name, number] for name, number in of_counts]
        if of_state:
            parts.append(element("div", table(((state, ""), ("counted", "number")), of_state)))
    pair = element("div", *parts, class_="pair")
    flags = view.snapshot.flags if view.snapshot is not None else None
    moved = (element("p", one.line, class_="hint") for one in flags or ())
    yield section("Before and after", "The source savepoint is never changed.", pair, *moved)


def _totals(view: RunView) -> Iterator[tuple[str, str | None, str | None]]:
    counts = list(view.converted.values())
    if counts:
        entries = sum(one.blob_entries + one.rows_read for one in counts)
        yield (
            "entries of changed keys" if view.is_catch_up else "entries of migrated states",
            f"{entries:,}",
            f"{sum(one.rows_written + one.rows_kept for one in counts):,}",
        )
    before = sum(one.total for one in view.before.operators) if view.before is not None else None
    after = sum(one.total for one in view.after.operators) if view.after is not None else None
    if before is None and view.snapshot is not None:
        before = view.snapshot.size
    if after is None:
        after = view.bytes_written
    yield "bytes of keyed state", _bytes(before), _bytes(after)
    read = len(view.snapshot.read) if view.snapshot is not None and view.snapshot.read else None
    written = len(view.digests.files) if view.digests is not None else None
    yield "files", None if read is None else f"{read:,}", None if written is None else f"{written:,}"


def _bytes(number: int | None) -> str | None:
    return None if number is None else shown_amount(number, "B")


def ages(view: RunView) -> Iterator[Markup]:
    """The ages of the entries of each state under time to live."""
    found = view.snapshot.ages if view.snapshot is not None else None
    if found is None or not found.states:
        return
    hint = (
        f"At {moment(found.now)}. Bar: the middle half of the entries; thin: from the youngest to the oldest; "
        "line: the time to live."
    )
    yield section(
        "Ages against the time to live", hint, *(_ages(one, keeps=found.keeps_expired) for one in found.states)
    )


def _ages(one: StateAges, *, keeps: bool) -> Markup:
    top = 1.05 * max(one.oldest, one.ttl, 1)
    low, middle, high = one.quartiles
    drawn = charts.span(one.youngest, low, middle, high, one.oldest, one.ttl, top, f"{one.where}: {one.ages}")
    share = f"{one.expired:,} of {one.counted:,} expired ({percent(one.expired / max(one.counted, 1))})"
    kept = ", kept all the same" if keeps and one.expired else ""
    axis = element(
        "div", element("span", "0"), element("span", f"time to live {format_duration(one.ttl)}"), class_="axis"
    )
    warning = None
    if one.future:
        stamps = noun(one.future, "timestamp is", "timestamps are")
        warning = element("p", f"{one.future:,} {stamps} in the future.", class_="warn")
    words = element("p", f"{one.ages[0].upper()}{one.ages[1:]}.", class_="hint")
    name = f"{one.operator}/{one.state}"
    return element("div", charts.figure(name, f"{share}{kept}", drawn, axis), words, warning, style="margin-top:14px")


def times(view: RunView) -> Iterator[Markup]:
    """How long each part took, beside what was predicted before the run."""
    rows = view.times
    if not rows:
        return
    top = max(max(took or 0, predicted or 0) for _, took, predicted in rows) or 1
    parts: list[Content] = []
    for name, took, predicted in rows:
        shown = "–" if took is None else _seconds(took)
        beside = None if predicted is None else element("small", f" / {_seconds(predicted)}")
        note = element("span", _NOTES[name], class_="muted") if name in _NOTES else None
        parts += [
            element("div", _NAMES.get(name, name), note, class_="name"),
            element("div", charts.bar(took, predicted, top, f"{name}: {shown}"), class_="track"),
            element("div", shown, beside, class_="number"),
        ]
    took_all = [took for name, took, _ in rows if took is not None and name not in _NOTES]
    guessed = [predicted for name, _, predicted in rows if predicted is not None and name not in _NOTES]
    beside = element("small", f" / {_seconds(sum(guessed))}") if guessed else None
    parts += [
        element("div", "until the new job may start" if view.outage is None else "outage", class_="name whole"),
        element("div", class_="track whole"),
        element("div", _seconds(view.outage or sum(took_all)) if took_all else "–", beside, class_="number whole"),
    ]
    legend = charts.legend(("bar", "took"), ("mark", "predicted")) if guessed else None
    hint = "From the end of one part to the end of the next. The new job doesn't wait for what comes after it."
    yield section("Times", hint, element("div", *parts, class_="rows"), legend)


def _seconds(seconds: float) -> str:
    return rough_duration(round(seconds * 1000)) if seconds >= 60 else f"{seconds:.1f} s"


def history(view: RunView) -> Iterator[Markup]:
    """The states that the run went through."""
    if not view.changes:
        return
    rows: list[list[Content]] = [[one.state.value, moment(one.at), one.reason or None] for one in view.changes]
    yield section("States", None, table((("state", "word"), ("since", "word"), ("why", "")), rows, kind="stack"))


def plan(view: RunView) -> Iterator[Markup]:
    """The plan of the run, and where its files are."""
    hidden = {"catalog_uri", "operators"}
    values = [
        (name.removesuffix("_ms").replace("_", " "), element("code", shown(name, value)))
        for name, value in view.plan.model_dump(mode="json").items()
        if name not in hidden and value is not None
    ]
    operators = [
        (
            f"operator {one.operator}",
            element("code", ", ".join(f"{state.legacy} → {state.new}" for state in one.states)),
        )
        for one in view.plan.operators
    ]
    tables = [
        (f"snapshot of table {name}", element("code", str(snapshot)))
        for name, snapshot in (view.tables.snapshots if view.tables is not None else {}).items()
    ]
    places: list[tuple[str, Content]] = [
        ("folder of the run", element("code", view.folder)),
        ("report", element("code", f"{view.folder}/report.json") if view.report is not None else None),
    ]
    content = join(
        facts([*places, *operators, *tables]),
        element("details", element("summary", "All options"), facts(list(values))),
    )
    yield section("Plan and files", None, content)
