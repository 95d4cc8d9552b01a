"""How each kind of change is written; which there are for an operator, `operator_changes.py` says."""

from __future__ import annotations

from flinkstate.reading.reader import Savepoint
from flinkstate.writing.operator_rewrite import Copy, Layout, OperatorRewrite, Rewrite, Transform
from stateferry.changes.blobs_to_rows import BlobsToRows
from stateferry.changes.drop_expired import DropExpired
from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rows_to_blobs import RowsToBlobs
from stateferry.changes.rules import RulesBack
from stateferry.changes.upgrade.for_other_kryo import ForOtherKryo
from stateferry.changes.upgrade.restore_lost import WithLosses


def prepare(changes: OperatorChanges, source: Savepoint, layout: Layout) -> OperatorRewrite:
    """Prepares an operator's way into the new savepoint; raises an error for what can't be done."""
    return OperatorRewrite.prepare(source, changes.operator, layout, _transform(changes), _rewrite(changes))


def _transform(changes: OperatorChanges) -> Transform | None:
    transform: Transform | None = None
    if back := [rules for rules in changes.rules if isinstance(rules, RulesBack)]:
        transform = RowsToBlobs(back)
    elif changes.rules:
        transform = BlobsToRows(changes.rules, changes.states)
    return DropExpired(transform or Copy(), tuple(changes.aging.values())) if changes.aging else transform


def _rewrite(changes: OperatorChanges) -> Rewrite | None:
    if not (changes.by_kryo or changes.elements or changes.copies_nothing or changes.keys):
        return None
    rewrite = ForOtherKryo(changes.by_kryo, changes.elements, changes.keys)
    return rewrite if changes.before is None else WithLosses(rewrite, changes.before)
