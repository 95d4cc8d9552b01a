"""Reads and writes the state of Apache Flink's jobs: savepoints, checkpoints, types, key groups, RocksDB's files."""
