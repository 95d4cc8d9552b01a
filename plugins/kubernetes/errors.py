"""Errors of the Kubernetes API and of the Flink Kubernetes Operator."""

from __future__ import annotations

from stateferry.airflow.flink.errors import FlinkError, FlinkJobError


class KubernetesError(FlinkError):
    """The API server refused what was asked, or can't be asked."""

    status: int | None = None
    """The status of its answer, if there was one."""


class KubernetesUnreachableError(KubernetesError):
    """The API server gave no answer in time; another try may get one."""


class ConflictError(KubernetesError):
    """The resource has changed since it was read."""


class ChangedByOthersError(KubernetesError):
    """Somebody else has changed a part of the spec that this run has set."""


class OperatorError(FlinkJobError):
    """The operator could not do what the spec says; its own words are in the message."""
