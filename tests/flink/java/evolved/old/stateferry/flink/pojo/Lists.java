package stateferry.flink.pojo;

/** A field gets another class, by Kryo. */
public class Lists {
    public java.util.ArrayList<String> all;
    public long total;
}
