"""Plans which bytes of which file each new subtask reads, and how many stay with their subtask, before the move."""

from __future__ import annotations

import json
from typing import Any

from flinkstate.metadata.metadata import Operator
from flinkstate.metadata.restore_plan import RestorePlan, plan_restore
from stateferry.runs.checks.resolved_plan import ResolvedPlan


def movement(resolved: ResolvedPlan) -> list[dict[str, Any]]:
    """What moves, for each operator with keyed state."""
    return [_of(resolved, operator) for operator in resolved.source.keyed_operators()]


def changes(resolved: ResolvedPlan) -> dict[str, str]:
    """What changes in the layout, by operator: subtasks and max parallelism before and after."""
    found: dict[str, str] = {}
    for operator in resolved.source.metadata.operators:
        new = resolved.layout.of(operator)
        pairs = (
            ("parallelism", operator.parallelism, new.parallelism),
            ("max parallelism", operator.max_parallelism, new.max_parallelism),
        )
        changed = ", ".join(f"{what} {before} -> {after}" for what, before, after in pairs if before != after)
        if changed:
            # Names aren't unique.
            name = operator.label if operator.label not in found else operator.hex_id
            found[name] = changed
    return found


def to_json(movements: list[dict[str, Any]]) -> bytes:
    """The plan as the content of `rescale-plan.json`."""
    return (json.dumps(movements, indent=2) + "\n").encode()


def movement_lines(movements: list[dict[str, Any]]) -> list[str]:
    """The plan in words, one line for each operator."""
    return [_line(one) for one in movements]


def _of(resolved: ResolvedPlan, operator: Operator) -> dict[str, Any]:
    new = resolved.layout.of(operator)
    files = [placed.file for placed in resolved.source.placed(operator)]
    layouts = {
        "operator": operator.label,
        "parallelism": [operator.parallelism, new.parallelism],
        "max_parallelism": [operator.max_parallelism, new.max_parallelism],
    }
    if resolved.conversion.of(operator).changes_key_groups:
        # Each key may get another key group: each file is read as a whole, and each entry goes where the hash of its
        # key leads.
        total = sum(file.size for file in files)
        return layouts | {"bytes": total, "bytes_staying": None, "reads": None}
    plan = plan_restore(files, operator.max_parallelism, operator.parallelism, new.parallelism)
    return layouts | {"bytes": plan.total_bytes, "bytes_staying": plan.staying_bytes, "reads": _reads(plan)}


def _reads(plan: RestorePlan) -> list[dict[str, Any]]:
    return [
        {
            "subtask": read.new_subtask,
            "from_subtask": read.file.subtask,
            "file": read.file.name,
            "key_groups": [read.key_groups.start, read.key_groups.end],
            "bytes": [read.start, read.end],
        }
        for read in plan.reads
    ]


def _line(one: dict[str, Any]) -> str:
    old, new = one["parallelism"]
    subtasks = f"{old} subtasks" if old == new else f"{old} -> {new} subtasks"
    if one["reads"] is None:
        old_max, new_max = one["max_parallelism"]
        changes = f", max parallelism {old_max} -> {new_max}" if old_max != new_max else ""
        return f"{one['operator']}: {subtasks}{changes}: {one['bytes']:,} bytes, every key hashed anew"
    share = 100 * one["bytes_staying"] // one["bytes"] if one["bytes"] else 100
    return (
        f"{one['operator']}: {subtasks}: {one['bytes']:,} bytes in {len(one['reads'])} reads, {share}% stays with its "
        "subtask"
    )
