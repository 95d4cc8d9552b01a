package stateferry.flink.pojo;

/** An enum that loses a constant. */
public enum Tone {
    SOFT,
    LOUD
}
