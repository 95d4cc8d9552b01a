"""What every part uses and what knows nothing of Flink's state: durations, text, exit codes, databases."""
