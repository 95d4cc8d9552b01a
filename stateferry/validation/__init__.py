"""A staged savepoint held against its source."""
