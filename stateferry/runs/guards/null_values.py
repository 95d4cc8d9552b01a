"""Null values that their serializer can't write, such as those of `Long`: when a run asks what becomes of them.

In a row without time to live, a flag before the value says that it is null. So every job reads such a row. But the
job's backend may give null to the serializer when it writes, and then it fails. What Flink does with these rows:

| backend | the job puts null | checkpoint, native savepoint | canonical savepoint |
|---|---|---|---|
| HashMap | works | works | fails (FLINK-39909) |
| RocksDB of Flink 1.20 | fails (FLINK-38137) | works | works |
| RocksDB of Flink 2.3 | works | works | works |

So a run asks, unless it writes a native savepoint, which is for RocksDB, from a snapshot of Flink 2.3. Nulls that the
serializer can write work everywhere, and so do those of types of one value, whose serializer doesn't look at the value.
Under time to live a row has no flag, so all others can't be kept at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from flinkstate.errors import StateferryError
from flinkstate.metadata.metadata import Operator
from flinkstate.serializers.types import Scalar, type_name
from stateferry.basics.quantities import noun
from stateferry.basics.state_ref import StateRef
from stateferry.changes.counts import InventoryCounts
from stateferry.changes.rules import Nulls, NullsCannotBeKeptError, NullsNeedAWordError, Rules
from stateferry.inventory.inventory import Inventory
from stateferry.runs.checks.resolved_plan import ResolvedPlan

# Flink 2.3 writes _metadata of this version.
_OF_FLINK_2_3 = 6
# A null of these is lost under time to live only, where it would be read as the one value.
OF_ONE_VALUE = (Scalar.NULL_VALUE, Scalar.GLOBAL_WINDOW, Scalar.UNIT)
_ON_HASH_MAP = (
    "a job on the HashMap backend can't take a canonical savepoint any more (NullPointerException, FLINK-39909; its "
    "checkpoints and native savepoints work)"
)
_ON_OLD_ROCKSDB = "a job on RocksDB can't put null itself under Flink 1.20 (NullPointerException, FLINK-38137)"


def check_nulls(
    resolved: ResolvedPlan, operator: Operator, rules: Rules, met: InventoryCounts
) -> Iterator[StateferryError]:
    """Yields an error if the plan must first say what becomes of the null values that were met."""
    nulls = met.unwritable_nulls
    if not nulls or not rules.takes_blobs or rules.nulls is Nulls.DROP:
        return
    where = f"state {rules.legacy.name} of operator {operator.label}"
    have = noun(nulls, "entry has", "entries have")
    leave_out = "leave these entries out with --nulls drop"
    if rules.legacy.ttl:
        yield NullsCannotBeKeptError(
            f"{where}: {nulls:,} {have} a null value, which a MapState with TTL can't hold; make the value nullable in "
            f"both jobs, or {leave_out}"
        )
    elif rules.nulls is Nulls.STOP and (fails := what_fails(resolved, operator, rules)):
        yield NullsNeedAWordError(
            f"{where}: {nulls:,} {have} a null value, which the serializer of {type_name(rules.map_type.value)} can't "
            f"write. As rows of {rules.new_name} the new job reads them, but {fails}. Nothing has been written. Keep "
            f"them all the same with --nulls keep, or {leave_out}"
        )


def null_notes(resolved: ResolvedPlan, inventory: Inventory | None) -> Iterator[str]:
    """Notes on null values that become rows, and on an option that had no effect."""
    nulls = Nulls(resolved.plan.nulls)
    every = [(one.operator, rules) for one, rules in resolved.migrations]
    given = nulls is not Nulls.STOP
    if given and all(rules.writes_nulls for _, rules in every):
        yield f"--nulls {nulls.value} had no effect: each value's serializer can write null"
    elif inventory is not None:
        met = [(*one, _met(inventory, *one)) for one in every]
        if given and not any(count for *_, count in met):
            yield f"--nulls {nulls.value} had no effect: no entry has a null value that its serializer can't write"
        for operator, rules, count in met:
            if count and resolved.plan.lazy:
                yield (
                    f"of {count:,} null {noun(count, 'value')} in {rules.legacy.name} of {operator.label}, which the "
                    f"serializer of {type_name(rules.map_type.value)} can't write, those of keys that this run doesn't "
                    "move stay in their maps: a job that puts such a null into a MapState when it moves the key itself "
                    "may fail"
                )
            if count and nulls is not Nulls.DROP and rules.takes_blobs and rules.map_type.value not in OF_ONE_VALUE:
                fails = what_fails(resolved, operator, rules)
                but = fails or f"RocksDB of Flink 2.3 holds them. If the job moves to another backend, {_ON_HASH_MAP}"
                yield (
                    f"{count:,} null {noun(count, 'value')} of {rules.legacy.name} of {operator.label} "
                    f"{noun(count, 'becomes a row', 'become rows')}, which the serializer of "
                    f"{type_name(rules.map_type.value)} can't write: {but}"
                )


def what_fails(resolved: ResolvedPlan, operator: Operator, rules: Rules) -> str:
    """What a job may not be able to do with such rows of the new savepoint; empty if there is nothing."""
    if rules.map_type.value in OF_ONE_VALUE:
        return ""
    reasons = [
        *([] if operator.id in resolved.layout.native else [_ON_HASH_MAP]),
        *([] if resolved.source.metadata.version >= _OF_FLINK_2_3 else [_ON_OLD_ROCKSDB]),
    ]
    return ", and ".join(reasons)


def _met(inventory: Inventory, operator: Operator, rules: Rules) -> int:
    counts = inventory.met.get(StateRef(operator.hex_id, rules.legacy.name))
    return counts.unwritable_nulls if counts is not None else 0
