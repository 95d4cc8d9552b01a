"""The tables as Iceberg has them: columns, commits, files, the ledger of keys, cleaning."""
