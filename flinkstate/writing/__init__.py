"""Writes savepoints: state files from any process, and `_metadata` at the end."""
