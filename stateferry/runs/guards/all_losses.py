"""Lists what an upgrade lost, key by key, by the savepoint from before it. Nothing is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flinkstate.basics.did_you_mean import there_are
from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.errors import RefusedError, StateferryError, UsageError
from flinkstate.keyed.keyed_file import WINDOW
from flinkstate.keyed.state import KeyedState, keyed_states
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.entries import suffixed
from flinkstate.reading.group_sections import GroupSections
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.types import FlinkType, Scalar
from flinkstate.values.codecs import decode
from flinkstate.values.value_json import json_text
from stateferry.changes.counts import LossCounts
from stateferry.changes.upgrade.before_upgrade import BeforeUpgrade
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo, states_by_kryo
from stateferry.changes.upgrade.lost_elements import ElementLosses
from stateferry.changes.upgrade.lost_entries import Loss
from stateferry.changes.upgrade.restore_lost import GroupLosses, RowLosses
from stateferry.runs.checks.before_upgrade import hold_against, not_before, not_held_against, nothing_in_common
from stateferry.runs.guards.lost_elements import OperatorStateLosses, lost_elements
from stateferry.runs.guards.lost_values import expect_same_job, losses_line
from stateferry.runs.plan.state_ttls import StateTtlPlan


@dataclass(slots=True)
class AllLosses:
    """What was found: counts and rows by operator and state, and why other states weren't compared."""

    before: str
    counts: dict[tuple[str, str], LossCounts] = field(default_factory=dict)
    rows: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    of_operators: list[OperatorStateLosses] = field(default_factory=list)
    not_compared: tuple[str, ...] = ()

    @property
    def is_loss(self) -> bool:
        """Whether anything was lost and isn't overwritten, or nobody can tell."""
        counts = (*self.counts.values(), *(one.counts for one in self.of_operators))
        return bool(self.not_compared) or any(one.lost or one.gone or one.untold for one in counts)

    def to_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        states = [
            _state(operator, state, None, counts, self.rows.get((operator, state), []))
            for (operator, state), counts in sorted(self.counts.items())
        ]
        for one in self.of_operators:
            rows = [_element(row, one) for row in one.rows]
            states.append(_state(one.operator, one.state, one.mode and one.mode.label, one.counts, rows))
        return {"before": self.before, "states": states, "not_compared": list(self.not_compared)}


def all_losses(
    savepoint: Savepoint, old: Savepoint, ttls: Sequence[StateTtlPlan], now: int, job: JobClasses | None
) -> AllLosses:
    """Compares the savepoint of an upgraded job with that from before the upgrade; raises an error if it can't be."""
    by_kryo = {
        operator.id: states
        for operator in savepoint.keyed_operators()
        if (states := states_by_kryo({state.name: state for state in savepoint.keyed_states(operator)}, job))
    }
    given = {(savepoint.operator(one.operator).id, one.state): one.ttl_ms for one in ttls}
    for id_, name in given:
        with_ttl = [state.name for state in by_kryo.get(id_, {}).values() if state.ttl]
        if name not in with_ttl:
            raise UsageError(
                f"--state-ttl: operator {savepoint.operator(id_.hex()).label} has no state {name!r} by Kryo with time "
                f"to live. {there_are(name, with_ttl)}"
            )
    if (why_not := not_before(old, savepoint)) is not None:
        raise RefusedError(why_not)
    before, problems = hold_against(old, savepoint, by_kryo, given, now, job)
    found = AllLosses(old.folder.shown)
    for id_, one in before.items():
        if one.states:
            _of_operator(savepoint, savepoint.operator(id_.hex()), one, by_kryo[id_], found)
    found.of_operators, others = lost_elements(old, savepoint, job, found.counts.values())
    if not (found.counts or found.of_operators):
        problems += () if problems else nothing_in_common(old, savepoint, by_kryo, before)
        raise RefusedError("\n".join((*problems, *others)))
    expect_same_job(old.folder.shown, found.counts.values() or [one.counts for one in found.of_operators])
    found.not_compared = (*problems, *not_held_against(old, savepoint, by_kryo, job), *others)
    return found


def _of_operator(
    savepoint: Savepoint, operator: Operator, before: BeforeUpgrade, by_kryo: Mapping[str, KeyedState], found: AllLosses
) -> None:
    counts: dict[str, LossCounts] = {name: LossCounts() for name in before.states}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in before.states}
    rewrite, window = ForOtherKryo(by_kryo), np.empty(WINDOW, np.uint8)

    def listed(row: RowLosses) -> None:
        rows[row.state].append(_row(row, before.states[row.state].state))

    rest = set(before.key_groups)
    for file in savepoint.open_files(operator):
        states = keyed_states(file.header, file.name)
        for key_group in file.handle.range:
            rest.discard(key_group)
            group = GroupSections(file, key_group, states, window)
            losses = GroupLosses(before, key_group, counts, listed)
            for _ in losses.sections(by_kryo, group, rewrite.section):
                pass
    # A subtask without state has no file.
    for key_group in sorted(rest):
        for _ in GroupLosses(before, key_group, counts, listed).sections(by_kryo, (), rewrite.section):
            pass
    for name in before.states:
        found.counts[operator.label, name] = counts[name]
        found.rows[operator.label, name] = rows[name]


def _state(
    operator: str, state: str, mode: str | None, counts: LossCounts, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "operator": operator,
        "state": state,
        # Of keyed state there is none.
        "mode": mode,
        "summary": losses_line(counts) or "nothing is lost",
        "counts": counts.to_json(),
        "rows": rows,
    }


def _element(row: ElementLosses, of: OperatorStateLosses) -> dict[str, Any]:
    out: dict[str, Any] = {"element": row.number} if of.key is None else {"key": _json(of.key, row.key)}
    if row.why_not is not None:
        out["why_not"] = row.why_not
    out["lost"] = [_loss(one, of.value) for one in row.losses]
    return out


def _row(row: RowLosses, state: KeyedState) -> dict[str, Any]:
    out: dict[str, Any] = {"key_group": row.key_group, **_key(row.key, state)}
    if row.timestamp is not None:
        out["timestamp"] = row.timestamp
    if row.why_not is not None:
        out["why_not"] = row.why_not
    assert state.value is not None
    out["lost"] = [_loss(one, state.value) for one in row.losses]
    return out


def _key(data: bytes, state: KeyedState) -> dict[str, Any]:
    """The parts of a stored key."""
    try:
        key, position = suffixed(state.key, state.has_suffixes)(data, 0, len(data))
        out = {"key": _json(state.key, key)}
        namespace, end = suffixed(state.namespace, state.has_suffixes)(data, position, len(data))
        if state.namespace is not Scalar.VOID_NAMESPACE:
            out["namespace"] = _json(state.namespace, namespace)
        if state.user_key is not None:
            out["user_key"] = _json(state.user_key, decode(state.user_key, data, end)[0])
    except StateferryError:
        return {"key": f"bytes {data.hex()}"}
    return out


def _loss(loss: Loss, value: FlinkType) -> dict[str, Any]:
    entry = {"entry": _json(value, loss.key)} if loss.is_entry else {}
    return {**entry, "value": _json(value, loss.old), "is": loss.fate.value}


def _json(type_: FlinkType, value: Any) -> Any:
    return None if value is None else json.loads(json_text(type_)(value))
