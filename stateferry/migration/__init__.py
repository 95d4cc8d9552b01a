"""From blobs to rows: the rules of the migration, the inventory of a savepoint, and the tasks of a run."""
