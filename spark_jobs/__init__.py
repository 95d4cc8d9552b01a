"""The Spark side of Stateferry: the savepoint data source and one module per step of a run."""
