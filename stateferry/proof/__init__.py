"""Compares a staged savepoint with its source, from the bytes of both and nothing else."""
