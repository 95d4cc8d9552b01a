"""Failures that were foreseen: the task's log has their message, without Python's stack, which says nothing more."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowFailException
from flink_provider.foreseen import foreseen

__all__ = ["foreseen", "refusal"]


def refusal(text: str) -> AirflowFailException:
    """A failure for good with this message."""
    return foreseen(AirflowFailException(text))
