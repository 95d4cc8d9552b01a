"""Every query of docs/query-your-state.md, as it stands there, asked of a stock Spark after some nights."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flinkstate.serializers.types import Scalar
from flinkstate.values.codecs import encode
from stateferry.cli import main
from stateferry.runs.record.run_folder import run_folder
from stateferry.runs.report.report import Report
from tests.support.iceberg_server import IcebergServer
from tests.support.in_process import without_spark
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "query-your-state.md").read_text()
TTL = 2_592_000_000
HOUR = 3_600_000
NIGHTS = ("first", "second", "third", "fourth", "fifth")

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Known:
    """What the nights' generator knows: each night's state, and by key the number of the night that changed it last."""

    states: dict[str, LegacyState]
    changed_in: dict[str, int]
    vanished: frozenset[str]
    now: int

    @property
    def last(self) -> LegacyState:
        return self.states[NIGHTS[-1]]

    def current(self, state: LegacyState, *, expired: bool = False) -> dict[tuple[str, str], tuple[object, int | None]]:
        rules = _Rules(self.now, TTL if not expired else None)
        return state.migrated(rules)  # type: ignore[arg-type]

    def stamp(self, key: str) -> int | None:
        """The latest of a key's timestamps."""
        if key in self.vanished:
            return None
        rows = self.last.rows.get(key, {})
        return max([stamp for _, stamp in rows.values()] or [self.last.blobs[key][1]])


@dataclass(frozen=True, slots=True)
class _Rules:
    now: int
    ttl: int | None
    drops_expired: bool = True
    on_contradiction: None = None


def nights_of(now: int) -> Known:
    ages = (31 * 24 * HOUR, TTL - 12 * HOUR, HOUR, 2 * HOUR)

    def content(key: int, version: int) -> tuple[dict[str, object], int]:
        return {f"user-{at}": key * 100 + at + version for at in range(1 + key % 7)}, now - ages[key % 4]

    first = LegacyState(
        {f"customer-{key:02}": content(key, 0) for key in range(40)},
        {f"hot-{key}": {"user-a": (key, now - HOUR), "user-b": (7, now - 2 * HOUR)} for key in range(5)},
        {f"hot-{key}": now - HOUR for key in range(5)},
        ttl=True,
    )
    states, state = {"first": first}, first
    changed_in = dict.fromkeys([*first.blobs, *first.rows], 1)
    # As much as there was, over two nights: then it is time to fold.
    for number, keys in ((2, range(20)), (3, range(18, 40)), (4, range(39, 42))):
        changed = {f"customer-{key:02}": content(key, number) for key in keys}
        state = state.with_changes(blobs={**state.blobs, **changed}, checkpoint_id=number)
        if number == 3:
            # The job has moved one meanwhile, and has touched one that it moved before.
            blobs = {key: blob for key, blob in state.blobs.items() if key != "customer-05"}
            rows = {"customer-05": {"user-0": (500, now - HOUR)}, "hot-1": {"user-a": (-1, now)}}
            state = state.with_changes(
                blobs=blobs, rows={**state.rows, **rows}, flags={**state.flags, "customer-05": now - HOUR}
            )
            changed_in |= dict.fromkeys(rows, 3)
        if number == 4:
            state = state.with_changes(blobs={key: of for key, of in state.blobs.items() if key != "customer-30"})
            changed_in["customer-30"] = 4
        changed_in |= dict.fromkeys(changed, number)
        states[NIGHTS[number - 1]] = state
    # A night in which nothing has changed.
    states["fifth"] = state.with_changes(checkpoint_id=5)
    return Known(states, changed_in, frozenset({"customer-30"}), now)


def the_current_entries(rows: Rows, known: Known) -> None:
    entries = sorted(known.current(known.last).items())
    wanted = [{"key": k, "user_key": u, "value": v, "timestamp": t} for (k, u), (v, t) in entries]
    assert rows == wanted[:20]


def the_biggest_keys(rows: Rows, known: Known) -> None:
    sizes, counts = Counter[str](), Counter[str]()
    for (key, user_key), (value, _) in known.current(known.last).items():
        counts[key] += 1
        sizes[key] += len(encode(Scalar.STRING, user_key)) + len(encode(Scalar.LONG, value))
    order = sorted(counts, key=lambda key: (-counts[key], key))[:20]
    assert rows == [{"key": key, "entries": counts[key], "bytes": sizes[key]} for key in order]


def what_expires_by_tomorrow(rows: Rows, known: Known) -> None:
    going = [
        key
        for (key, _), (_, stamp) in known.current(known.last).items()
        if stamp and stamp + TTL < known.now + 24 * HOUR
    ]
    assert len(going) > 10
    assert rows == [{"keys": len(set(going)), "entries": len(going)}]


def who_migrated_what(rows: Rows, known: Known) -> None:
    entries = Counter(key for key, _ in known.current(known.last, expired=True))
    ferried = [key for key in entries if key in known.last.blobs]
    moved = [key for key in entries if key not in known.last.blobs]
    assert rows == [
        {"origin": origin, "is_migrated": there, "keys": len(keys), "entries": sum(entries[key] for key in keys)}
        for origin, there, keys in (
            ("ferry", False, ferried),
            ("job", True, moved),
        )
    ]


def what_is_left_and_since_when(rows: Rows, known: Known) -> None:
    entries = Counter(key for key, _ in known.current(known.last, expired=True))
    left: dict[int, list[str]] = {}
    for key in known.last.blobs:
        left.setdefault(len(NIGHTS) - known.changed_in[key], []).append(key)
    assert len(left) > 1
    assert rows == [
        {"runs_untouched": runs, "keys": len(keys), "entries": sum(entries[key] for key in keys)}
        for runs, keys in sorted(left.items(), reverse=True)
    ]


