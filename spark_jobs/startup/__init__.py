"""Makes a local Spark session start fast, and checks Java before it starts."""
