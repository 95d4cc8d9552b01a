"""Java's hash codes of keys, from their bytes."""
