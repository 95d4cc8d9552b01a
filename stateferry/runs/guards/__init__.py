"""Holds a plan against what the snapshot has counted, and stops what would lose state."""
