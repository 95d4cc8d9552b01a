"""Stateferry on Spark: the steps' workers, a job for each step, and the data source for savepoints."""
