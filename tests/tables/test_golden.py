"""The tables of every legacy savepoint that Flink wrote, against what the generator of its contents knows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import Scalar
from flinkstate.values import codecs
from flinkstate.values.value_json import value_json
from stateferry.changes.rules import Nulls, Rules
from stateferry.tables.update import TableUpdate, advance_main, commit_update, plan_update, write_chunk
from tests.support.table_nights import Nights, current_rows, folding_everything, table_rows

GOLDEN = Path(__file__).parents[1] / "savepoints"
CASES = sorted(path.name for path in GOLDEN.glob("legacy-*"))


def expected_entries(case: str) -> Iterator[tuple[Any, ...]]:
    for line in (GOLDEN / case / "expected.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry.get("state") == "newMainState":
            yield _comparable(entry["key"], entry["user_key"], entry["value"], entry)
        elif entry.get("state") == "mainState":
            content = entry["value"]
            for user_key, value in content.items() if isinstance(content, dict) else content:
                yield _comparable(entry["key"], user_key, value, entry)


def _comparable(key: Any, user_key: Any, value: Any, entry: dict[str, Any]) -> tuple[Any, ...]:
    texts = (json.dumps(part, sort_keys=True) for part in (key, user_key, value))
    return (*texts, entry.get("timestamp"), entry["key_group"])


def _read(type_: Any, data: bytes | None) -> Any:
    return None if data is None else json.loads(value_json(type_, codecs.decode_whole(type_, data)))


def everything(nights: Nights, step: TableUpdate) -> list[str]:
    rows = [row for ref in (step.entries, step.ledger) for row in table_rows(nights.home, ref)]
    return sorted(map(repr, rows))


@pytest.mark.matrix(most=4)
@pytest.mark.part
@pytest.mark.parametrize("case", CASES)
def test_they_hold_what_the_job_put_there(case: str, tmp_path: Path) -> None:
    savepoint = Savepoint.open(str(GOLDEN / case))
    operator = savepoint.operator("main")
    states = {state.name: state for state in savepoint.keyed_states(operator)}
    legacy = states["mainState"]
    ttl = 10**15 if legacy.ttl else None
    nulls = Nulls.DROP if legacy.ttl else Nulls.KEEP
    rules = Rules(legacy, "newMainState", "isMigratedState", ttl, 10**12, nulls=nulls)
    nights = Nights(tmp_path)
    step = plan_update(nights.home, "golden", "run", savepoint, operator, rules, chunk_bytes=2000)
    done = commit_update(step, [write_chunk(chunk) for chunk in step.chunks])
    assert advance_main(nights.home, step.tables, "run")

    wanted = Counter(expected_entries(case))
    if legacy.ttl and rules.map_type.value is Scalar.LONG:
        # Under TTL no row can hold such a null.
        wanted = Counter({entry: count for entry, count in wanted.items() if entry[2] != "null"})
    found: Counter[tuple[Any, ...]] = Counter()
    for row in current_rows(nights.home, step, rules):
        parts = _read(legacy.key, row["key_raw"]), _read(rules.map_type.key, row["user_key_raw"])
        value = _read(rules.map_type.value, row["value_raw"])
        assert row["is_null"] == (value is None)
        found[_comparable(*parts, value, row)] += 1
    assert found == wanted
    assert done.counts.rows_written == sum(wanted.values())

    # Folded, they are the same rows, of the run that wrote them first.
    with folding_everything():
        again = plan_update(nights.home, "golden", "again", savepoint, operator, rules)
    folded = commit_update(again, [write_chunk(chunk) for chunk in again.chunks])
    before = everything(nights, step)
    assert advance_main(nights.home, again.tables, "again")
    assert everything(nights, step) == before
    assert (folded.counts.rows_folded, folded.counts.rows_written) == (sum(wanted.values()), 0)
    assert folded.counts.keys_folded == folded.counts.keys_unchanged == done.counts.keys_new
