"""What Kryo 2 wrote becomes what Flink 2 writes; what an upgrade without this has lost is put back."""
