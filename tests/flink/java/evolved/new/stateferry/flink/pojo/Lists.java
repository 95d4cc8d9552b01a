package stateferry.flink.pojo;

/** A field has got another class, by Kryo. */
public class Lists {
    public java.util.LinkedList<String> all;
    public long total;
}
