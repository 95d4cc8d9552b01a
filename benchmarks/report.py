"""Writes results as tables in Markdown, and describes the machine."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.measuring import PARTS, Cells, Comparison, Duration, Line, Outage, Rate, judged

_PACKAGES = ("numpy", "numba", "pyarrow", "cramjam")
_RATE_HEADER = ("", "measured on", "million/s", "best", "per CPU second", "goal", "plain Python", "faster by")
_DURATION_HEADER = ("", "seconds", "best", "goal", "")
_COMPARISON_HEADER = ("", "seconds", "best", "processor seconds", "memory", "times as fast", "by processor", "goal")
_OUTAGE_HEADER = (
    "",
    "MB in",
    "MB out",
    "MB written to stop",
    *PARTS,
    "outage",
    "processor seconds",
    "memory",
    "times as short",
    "conversion, times as fast",
    "goal",
)


def tables(lines: Iterable[Line]) -> str:
    """One table for each kind of result."""
    comparisons, rates, durations, outages = [], [], [], []
    cells: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for line in lines:
        if isinstance(line, Rate):
            rates.append(_rate_row(line))
        elif isinstance(line, Comparison):
            comparisons.append(_comparison_row(line))
        elif isinstance(line, Outage):
            outages.append(_outage_row(line))
        elif isinstance(line, Cells):
            cells.setdefault(tuple(line.by_title), []).append(tuple(line.by_title.values()))
        else:
            durations.append(_duration_row(line))
    made = []
    if outages:
        made.append(_table(_OUTAGE_HEADER, outages))
    if comparisons:
        made.append(_table(_COMPARISON_HEADER, comparisons))
    if rates:
        made.append(_table(_RATE_HEADER, rates))
    if durations:
        made.append(_table(_DURATION_HEADER, durations))
    made += [_table(titles, rows) for titles, rows in cells.items()]
    return "\n\n".join(made)


def _rate_row(rate: Rate) -> tuple[str, ...]:
    timing = rate.timing
    return (
        rate.what,
        f"{timing.count:,} {rate.unit}",
        _millions(timing.rate),
        _millions(timing.best_rate),
        _millions(timing.cpu_rate),
        _goal(rate.is_reached, "≥", rate.at_least, 1e6),
        _millions(rate.twin.cpu_rate) if rate.twin else "",
        f"{rate.ratio:,.0f}" if rate.ratio else "",
    )


def _duration_row(duration: Duration) -> tuple[str, ...]:
    return (
        duration.what,
        f"{duration.median:.2f}",
        f"{min(duration.seconds):.2f}",
        _goal(duration.is_reached, "≤", duration.at_most, 1),
        duration.note,
    )


def _comparison_row(line: Comparison) -> tuple[str, ...]:
    return (
        line.what,
        f"{line.seconds:.1f}",
        f"{min(one.seconds for one in line.executions):.1f}",
        f"{line.cpu_seconds:.1f}",
        f"{line.memory / 1e9:.1f} GB",
        *((f"{ratio:.2f}" for ratio in line.speed) if line.speed else ("", "")),
        line.goal,
    )


def _outage_row(line: Outage) -> tuple[str, ...]:
    parts = [f"{seconds:.1f}" for seconds in line.parts]
    parts += [] if line.is_whole else ["stopped", *("" for _ in PARTS[len(parts) + 1 :])]
    return (
        line.what,
        *(f"{size / 1e6:,.0f}" if size else "" for size in (line.source, line.result, line.uploaded)),
        *parts,
        f"{'' if line.is_whole else '> '}{line.seconds:.1f}",
        f"{line.cpu_seconds:.1f}" if line.cpu_seconds else "",
        f"{line.memory / 1e9:.1f} GB" if line.memory else "",
        *(f"{ratio:.2f}" if ratio else "" for ratio in (line.shorter, line.faster)),
        line.goal,
    )


def _millions(rate: float) -> str:
    return f"{rate / 1e6:,.1f}" if rate >= 1e6 else f"{rate / 1e6:.3f}"


def _goal(is_reached: bool | None, sign: str, goal: float | None, unit: float) -> str:
    return "" if goal is None else judged(f"{sign} {goal / unit:g}", is_reached=is_reached)


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def row(cells: Iterable[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return f"| {' | '.join(padded)} |"

    # The first column is aligned to the left, figures to the right.
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([row(header), f"|{rule}|", *map(row, rows)])


def circumstances(core: int | None, command: str) -> str:
    """The machine, versions and date, and how busy the machine was."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return "\n".join(
        (
            f"- Machine: {_processor()}, {os.cpu_count()} cores, {_memory()}, {platform.system()} {platform.release()}",
            f"- Bound to: {'nothing' if core is None else f'core {core}'}; load of the machine at the end: {load}",
            f"- Versions: Python {platform.python_version()}, {packages}, stateferry {version('stateferry')}",
            f"- Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            f"- Command: `{command}`",
        )
    )


def _processor() -> str:
    names = _lines_of("/proc/cpuinfo", "model name")
    return names[0] if names else platform.processor() or platform.machine()


def _memory() -> str:
    kilobytes = _lines_of("/proc/meminfo", "MemTotal")
    return f"{int(kilobytes[0].split()[0]) / 2**20:.0f} GiB of memory" if kilobytes else "memory unknown"


def _lines_of(path: str, name: str) -> list[str]:
    if not sys.platform.startswith("linux"):
        return []
    lines = Path(path).read_text().splitlines()
    return [line.partition(":")[2].strip() for line in lines if line.startswith(name)]
