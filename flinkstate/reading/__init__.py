"""Reads savepoints: operators and states, as Arrow, as single entries, or as bytes."""
