"""Waits for a job that something else starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, AirflowSkipException

from stateferry.airflow.flink.errors import FlinkError, FlinkJobError, FlinkTimeoutError
from stateferry.airflow.flink.foreseen_failures import foreseen
from stateferry.airflow.flink.hook import FlinkHook
from stateferry.airflow.flink.jobs import Goal, look_for
from stateferry.airflow.flink.rest import FlinkRest
from stateferry.airflow.flink.triggers import Event, FlinkJobTrigger, is_deferrable, raise_for

if TYPE_CHECKING:
    from airflow.sdk import Context


class FlinkJobSensor(BaseSensorOperator):
    """Waits until a job is in one of the states.

    :param job: the job's name or id. For an id, the sensor fails when the job has ended in another state. For a name,
        it goes on waiting, because another job may get the name.
    :param states: any of Flink's: ``RUNNING``, ``FINISHED``, ``CANCELED``, ``FAILED``, ...
    :param checkpoint: the job must also have completed a checkpoint of its own.
    """

    template_fields: Sequence[str] = ("flink_conn_id", "job", "states")

    def __init__(
        self,
        *,
        job: str,
        states: Sequence[str] = ("RUNNING",),
        checkpoint: bool = False,
        flink_conn_id: str = FlinkHook.default_conn_name,
        deferrable: bool | None = None,
        poke_interval: float = 5,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.job = job
        self.states = states
        self.checkpoint = checkpoint
        self.flink_conn_id = flink_conn_id
        self.deferrable = deferrable

    @cached_property
    def hook(self) -> FlinkHook:
        """The hook of the sensor's connection."""
        return FlinkHook(self.flink_conn_id)

    def execute(self, context: Context) -> Any:
        if is_deferrable(self):
            self._defer(context)
        return super().execute(context)

    def _defer(self, context: Context) -> NoReturn:
        trigger = FlinkJobTrigger(
            states=list(self.states),
            checkpoint=self.checkpoint,
            flink_conn_id=self.flink_conn_id,
            job_id=self.job,
            may_appear=True,
            poll_interval=self.poke_interval,
            deadline=time.time() + self.timeout,
        )
        self.defer(trigger=trigger, method_name="execute_complete")

    def execute_complete(self, context: Context, event: Event) -> None:
        # It ends as in a worker. Airflow looks at soft_fail and never_fail after its own errors alone.
        try:
            raise_for(event)
        except FlinkJobError as error:
            raise foreseen(AirflowFailException(str(error))) from None
        except FlinkTimeoutError as error:
            raise foreseen(AirflowSensorTimeout(str(error))) from None
        except FlinkError as error:
            if self.never_fail:
                raise AirflowSkipException(str(error)) from None
            raise

    def poke(self, context: Context) -> bool:
        goal = Goal(frozenset(self.states), self.checkpoint)

        async def reached(rest: FlinkRest) -> bool:
            return await look_for(rest, self.job, goal) is not None

        try:
            return self.hook.run(reached)
        except FlinkJobError as error:
            raise foreseen(AirflowFailException(str(error))) from None
