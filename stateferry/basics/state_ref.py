"""Which state of which operator is meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class StateRef(NamedTuple):
    """A state by the id of its operator, in hexadecimal, and its name; as `text` in files."""

    operator: str
    state: str

    @classmethod
    def of_text(cls, text: str) -> StateRef:
        operator, _, state = text.partition("/")
        return cls(operator, state)

    @property
    def text(self) -> str:
        return f"{self.operator}/{self.state}"

    def shown(self, labels: Mapping[str, str]) -> str:
        """The same for people; `labels` are by the ids of operators."""
        return f"{labels[self.operator]}/{self.state}"
