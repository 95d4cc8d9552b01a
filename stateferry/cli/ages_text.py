"""The output of `stateferry ages` for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby

from rich.console import Console
from rich.table import Table

from flinkstate.reading.reader import Savepoint
from flinkstate.ttl import StateVisibility
from stateferry.basics.durations import format_duration, moment, rough_age, rough_duration
from stateferry.basics.people_text import console_on, plain, print_line
from stateferry.basics.quantities import noun, percent
from stateferry.look.ages import MeasuredAges, MeasuredState
from stateferry.look.ages_forecast import Cleanup, Forecast, forecast
from stateferry.look.histogram import AgeClass, classes

_BAR = 40


def show(savepoint: Savepoint, found: MeasuredAges, days: int, cleanup: Cleanup) -> None:
    """Prints the ages of each state."""
    with console_on(sys.stdout) as console:
        since = "its youngest timestamp" if found.is_youngest else "now"
        print_line(
            console,
            f"{savepoint.folder.shown}: {savepoint.taken_as}, checkpoint "
            f"{savepoint.metadata.checkpoint_id}, ages at {moment(found.now)} ({since})",
        )
        if found.states:
            console.print("time to live counts in processing time, the machines' clocks: Flink knows no other for it")
        else:
            console.print("no keyed state has a time to live")
        for one in found.states:
            console.print()
            _show_state(console, one, days, cleanup)


def _show_state(console: Console, one: MeasuredState, days: int, cleanup: Cleanup) -> None:
    ages = one.ages
    kind = f"{one.state.kind.value} state of {one.state.type_name}"
    console.print(plain(f"{one.operator.label}/{one.state.name}", "bold"), plain(f"({kind})"), soft_wrap=True)
    if one.why_not is not None:
        print_line(console, f"  its ages can't be known: {one.why_not}")
        return
    if not ages.entries:
        console.print(f"  no {one.counted}")
        return
    for line in _summary(one):
        print_line(console, f"  {line}")
    console.print(_histogram(one))
    for line in _time_to_live(one):
        print_line(console, f"  {line}")
    if one.ttl is None:
        return
    ahead = forecast(ages, one.keys, one.ttl, days, cleanup)
    expired = ages.expired if one.given_ttl is not None else ahead.expired
    share = percent(expired / ages.entries)
    have = noun(expired, "has", "have")
    console.print(f"  under {format_duration(one.ttl)}, {expired:,} of {ages.entries:,} {have} expired ({share})")
    if ahead.days:
        console.print(_days(ahead))
    for line in _strategies(one, ahead, expired, cleanup):
        print_line(console, f"  {line}")


def _summary(one: MeasuredState) -> Iterator[str]:
    ages = one.ages
    quartiles = ", ".join(rough_duration(max(ages.quantile(share), 0)) for share in (0.25, 0.5, 0.75))
    since = (
        "last written (or last read, under OnReadAndWrite)"
        if one.given_ttl is None
        else one.given_ttl.update_type.since
    )
    yield (
        f"{ages.entries:,} {one.counted}, by the time since they were {since}: youngest {rough_age(ages.youngest)}, "
        f"quartiles {quartiles}, oldest {rough_age(ages.oldest)}"
    )
    if ages.future:
        yield f"{ages.future:,} {noun(ages.future, 'timestamp is', 'timestamps are')} in the future"


def _histogram(one: MeasuredState) -> Table:
    table = Table("age", "about", "", box=None, padding=(0, 2))
    found = classes(one.ages)
    most = max(it.entries for it in found)
    for is_empty, group in groupby(found, key=lambda it: not it.entries):
        some = list(group)
        if is_empty:
            # However many there are, they make one line.
            some = [AgeClass(some[0].least, some[-1].below, 0)]
        for it in some:
            bar = "#" * max(round(_BAR * it.entries / most), 1 if it.entries else 0)
            below = "or more" if it.below is None else f"to {format_duration(it.below)}"
            table.add_row(f"{format_duration(it.least) if it.least else '0'} {below}", f"{it.entries:,}", bar)
    return table


def _time_to_live(one: MeasuredState) -> Iterator[str]:
    end, suggested = one.ages.sharp_end(), one.ages.suggested_ttl()
    if end is not None and suggested is not None:
        yield (
            f"time to live: at least {rough_duration(end)}, where the ages end all at once; that suggests "
            f"{format_duration(suggested)} (or that the job has run for no longer)"
        )
    else:
        yield "time to live: can't be seen from the ages, which don't end all at once"
    if one.given_ttl is not None:
        yield f"time to live as given: {format_duration(one.given_ttl.time_to_live)}"


def _days(ahead: Forecast) -> Table:
    table = Table(
        "day", "expires", "expired: not in a full snapshot", "removed at least by a compaction filter", box=None,
        padding=(0, 2),
    )  # fmt: skip
    for day in ahead.days:
        table.add_row(f"{day.day}", f"{day.expires:,}", f"{day.expired:,}", f"{day.compacted:,}")
    return table


def _strategies(one: MeasuredState, ahead: Forecast, expired: int, cleanup: Cleanup) -> Iterator[str]:
    yield (
        "full snapshot: the next canonical savepoint leaves out what has expired; the running job and its incremental "
        "checkpoints keep it"
    )
    looks = f"each access looks at all entries of {cleanup.size} {noun(cleanup.size, 'key')}"
    if ahead.accesses is not None:
        looks += f", so a round takes {ahead.accesses:,} {noun(ahead.accesses, 'access', 'accesses')}"
    yield f"incremental (HashMap): {looks}; without any, nothing goes"
    yield (
        f"compaction filter (RocksDB): when a file is compacted, {_period(cleanup)}"
        + (f"; {ahead.overdue:,} expired longer ago than that, so no such filter is at work" if ahead.overdue else "")
    )
    if expired:
        stay = noun(expired, "one stays for ever if nobody reads it", "ones stay for ever if nobody reads them")
        yield f"without any of these, the {expired:,} expired {stay}"
    if one.given_ttl is not None and one.given_ttl.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP:
        yield "until then the job still reads what has expired, once (ReturnExpiredIfNotCleanedUp)"


def _period(cleanup: Cleanup) -> str:
    if not cleanup.compaction:
        return "which may be never: no file is compacted for its age alone"
    return f"and each file is after {format_duration(cleanup.compaction)} at the latest"
