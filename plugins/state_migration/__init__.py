"""What the DAGs of a migration are made of."""
