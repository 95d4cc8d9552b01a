"""The numbers in `_metadata` that say what follows, and their limits."""

from __future__ import annotations

MAGIC = 0x4960672D
MASTER_STATE_MAGIC = 0xC96B1696 - 2**32
VERSIONS = range(2, 7)
MAX_PARALLELISM_LIMIT = 32768

# Operator state in a file of its own, and in a segment of a merged file.
OPERATOR_STATE, MERGED_OPERATOR_STATE = 4, 17
# Flink's scopes of files: exclusive to a checkpoint, shared by several.
SCOPES = (0, 1)

# Files with their full address, and beside `_metadata`.
ABSOLUTE, RELATIVE = 2, 6

KEYED_SAVEPOINT = 7
# The types in full checkpoints, and in savepoints from before Flink 1.13; type 12 has an id behind it. They are also
# those of raw keyed state.
FULL_CHECKPOINT = (3, 12)
WITH_ID = 12
# Native savepoints and incremental checkpoints of RocksDB. Type 11 has a size and an id more than type 5.
INCREMENTAL = (5, 11)
CHANGELOG = (8, 9, 10, 13, 14)
