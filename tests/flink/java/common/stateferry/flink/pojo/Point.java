package stateferry.flink.pojo;

/** A record, which Flink takes for a POJO. */
public record Point(long place, String name, Color color) {}
