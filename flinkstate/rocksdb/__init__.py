"""Reads what RocksDB wrote: the files of a database as they lie in Flink's native savepoints and its checkpoints.

It knows nothing of Flink but that keys begin with one or two bytes of key group.
"""
