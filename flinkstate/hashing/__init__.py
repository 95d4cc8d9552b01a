"""Java's hash codes of keys, computed from their bytes."""
