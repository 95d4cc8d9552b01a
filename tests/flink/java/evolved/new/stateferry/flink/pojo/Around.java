package stateferry.flink.pojo;

/** What is in it changes. */
public class Around {
    public Grows inner;
    public long total;
}
