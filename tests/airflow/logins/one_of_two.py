"""An auth manager for a test of the pages: the simple one, but the user ada may read one DAG alone."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

READABLE = {"ada": "state_migration_orders"}


class OneOfTwo(SimpleAuthManager):
    """Airflow loads it by its name."""

    def is_authorized_dag(self, *, user: Any, details: Any = None, **rest: Any) -> bool:
        """Whether the user may do something with this DAG."""
        if user.username in READABLE and (details is None or details.id != READABLE[user.username]):
            return False
        return super().is_authorized_dag(user=user, details=details, **rest)
