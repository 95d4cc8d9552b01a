"""The Iceberg tables that follow migrated state, so that it can be queried; a run adds only what has changed."""
