"""From blobs to rows: the rules of the migration, the inventory of a savepoint, and the pieces of work of a run."""
