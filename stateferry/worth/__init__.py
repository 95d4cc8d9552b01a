"""Measures on the real RocksDB what a migration does to the time of an access."""
