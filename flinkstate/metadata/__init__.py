"""`_metadata`: what a savepoint consists of, and where the state of each subtask is."""
