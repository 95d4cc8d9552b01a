"""The checkpoints that a job has completed, as Flink's REST API lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stateferry.airflow.flink.jobs import find_job
from stateferry.airflow.flink.rest import FlinkRest

# Flink gives Java's largest number for a job without checkpoints.
_NEVER = 2**63 - 1


@dataclass(frozen=True)
class Checkpoint:
    """A completed checkpoint whose files are still there; the time is in milliseconds."""

    id: int
    location: str
    completed_at: int


async def completed_checkpoints(rest: FlinkRest, job: str) -> list[Checkpoint]:
    """The completed checkpoints of the job with this name or id, the newest first.

    Flink remembers a few of them. Those that it has discarded, because newer ones replace them, are left out, as are
    those that aren't in files, and savepoints.
    """
    found = await find_job(rest, job)
    answer = await rest.get(f"/jobs/{found.id}/checkpoints")
    listed = [*answer["history"], *([answer["latest"]["completed"]] if answer["latest"]["completed"] else [])]
    checkpoints = {one["id"]: _checkpoint(one) for one in listed if _is_there(one)}
    return [checkpoints[number] for number in sorted(checkpoints, reverse=True)]


async def checkpoint_interval(rest: FlinkRest, job_id: str) -> int | None:
    """The milliseconds between two checkpoints of the job; None if it takes none by itself."""
    interval = int((await rest.get(f"/jobs/{job_id}/checkpoints/config"))["interval"])
    return interval if 0 < interval < _NEVER else None


def _is_there(one: dict[str, Any]) -> bool:
    in_files = "/" in (one.get("external_path") or "")
    return one["status"] == "COMPLETED" and not one["is_savepoint"] and not one.get("discarded") and in_files


def _checkpoint(one: dict[str, Any]) -> Checkpoint:
    return Checkpoint(one["id"], one["external_path"], one["latest_ack_timestamp"])
