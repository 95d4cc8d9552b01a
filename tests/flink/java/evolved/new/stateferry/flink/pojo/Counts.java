package stateferry.flink.pojo;

/** An enum. */
public enum Counts {
    ONE,
    TWO
}
