"""What a savepoint holds, counted before anything is written."""
