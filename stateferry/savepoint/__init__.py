"""Flink's canonical savepoints: their metadata and state files, and how they are read and written."""
