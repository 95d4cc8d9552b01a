package stateferry.flink.pojo;

/** A field becomes an array. */
public class Arrays {
    public long[] all;
    public long total;
}
