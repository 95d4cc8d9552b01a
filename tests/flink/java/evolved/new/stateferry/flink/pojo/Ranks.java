package stateferry.flink.pojo;

/** An array has another class. */
public class Ranks {
    public Boxes[] all;
    public long total;
}
