"""What the tasks of one DAG run share."""
