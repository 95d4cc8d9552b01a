package stateferry.flink.pojo;

/** A field has got another class. */
public class Dates {
    public java.time.Instant at;
    public long total;
}
