"""What becomes of an operator or of a savepoint, for tests that name only what they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flinkstate.keyed.state import KeyedState
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Layout
from stateferry.changes.operator_changes import Conversion, OperatorChanges
from stateferry.changes.rules import Rules, RulesBack


def back(rules: Rules, **more: Any) -> RulesBack:
    """The same states, for a run in reverse."""
    return replace(RulesBack(rules.legacy, rules.new_name, rules.flag_name, rules.ttl, rules.now), **more)


def changes_of(
    rules: Sequence[Rules], states: Mapping[str, KeyedState], old_max: int = 128, new_max: int = 128, **more: Any
) -> OperatorChanges:
    return OperatorChanges(Operator(bytes(16), 1, old_max), new_max, states, tuple(rules), **more)


def conversion_of(
    source: Savepoint, layout: Layout | None = None, rules: Mapping[bytes, Sequence[Rules]] | None = None, **more: Any
) -> Conversion:
    """Of the operators with these ids, with their rules; what is more is by operator id, too."""
    layout, asked, operators = layout or Layout(), {"rules": rules or {}, **more}, {}
    for one in source.metadata.operators:
        own: dict[str, Any] = {what: tuple(of[one.id]) for what, of in asked.items() if one.id in of}
        operators[one.id] = replace(OperatorChanges.none(source, one, layout), **own)
    return Conversion(layout, operators, source.metadata.version)
