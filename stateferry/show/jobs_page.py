"""The page of all jobs: what is published, what is at work, who is waited for, and how the last nights went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from stateferry.basics.durations import moment, now_ms
from stateferry.basics.quantities import noun, shown_amount
from stateferry.runs.catalog.lease import Lease
from stateferry.runs.catalog.publications import Publication
from stateferry.runs.record.catch_ups import is_catch_up_of
from stateferry.runs.record.live_progress import LiveProgress
from stateferry.runs.record.run_states import ENDED, RunState
from stateferry.show import charts
from stateferry.show.document import document, facts, notice, state
from stateferry.show.markup import Content, Markup, element, join, link
from stateferry.show.outage_section import outage_section
from stateferry.show.outage_view import CutOver, Phase
from stateferry.show.outcome import seconds_text
from stateferry.show.run_page import KINDS
from stateferry.show.run_rows import RunRow

_NIGHTS = 30


@dataclass(frozen=True, slots=True)
class Waiting:
    """A question that waits for a person; nobody named means anybody who may answer."""

    dag_run_id: str
    subject: str
    people: tuple[str, ...]
    since: int
    address: str
    # Of a rollback, whose DAG run has no run of its own.
    job: str | None = None


@dataclass(frozen=True, slots=True)
class RollingBack:
    """A rollback of the job that isn't over; `task` is at work or waits, if that is known."""

    job: str
    since: int
    task: str
    address: str


@dataclass(frozen=True, slots=True)
class Delayed:
    """A task that waits for its time, or for another run, and looks again at `until`; no person is asked."""

    dag_run_id: str
    task: str
    until: int
    address: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """A scheduled run of the DAG that was due and hasn't begun; `why` is empty if that isn't known."""

    dag_id: str
    due: int
    why: str
    address: str

    @property
    def text(self) -> str:
        """What the page says of it."""
        return f"a scheduled run was due at {moment(self.due)} and hasn't begun{f': {self.why}' if self.why else ''}"


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of a job; `rows` are its runs, the newest first. `address` begins the addresses of its pages.

    `convergence` has a line for each state that job or lazy runs move night by night.
    """

    name: str
    address: str
    rows: tuple[RunRow, ...]
    published: Publication | None = None
    lease: Lease | None = None
    progress: LiveProgress | None = None
    waiting: tuple[Waiting, ...] = ()
    delayed: tuple[Delayed, ...] = ()
    convergence: tuple[str, ...] = ()
    cut_over: CutOver | None = None
    rollbacks: tuple[RollingBack, ...] = ()
    overdue: tuple[Overdue, ...] = ()

    @property
    def is_busy(self) -> bool:
        """Whether somebody or something is at work on it."""
        return bool(self.lease or self.waiting or self.delayed or self.cut_over or self.rollbacks)

    def address_of(self, run_id: str) -> str:
        """The address of a run's page."""
        return f"{self.address}/runs/{run_id}"


@dataclass(frozen=True, slots=True)
class Disk:
    """The room on the disk of a place; both are None if that isn't known, as of an object store."""

    place: str
    free: int | None
    total: int | None


def jobs_page(jobs: Sequence[Job], disks: Sequence[Disk], *, top: Content, problems: Sequence[str] = ()) -> str:
    """The page as HTML; it is loaded again every few seconds while something is at work."""
    waiting = sum(len(job.waiting) for job in jobs)
    still = sum(job.cut_over is not None and job.cut_over.since is not None for job in jobs)
    text = f"{len(jobs)} {noun(len(jobs), 'job')}"
    if still:
        text += f", {still} {noun(still, 'stands', 'stand')} still"
    if waiting:
        text += f", {waiting} {noun(waiting, 'question waits', 'questions wait')} for a person"
    header = element(
        "header",
        top,
        element("h1", "Jobs"),
        element("p", text, class_="lead"),
        *(notice("warn", problem) for problem in problems),
        class_="top",
    )
    # What can't wait comes first.
    first = sorted(jobs, key=lambda job: job.cut_over is None)
    body: list[Content] = [part for job in first for part in _job(job)]
    if not jobs:
        body.append(element("section", element("p", "There is no run yet that you may look at.", class_="hint")))
    body.append(_disks(disks))
    return document("Stateferry: jobs", header, element("main", body), refresh=_refresh(jobs))


def _refresh(jobs: Sequence[Job]) -> int:
    """The seconds after which a browser loads the page again."""
    if any(job.cut_over is not None and job.cut_over.phase is not Phase.ABANDONED for job in jobs):
        return 2
    return 5 if any(job.is_busy for job in jobs) else 60


