"""What a savepoint will do in another Flink, by what real Flink was seen to do with savepoints like it."""
