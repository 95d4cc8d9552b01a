package stateferry.flink.pojo;

/** A record with the fields of the class. */
public record Freezes(String name, long total) {}
