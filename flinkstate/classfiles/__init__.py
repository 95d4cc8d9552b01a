"""Java's class files: what fields the classes of a job have, without a JVM."""
