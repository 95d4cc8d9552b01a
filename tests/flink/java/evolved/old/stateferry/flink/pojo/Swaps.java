package stateferry.flink.pojo;

/** What is in it becomes another class. */
public class Swaps {
    public Stays inner;
    public long total;
}
