"""How the new job declares the states of an operator, by `--declared` and by its jar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flinkstate.classfiles.job_classes import JobClasses
from flinkstate.metadata.metadata import Operator

# Where `--declared` has the name of a state, or behind it. No one calls a state or a field so.
KEY = "(key)"


@dataclass(frozen=True, slots=True)
class Declarations:
    """What is known, and the problems: what isn't known, or can't be.

    `has_pojos`: the savepoint has POJOs by Flink's own serializer, so the job doesn't have Kryo write all of them.
    """

    operator: Operator
    # By state, or by a key or field in it, as in `main/tags.f0=List<String>`.
    texts: Mapping[str, str]
    job: JobClasses | None
    problems: list[str] = field(default_factory=list)
    has_pojos: bool = False

    def where(self, path: str) -> str:
        what = "the key" if path == KEY else f"state {path}"
        return f"{what} of operator {self.operator.label}"