def what_changed_since_the_first_night(rows: Rows, known: Known) -> None:
    entries = Counter(key for key, _ in known.current(known.last, expired=True))
    later = sorted((run, key) for key, run in known.changed_in.items() if run > 1)
    assert rows == [
        {
            "key": key,
            "origin": "tombstone" if key in known.vanished else "ferry" if key in known.last.blobs else "job",
            "entries": entries[key],
            "timestamp": known.stamp(key),
            "run": run,
        }
        for run, key in later[:20]
    ]


def the_snapshots(rows: Rows, known: Known) -> None:
    named = [(row["run"], row["checkpoint"]) for row in rows if row["run"] is not None]
    assert named == [(night, str(known.states[night].checkpoint_id)) for night in NIGHTS]


def the_first_night_s_entries(rows: Rows, known: Known) -> None:
    assert rows == [{"entries": len(known.current(known.states["first"], expired=True))}]


def the_newest_run(rows: Rows, known: Known) -> None:
    assert rows == [{"newest": max(known.changed_in.values())}]


# By heading and order in the page; a query without its check, or the other way round, is an error.
CHECKS: dict[str, list[Callable[[Rows, Known], None]]] = {
    "The current entries": [the_current_entries],
    "Which keys are the biggest?": [the_biggest_keys],
    "What expires by tomorrow?": [what_expires_by_tomorrow],
    "Who migrated what?": [who_migrated_what],
    "What is left, and since when?": [what_is_left_and_since_when],
    "What changed since then?": [what_changed_since_the_first_night],
    "How was it before?": [the_snapshots, the_first_night_s_entries, the_newest_run],
}
WHOLE_VIEW = f"SELECT key, user_key, value, timestamp FROM orders.main.{NEW}.current_entry"


def queries() -> dict[str, list[str]]:
    """The page's, by heading."""
    sections = (section.split("\n", 1) for section in TEXT.split("\n## ")[1:])
    found = {heading: re.findall(r"^```sql\n(.*?)^```$", body, re.M | re.S) for heading, body in sections}
    assert sum(map(len, found.values())) == TEXT.count("```sql")
    return {heading: blocks for heading, blocks in found.items() if blocks}


def settings(home: Path) -> dict[str, str]:
    """Those of the page, for this home."""
    found = dict(re.findall(r"^    (spark\.\S+) +(\S+)$", TEXT, re.M))
    assert len(found) == TEXT.count("\n    spark.")
    return {name: value.replace("/home/me/.stateferry", str(home)) for name, value in found.items()}


def run_night(folder: Path, night: str, state: LegacyState, now: int) -> None:
    state.write(str(folder / f"source-{night}"))
    plan = {
        "job": "orders",
        "run_id": night,
        "now": now,
        "source": str(folder / f"source-{night}"),
        "target": str(folder / f"target-{night}"),
        "home": str(folder / "home"),
        "rehearse": True,
        "operators": [{"operator": "main", "states": [{"legacy": LEGACY, "new": NEW, "flag": FLAG, "ttl_ms": TTL}]}],
    }
    (folder / f"{night}.json").write_text(json.dumps(plan))
    assert main(["run", "--plan", str(folder / f"{night}.json")]) == 0


def settings_of_rest(home: Path, url: str) -> dict[str, str]:
    """Those of the page for a REST catalog."""
    found = dict(re.findall(r"^(spark\.\S+) +(\S+)$", TEXT, re.M))
    replaced = [f"spark.sql.catalog.stateferry.{name}" for name in ("type", "uri", "jdbc.schema-version", "warehouse")]
    kept = {name: value for name, value in settings(home).items() if name not in replaced}
    return {**kept, **found, "spark.sql.catalog.stateferry.uri": url}


def ask(folder: Path, asked: list[str], settings: dict[str, str]) -> list[Rows]:
    work, answers = folder / "work.json", folder / "answers.json"
    work.write_text(json.dumps({"settings": settings, "queries": asked}))
    command = [sys.executable, "-m", "tests.spark.iceberg_sql", str(work), str(answers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[Rows] = json.loads(answers.read_text())
    return found


@pytest.mark.full
def test_every_query_of_the_page_answers_what_is_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every_query_answers(tmp_path, monkeypatch, settings(tmp_path / "home"))


@pytest.mark.full
def test_every_query_answers_the_same_by_a_rest_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with IcebergServer(tmp_path) as server:
        monkeypatch.setenv("STATEFERRY_REST_CATALOG", server.url)
        every_query_answers(tmp_path, monkeypatch, settings_of_rest(tmp_path / "home", server.url))


def every_query_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    without_spark(monkeypatch)
    known = nights_of(int(time.time() * 1000))
    for night, state in known.states.items():
        run_night(tmp_path, night, state, known.now)
    report = Report.read(run_folder(str(tmp_path / "home"), "orders", "fourth").child("report.json"))
    assert report.facts["tables"]["counts"][f"main/{NEW}"]["keys folded"] > 0

    found = queries()
    assert {heading: len(blocks) for heading, blocks in found.items()} == {
        heading: len(checks) for heading, checks in CHECKS.items()
    }
    asked = [query for heading in CHECKS for query in found[heading]]
    *answers, view = ask(tmp_path, [*asked, WHOLE_VIEW], settings)
    for check, rows in zip([check for checks in CHECKS.values() for check in checks], answers, strict=True):
        check(rows, known)
    assert len(view) > 0
    assert {(row["key"], row["user_key"]): (row["value"], row["timestamp"]) for row in view} == known.current(
        known.last
    )
    assert len(view) == len(known.current(known.last))
