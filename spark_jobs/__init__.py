"""The Spark side of Stateferry: the steps' workers, a job for each step, and the savepoint data source."""
