"""One subtask's keyed state, as its files have it: canonical savepoints, full checkpoints and RocksDB's own files."""
