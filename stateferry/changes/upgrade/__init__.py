"""What Kryo 2 wrote becomes what Flink 2 writes; what an earlier upgrade has lost is put back."""