def _job(job: Job) -> Iterator[Content]:
    newest = job.rows[0] if job.rows else None
    chip = state(newest.state.value, KINDS.get(newest.state, "")) if newest is not None and newest.state else None
    title = element("div", element("h2", link(job.name, f"{job.address}/history")), chip, class_="title")
    rows: list[tuple[str, Content]] = [
        ("published", _published(job)),
        ("at work", _at_work(job)),
        ("waits", _delayed(job)),
        ("rollback", _rollbacks(job)),
        ("newest run", _newest(job, newest)),
        ("last nights", _nights(job)),
        ("convergence", join(*(element("div", line) for line in job.convergence)) if job.convergence else None),
    ]
    questions = [notice("warn", *_question(one)) for one in job.waiting]
    missed = [notice("warn", join(link(one.dag_id, one.address), f": {one.text}")) for one in job.overdue]
    outage = None if job.cut_over is None else outage_section(job.cut_over, now_ms())
    yield element("section", title, outage, questions, missed, facts(rows))


def _published(job: Job) -> Content:
    one = job.published
    if one is None:
        return element("span", "nothing", class_="muted")
    pending = element("span", " · tables pending", class_="warn") if one.record.tables_pending else None
    by = link(f"publication {one.sequence}", job.address_of(one.record.run_id))
    return join(element("code", one.record.target), element("br"), by, f", {moment(one.published_at)}", pending)


def _at_work(job: Job) -> Content:
    if job.lease is None:
        return None
    who = link(f"run {job.lease.run_id}", job.address_of(job.lease.run_id))
    live = job.progress
    if live is None or live.ended:
        return join(who, ": between two steps" if live is not None else ": starting")
    words = [f"{live.step}: {live.done:,} of {live.total:,} tasks"]
    if live.rate is not None:
        words.append(f"{shown_amount(live.rate, live.unit)}/s")
    if live.seconds_left is not None:
        words.append(f"about {seconds_text(live.seconds_left)} left")
    bar = charts.part_of_whole(live.done, max(live.total, 1), words[0])
    return join(who, element("br"), ", ".join(words), bar)


def _delayed(job: Job) -> Content:
    if not job.delayed:
        return None
    return join(
        *(
            element("div", link(one.task, one.address), f" looks again at {moment(one.until)}; its log says for what")
            for one in job.delayed
        )
    )


def _rollbacks(job: Job) -> Content:
    if not job.rollbacks:
        return None
    return join(
        *(
            element("div", link(one.task or "between two tasks", one.address), f", since {moment(one.since)}")
            for one in job.rollbacks
        )
    )


def _question(one: Waiting) -> Iterator[Content]:
    whom = ", ".join(one.people) if one.people else "anybody who may answer"
    yield join("Waits for ", element("strong", whom), f" since {moment(one.since)}: ", link(one.subject, one.address))


def _newest(job: Job, row: RunRow | None) -> Content:
    if row is None:
        return None
    kind = "rehearsal" if row.rehearse else "cut-over"
    # A planned run has a reason if it had nothing to do.
    reason = row.problem or (row.reason if row.state in (RunState.PLANNED, RunState.FAILED, *ENDED) else "")
    return join(
        link(f"{kind} of {moment(row.planned_at)[:16]}", job.address_of(row.run_id)),
        f", {seconds_text(row.seconds)}" if row.seconds is not None else None,
        f": {reason}" if reason else None,
    )


def _nights(job: Job) -> Content:
    nights = list(islice((row for row in job.rows if row.rehearse and not _is_for_cut_over(job, row)), _NIGHTS))
    if not nights:
        return None
    dots = [
        link("", job.address_of(row.run_id), class_=verdict(row)[0], title=f"{moment(row.planned_at)[:10]}: {text}")
        for row in reversed(nights)
        for text in (verdict(row)[1],)
    ]
    green = sum(verdict(row)[0] == "good" for row in nights)
    return join(
        element("div", dots, class_="dots"), element("small", f"{green} of {len(nights)} green", class_="muted")
    )


def _is_for_cut_over(job: Job, row: RunRow) -> bool:
    """Whether it is a catch-up with a rehearsal, before a cut-over: it stays staged, and is no night of its own."""
    return ".catch_up_" in row.run_id and any(is_catch_up_of(one.run_id, row.run_id) for one in job.rows)


def verdict(row: RunRow) -> tuple[str, str]:
    """The kind and the words of what came of a run."""
    if row.problem:
        return "warn", row.problem
    if row.state is None:
        return "", "no state"
    if row.state is RunState.PLANNED and row.reason:
        return "warn", row.reason
    kind = KINDS.get(row.state, "")
    return ("bad" if row.green is False else kind), row.state.value


def _disks(disks: Sequence[Disk]) -> Markup | None:
    rows: list[tuple[str, Content]] = []
    for disk in disks:
        if disk.free is None or not disk.total:
            rows.append((disk.place, "not known of an object store"))
            continue
        tight = disk.free < 0.1 * disk.total
        words = f"{shown_amount(disk.free, 'B')} of {shown_amount(disk.total, 'B')} free"
        bar = charts.part_of_whole(disk.total - disk.free, disk.total, words)
        rows.append((disk.place, join(element("span", words, class_="bad" if tight else None), bar)))
    return element("section", element("h2", "Room on disk"), facts(rows)) if rows else None
