package stateferry.flink.pojo;

/** An array gets another class. */
public class Ranks {
    public Stays[] all;
    public long total;
}
