"""When a job may be stopped for a cut-over, as a request says: the window, a sign, and what the rehearsal must show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import StrictBool, StrictStr

from stateferry.airflow.requests.request_parts import STOP, Duration, OptionalDuration, Request, Share, Text
from stateferry.airflow.requests.stop_window import Window, zone_of
from stateferry.runs.plan.option_marks import Kind, Option


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
            "a rehearsal that will be older when the job may be stopped is made again before",
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

    catch_up: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Catch up",
            "with format native: while the job runs, convert what has changed since the rehearsal, again and again, so "
            "that what is left for the outage is little; if that isn't faster, everything is converted after the stop",
            section=STOP,
        ),
    ] = True
    settle: Annotated[
        Duration,
        Option(
            Kind.DURATION,
            "Enough caught up",
            "no other catch-up is made after one that took no longer than this",
            section=STOP,
        ),
    ] = "10s"
    stop_with: Annotated[
        Literal["savepoint", "checkpoint"],
        Option(
            Kind.CHOICE,
            "Stop with",
            "`savepoint`: Flink writes all state. `checkpoint`: Flink writes what has changed, if the job's "
            "checkpoints are incremental, and the job is cancelled then; with source `checkpoint`",
            section=STOP,
        ),
    ] = "savepoint"
    may_repeat: Annotated[
        StrictBool,
        Option(
            Kind.SWITCH,
            "Output may be repeated",
            "a job that is stopped with a checkpoint processes again what came between that and its end. A sink that "
            "is at least once shows it twice, one that is exactly once doesn't: say that you know",
            section=STOP,
        ),
    ] = False
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
    outage_alert: Annotated[
        OptionalDuration,
        Option(
            Kind.DURATION,
            "Tell if it is late by",
            "a notice goes out if the job stands still so much longer than was predicted, such as `1m`",
            section=STOP,
            if_empty="nobody is told",
        ),
    ] = None

    @property
    def tolerance(self) -> float:
        """The share by which the final run may differ from its rehearsal."""
        return 0.1 if self.may_differ is None else self.may_differ

    def stop_window(self) -> Window | None:
        """The window; None if the job may be stopped at any time."""
        return None if self.window is None else Window.of(self.window, self.time_zone)

    @property
    def stops_with_checkpoint(self) -> bool:
        """Whether the job is cancelled after a checkpoint."""
        return self.stop_with == "checkpoint"

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
        if self.stops_with_checkpoint and not self.may_repeat:
            yield (
                "stop_with: 'checkpoint' has the next job process again what came between the checkpoint and the end "
                "of the job, and a sink that is at least once shows it twice: turn on may_repeat to say that you know"
            )
        if self.may_repeat and not self.stops_with_checkpoint:
            yield "may_repeat: on, and only stop_with 'checkpoint' needs it: turn it off"
        for name in ("window", "on_sign", "outage_limit", "outage_alert", "may_repeat"):
            if getattr(self, name) and not stops_job:
                yield (
                    f"{name}: given, but this run stops no job: choose mode 'cut over' with source 'flink' or "
                    f"'checkpoint' and a running job, or leave {name} empty"
                )
