"""The queryable picture of migrated state: Iceberg tables that follow at the cost of what changed."""
