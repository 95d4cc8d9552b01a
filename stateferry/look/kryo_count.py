"""What the values of a state by Kryo are, while a savepoint is surveyed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from flinkstate.basics.array_types import Positions
from flinkstate.errors import DamagedError, RefusedError
from flinkstate.keyed.keyed_file import Section
from flinkstate.keyed.state import KeyedState, StateKind
from flinkstate.kryo.class_finder import ClassFinder, map_type_of
from flinkstate.kryo.found_classes import FoundClasses
from flinkstate.serializers.types import KryoMapType, KryoType

_TIMESTAMP = 8


def is_kryo(state: KeyedState) -> bool:
    """Whether the state is a ValueState by Kryo, whose values may be maps."""
    return state.kind is StateKind.VALUE and isinstance(state.value, KryoType)


@dataclass(slots=True)
class KryoCount:
    """Finds the classes in a state's values, section by section, as long as all of them can be read."""

    state: KeyedState
    _finder: ClassFinder | None = field(init=False, default=None)
    _why_not: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        assert isinstance(self.state.value, KryoType)
        try:
            self._finder = ClassFinder(self.state.value)
        except RefusedError as error:
            self._why_not = str(error)

    def add(self, section: Section) -> Positions:
        """Reads a section; returns how many entries each map has, 0 if that isn't known."""
        if self._finder is not None and self._why_not is None:
            starts = section.value_starts + (_TIMESTAMP if self.state.ttl else 0)
            try:
                with section.locating():
                    return self._finder.add(section.data, starts, section.ends)
            except (DamagedError, RefusedError) as error:
                # It may be no map, and then nobody reads it.
                self._why_not = str(error)
        return np.zeros(len(section), np.int64)

    def result(self) -> tuple[KeyedState, FoundClasses | None, str | None]:
        """Returns the state, with the type of its maps if all have one, the classes, and else why it hasn't."""
        if self._finder is None or self._why_not is not None:
            return self.state, None, self._why_not
        found, kryo = self._finder.found(), self.state.value
        assert isinstance(kryo, KryoType)
        try:
            type_ = KryoMapType(kryo.class_name, kryo.reason, kryo, map_type_of(found))
        except RefusedError as error:
            return self.state, found, str(error)
        return replace(self.state, value=type_), found, None
