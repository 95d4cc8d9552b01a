"""Whether a run cuts over, rehearses or only looks into a savepoint, and what it is asked then."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Literal

from pydantic import StrictBool

from stateferry.airflow.requests.request_parts import Request
from stateferry.runs.plan.option_marks import RUN, Kind, Option


class Mode(Request):
    """The mode of a run."""

    mode: Annotated[
        Literal["cut over", "rehearse", "check only"],
        Option(
            Kind.CHOICE,
            "Mode",
            "`rehearse` does everything but ask for approval, publish and start the new job. `check only` looks into "
            "the savepoint and says what is in it, what can be migrated, and how long that would take; it needs no "
            "names of operator and states",
            section=RUN,
        ),
    ] = "cut over"
    read_all: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Read every value",
            "in mode `check only`, if it says for which Flink: the verdict is on every value by Kryo, not on a sample",
            row=170,
            section=RUN,
        ),
    ] = False

    @property
    def rehearses(self) -> bool:
        """Whether nothing is published."""
        return self.mode != "cut over"

    @property
    def checks_only(self) -> bool:
        """Whether the savepoint is only looked into."""
        return self.mode == "check only"

    def mode_problems(self, given: Collection[str]) -> Iterator[str]:
        """What is wrong with these fields, and with other options that are given for a verdict."""
        if self.read_all and not self.checks_only:
            yield "read_all: on, but a run reads every value: choose mode 'check only', or turn it off"
        of_verdict = {"before", "all_by_kryo_5", *(["read_all"] if self.read_all else [])}
        for name in sorted(of_verdict & {"read_all", *given}) if self.checks_only and "to" not in given else ():
            yield f"{name}: given, but not for which Flink the verdict is: give to, or leave {name} out"
