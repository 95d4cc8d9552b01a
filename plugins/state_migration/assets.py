"""Assets that other DAGs may follow; each event has job, run and publication."""

from __future__ import annotations

from airflow.sdk import Asset, AssetAlias

PUBLISHED_SAVEPOINT = Asset(name="stateferry_published_savepoint", uri="stateferry://published/savepoint")
STATE_TABLES = Asset(name="stateferry_state_tables", uri="stateferry://tables")
# A rehearsal moves the tables only if its savepoint is the newest.
TABLES_IF_MOVED = AssetAlias("stateferry_tables_if_moved")
