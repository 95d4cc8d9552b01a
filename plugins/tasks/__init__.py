"""The tasks of the DAGs."""
