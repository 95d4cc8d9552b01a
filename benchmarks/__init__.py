"""How fast the kernels and the paths around them are; `python -m benchmarks` prints it."""
