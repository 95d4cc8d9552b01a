"""Many values at once, as Arrow columns."""
