package stateferry.flink.pojo;

/** A class that has fields of itself. */
public class Links {
    public Links next;
    public Links[] all;
    public String name;
    public long total;
}
