"""What gives way to something older, and until when: small states at random, held against each later time."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from stateferry.changes.operator_changes import OperatorChanges
from stateferry.changes.rules import Contradiction, Rules
from stateferry.inventory.inventory import Inventory, inventory_tasks, total
from tests.support.legacy_states import FLAG, LEGACY, NEW, LegacyState

NOW, TTL = 1000, 20
RULES = [Contradiction.ROWS, Contradiction.BLOB]


def drawn(chosen: random.Random) -> LegacyState:
    """Some keys with blobs, rows and flags; each value is another one, and some have expired."""
    numbers = iter(range(1000))

    def stamp() -> int:
        return NOW - chosen.randrange(TTL + 4)

    keys = [f"key-{number}" for number in range(6)]
    blobs = {key: ({user: next(numbers) for user in chosen.sample("abc", 2)}, stamp()) for key in keys}
    rows = {key: {user: (next(numbers), stamp()) for user in chosen.sample("abc", 2)} for key in keys}
    some = [{key for key in keys if chosen.random() < 0.6} for _ in range(3)]
    # A flag without time to live has no timestamp, and never expires.
    flag_ttl = chosen.random() < 0.8
    return LegacyState(
        {key: blob for key, blob in blobs.items() if key in some[0]},
        {key: of_key for key, of_key in rows.items() if key in some[1]},
        {key: stamp() if flag_ttl else 10 * NOW for key in some[2]},
        ttl=True,
        flag_ttl=flag_ttl,
    )


def counted(state: LegacyState, folder: Path, rules: Rules) -> Inventory:
    source = state.write(str(folder))
    (operator,) = source.keyed_operators()
    changes = replace(OperatorChanges.none(source, operator), rules=(rules,))
    return total(task.take() for task in inventory_tasks(source, changes, target_bytes=1 << 20))


def rules_of(state: LegacyState, folder: Path, contradiction: Contradiction, *, keep_expired: bool) -> Rules:
    source = state.write(str(folder))
    (operator,) = source.keyed_operators()
    legacy = next(one for one in source.keyed_states(operator) if one.name == LEGACY)
    return Rules(legacy, NEW, FLAG, TTL, NOW, keep_expired=keep_expired, on_contradiction=contradiction)


@pytest.mark.parametrize("keep_expired", [False, True])
@pytest.mark.parametrize("contradiction", RULES)
def test_the_first_expiry_is_when_something_would_be_lost(
    contradiction: Contradiction, keep_expired: bool, tmp_path: Path
) -> None:
    chosen, found = random.Random(1), set()
    for number in range(40):
        state = drawn(chosen)
        rules = rules_of(state, tmp_path / f"{number}", contradiction, keep_expired=keep_expired)
        seen = replace(rules, keep_expired=False)
        made = state.migrated(rules).items()
        lost = {now: state.migrated(replace(seen, now=now)).items() - made for now in range(NOW, NOW + TTL + 1)}
        first = next((now for now, entries in lost.items() if entries), None)
        inventory = counted(state, tmp_path / f"{number}-again", rules)
        (met,) = inventory.met.values()
        (expiry,) = inventory.first_expiries.values() or (None,)
        assert met.outlived == len(lost[NOW])
        assert expiry == first if not lost[NOW] else expiry is not None and expiry <= NOW
        found.add((first, bool(lost[NOW])))
    assert len(found) > 5
