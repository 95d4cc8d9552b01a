"""When a job may be stopped for a cut-over, as a request says: the window, a sign, and what the rehearsal must show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import StrictBool, StrictStr

from stateferry.airflow.requests.request_parts import STOP, Duration, OptionalDuration, Request, Share, Text
from stateferry.airflow.requests.stop_window import Window, zone_of
from stateferry.runs.plan.options import Kind, Option


class WhenToStop(Request):
    """When the running job may be stopped, once the cut-over is approved."""

    window: Annotated[
        Text,
        Option(
            Kind.TEXT,
            "Window",
            "the time of day in which the job may be stopped, such as `02:00-04:00`. It isn't stopped if the predicted "
            "outage would end outside it",
            section=STOP,
            if_empty="at any time",
        ),
    ] = None
    time_zone: Annotated[
        StrictStr, Option(Kind.TEXT, "Time zone", "the zone of the window, such as Europe/Berlin", section=STOP)
    ] = "UTC"
    on_sign: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Wait for a sign",
            "after the approval, ask once more, and stop the job when a person gives the sign",
            section=STOP,
        ),
    ] = False
    rehearsal_max_age: Annotated[
        Duration,
        Option(
            Kind.DURATION,
            "Age of the rehearsal",
            "the job isn't stopped if its rehearsal is older",
            section=STOP,
        ),
    ] = "24h"
    may_differ: Annotated[
        Share,
        Option(
            Kind.SHARE,
            "May differ by",
            "how far entries, and the share that has expired, may differ from the rehearsal; a run that differs more "
            "goes back to the old job",
            section=STOP,
            if_empty="10 %",
        ),
    ] = None

    outage_limit: Annotated[
        OptionalDuration,
        Option(
            Kind.DURATION,
            "Outage at most",
            "how long the job may stand still, such as `5m`. If the new job has completed no checkpoint by then, the "
            "old job is started again by itself",
            section=STOP,
            if_empty="as long as it takes",
        ),
    ] = None

    @property
    def tolerance(self) -> float:
        """The share by which the final run may differ from its rehearsal."""
        return 0.1 if self.may_differ is None else self.may_differ

    def stop_window(self) -> Window | None:
        """The window; None if the job may be stopped at any time."""
        return None if self.window is None else Window.of(self.window, self.time_zone)

    def stop_problems(self, *, stops_job: bool) -> Iterator[str]:
        """What is wrong with these fields."""
        try:
            zone_of(self.time_zone)
        except ValueError as error:
            yield f"time_zone: {error}"
        else:
            try:
                self.stop_window()
            except ValueError as error:
                yield f"window: {error}"
        for name in ("window", "on_sign", "outage_limit"):
            if getattr(self, name) and not stops_job:
                yield (
                    f"{name}: given, but this run stops no job: choose mode 'cut over' with source 'flink' or "
                    f"'checkpoint' and a running job, or leave {name} empty"
                )
