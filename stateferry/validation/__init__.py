"""Compares a staged savepoint with its source."""
