"""What the source says that the new savepoint must contain."""
