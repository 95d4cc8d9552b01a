package stateferry.flink.pojo;

/** A list. */
public class Piles extends java.util.ArrayList<String> {
    public long total;
}
