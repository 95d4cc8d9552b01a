"""Decodes many values at once into Arrow columns."""
