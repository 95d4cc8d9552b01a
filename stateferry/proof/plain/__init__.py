"""Reads a sample of keys a second time, by plain code that shares nothing with the conversion."""
