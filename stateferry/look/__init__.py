"""Looks into a savepoint without a run: what it holds, how old it is, whether a migration is worth it."""
