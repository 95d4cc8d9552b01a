"""Flink's serializers: their types, the snapshots that describe them, and walks over the values they write."""
