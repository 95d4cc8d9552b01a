"""Single values: read from bytes, written to bytes, and written as JSON."""
