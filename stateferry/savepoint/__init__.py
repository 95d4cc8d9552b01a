"""Flink's canonical savepoints: their metadata, their state files, and the ways in and out of them."""
