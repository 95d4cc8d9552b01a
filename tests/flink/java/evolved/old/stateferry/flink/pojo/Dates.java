package stateferry.flink.pojo;

/** A field gets another class. */
public class Dates {
    public java.util.Date at;
    public long total;
}
