"""From blobs to rows: who wins, what is there, and the new savepoint in pieces of work."""
