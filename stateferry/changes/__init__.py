"""How state is changed: blobs become rows, rows become blobs, what has expired goes, key groups are exchanged."""
