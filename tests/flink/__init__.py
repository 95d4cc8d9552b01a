"""Real Flink for the tests: jars, a JVM that takes commands, scenarios, and the savepoints made with them."""
