package stateferry.flink.pojo;

/** An ordinary enum. */
public enum Color {
    RED,
    GREEN,
    BLUE
}
