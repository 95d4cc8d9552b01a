package stateferry.flink.pojo;

/** What is in it has become another class. */
public class Swaps {
    public Grows inner;
    public long total;
}
