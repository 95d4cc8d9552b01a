package stateferry.flink.pojo;

/** An enum that gets a constant, and another order. */
public enum Shade {
    GREEN,
    RED,
    BLUE,
    GREY
}
