package stateferry.flink.pojo;

/** It loses a field and its class. */
public class Sheds {
    public Gone gone;
    public long total;
}
