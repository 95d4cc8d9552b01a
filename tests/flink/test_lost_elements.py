"""What an upgrade by stock Flink lost of operator state: jobs of real Flink 2.3 that went on from Flink 1.20."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flinkstate.errors import RefusedError
from flinkstate.reading.reader import Savepoint
from stateferry.cli import main
from stateferry.runs.guards.all_losses import AllLosses, all_losses
from stateferry.runs.plan.plan_json import plan_of
from stateferry.runs.record.runs import Run
from stateferry.runs.record.step_facts import SnapshotFacts
from stateferry.verdict.outcomes import Outcome
from tests.flink.harness import Line, by_state, restored_by_state
from tests.flink.jobs import Job, Operator, OperatorState, State
from tests.flink.judge import Started, observed, upgraded
from tests.support.verified_runs import STAGED, do_steps

pytestmark = [pytest.mark.flink, pytest.mark.timeout(600)]

_STATES = (
    OperatorState("list", "HashMap{2-4}<String,Long>", "SPLIT", 7),
    OperatorState("union", "HashMap{2-4}<String,Long>", "UNION", 5),
    OperatorState("numbers", "Object<Double>", "SPLIT", 6),
    OperatorState("texts", "Object<String>", "SPLIT", 6),
    OperatorState("rates", "Map{5-5}<Long,Object<Double>>", "BROADCAST", 1),
    # A job of Flink 2 doesn't find the end of a HashMap, where another entry follows.
    OperatorState("rule", "Map{1-1}<String,HashMap{3-3}<String,Long>>", "BROADCAST", 1),
)
_LISTENER = Operator("keyed", key="Long", keys=2, states=(State("s", "Long"),))
_JOB = Job((Operator("plain", type="plain", operator_states=_STATES), _LISTENER), parallelism=2)


def _losses(old: Path, now: Path) -> AllLosses:
    return all_losses(Savepoint.open(str(now)), Savepoint.open(str(old)), (), 0, None)


def _parts(state: str, lines: Counter[str]) -> Iterator[tuple[str, str]]:
    """The entries of maps, each with its map's key in a broadcast state, and other values as a whole."""
    for text in lines.elements():
        line: Line = json.loads(text)
        value, key = line["value"], str(line.get("user_key", ""))
        entries = value.items() if isinstance(value, dict) else [("", value)]
        yield from ((key + str(name), json.dumps(one)) for name, one in entries)


def _listed(found: AllLosses) -> dict[str, Counter[tuple[str, str]]]:
    """What is listed as lost, by state."""
    return {
        state["state"]: Counter(
            (f"{row.get('key', '')}{one.get('entry', '')}", json.dumps(one["value"]))
            for row in state["rows"]
            for one in row["lost"]
            if one["is"] == "lost"
        )
        for state in found.to_json()["states"]
    }


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_flink_2_has_lost_is_listed(goes_on: bool, started: Started, tmp_path: Path) -> None:
    """Flink 1.20 wrote it, and Flink 2.3 says what is left of it."""
    made, flink_2 = started("1.20.0", False).make(_JOB, tmp_path / "old"), started("2.3.0", False)
    left = restored_by_state(flink_2.restore(made.path, _JOB), _JOB)
    now = flink_2.carry(made.path, _JOB, format_="CANONICAL")
    if goes_on:
        # Which adds other elements, and other entries.
        now = flink_2.make(replace(_JOB, seed=7), tmp_path / "on", earlier=now).path
    found = _losses(made.path, now)
    expected = {
        state: Counter(_parts(state, lines)) - Counter(_parts(state, left["plain", state]))
        for (operator, state), lines in by_state(made.lines).items()
        if operator == "plain"
    }
    assert _listed(found) == expected
    assert not expected["texts"]
    assert all(expected[state.name] for state in _STATES if state.name != "texts")
    assert not found.not_compared
    assert found.is_loss


def test_a_run_notes_it(started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keyed = replace(_LISTENER, states=(State("maps", "HashMap{2-3}<String,Long>"),))
    job = replace(_JOB, operators=(_JOB.operators[0], keyed))
    made = started("1.20.0", False).make(job, tmp_path / "old")
    now = started("2.3.0", False).carry(made.path, job, format_="CANONICAL")
    told = {"source": str(now), "target": str(tmp_path / "new"), "job": "job", "operators": [], "to": "flink-2"}
    plan = plan_of({**told, "home": str(tmp_path), "before": str(made.path)})
    run = Run.create(plan, plan.now)
    do_steps(run, STAGED)
    facts = run.facts(SnapshotFacts)
    assert isinstance(facts, SnapshotFacts)
    notes = {note.partition(":")[0]: note for note in facts.notes if note.startswith("operator state")}
    assert set(notes) == {f"operator state {one.name} of operator plain" for one in _STATES if one.name != "texts"}
    rates = notes["operator state rates of operator plain"]
    assert "of the entries from before the upgrade: 5 lost. Operator state is carried over as it is" in rates
    capsys.readouterr()
    assert main(["check", str(now), "--for", "flink-2", "--before", str(made.path)]) == 1
    text = capsys.readouterr().out
    for shown in ("plain/rates (BROADCAST): of the entries", "plain/list (SPLIT): of the entries", "element 1: "):
        assert shown in text
    assert "not compared" not in text


def test_of_what_was_written_for_flink_2_nothing_is_lost(started: Started, tmp_path: Path) -> None:
    made, flink_2 = started("1.20.0", False).make(_JOB, tmp_path / "old"), started("2.3.0", False)
    new = upgraded(made.path, tmp_path)
    found = _losses(made.path, flink_2.carry(new, _JOB, format_="CANONICAL"))
    assert _listed(found) == {state.name: Counter() for state in _STATES}
    assert not found.is_loss


def test_a_broadcast_state_that_flink_2_cannot_read_is_named(started: Started, tmp_path: Path) -> None:
    states = (OperatorState("rules", "Map{3-3}<String,HashMap{3-3}<String,Long>>", "BROADCAST", 1),)
    job = replace(_JOB, operators=(Operator("plain", type="plain", operator_states=states), _LISTENER))
    made, flink_2 = started("1.20.0", False).make(job, tmp_path / "old"), started("2.3.0", False)
    outcome, _ = observed(flink_2, job, made)
    assert outcome is Outcome.FAILS
    # Flink 2 has never read the old one.
    now = flink_2.carry(flink_2.make(job, tmp_path / "anew").path, job, format_="CANONICAL")
    with pytest.raises(RefusedError, match=r"operator state rules of operator plain is by Kryo .* finds no end of its"):
        _losses(made.path, now)
