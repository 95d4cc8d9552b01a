"""An operator in the savepoint from before an upgrade: its states by Kryo, with which those of now are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from flinkstate.hashing.key_groups import KeyGroupRange
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, keyed_states
from flinkstate.metadata.metadata import Operator
from flinkstate.reading.entries import FirstRows
from flinkstate.reading.reader import Savepoint
from flinkstate.serializers.type_parts import kept_by_kryo
from stateferry.changes.upgrade.kryo_keys import key_type
from stateferry.changes.upgrade.kryo_rows import is_one_value
from stateferry.changes.upgrade.section_rows import expect_no_namespaces, own_copy, together


@dataclass(frozen=True, slots=True)
class StateBefore:
    """A state in the savepoint from before the upgrade, whose values Kryo 2 wrote; `ttl` is its time to live."""

    state: KeyedState
    ttl: int | None
    now: int

    @property
    def why_not(self) -> str | None:
        """Why nobody can tell what became of single values of the state; None if that can be told."""
        return None if is_one_value(self.state) else f"what Flink 2 reads of a {self.state.type_name} isn't known"


@dataclass(frozen=True, slots=True)
class BeforeUpgrade:
    """An operator in the savepoint from before the upgrade, with its states by Kryo.

    It can be pickled. With `restores` what was lost is put back, with `restores_keys` also in rows that are gone.
    `key_groups` are those that have rows.
    """

    savepoint: Savepoint
    operator: Operator
    states: Mapping[str, StateBefore]
    restores: bool = False
    restores_keys: bool = False
    key_groups: frozenset[int] = frozenset()

    def is_newer(self, state: KeyedState) -> bool:
        """Whether a state was first made after the upgrade, so that Kryo 5 wrote all of its values."""
        has_values = state.value is not None and bool(kept_by_kryo(state.value))
        return has_values and state.name not in self.states and key_type(state) is None

    def of_key_groups(self, key_groups: KeyGroupRange) -> BeforeUpgrade:
        """Returns what a task needs that reads these key groups."""
        subtasks = tuple(
            one
            for one in self.operator.subtasks
            if one.keyed is not None and not one.keyed.range.intersection(key_groups).is_empty
        )
        bare = Savepoint(self.savepoint.folder, replace(self.savepoint.metadata, operators=()))
        return replace(self, savepoint=bare, operator=replace(self.operator, subtasks=subtasks), key_groups=frozenset())

    def rows(self, key_group: int) -> dict[str, Section]:
        """Returns all rows of a key group, by state; raises an error if some can't be rows of their states.

        A canonical file has no checksums. If the number before the rows of a state were another one, or a namespace,
        rows that the upgraded job has misread would not be found, and what they lost would not be put back.
        """
        found: dict[str, list[Section]] = {}
        for file in self.savepoint.open_with(self.operator, KeyGroupRange(key_group, key_group)):
            states = keyed_states(file.header, file.name)
            wanted = {index for index, state in enumerate(states) if state.name in self.states}
            first_rows = FirstRows(file, states)
            for section in file.sections_of(key_group, wanted | first_rows.numbers):
                if not len(section):
                    continue
                first_rows.expect(section)
                if section.state in wanted:
                    state = states[section.state]
                    expect_no_namespaces(state, section)
                    found.setdefault(state.name, []).append(own_copy(section))
        return {name: together(sections) for name, sections in found.items()}
