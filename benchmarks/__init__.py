"""Measures how fast kernels, steps and whole runs are; `python -m benchmarks` prints the results."""
