package stateferry.flink.pojo;

/** A field has become an array. */
public class Arrays {
    public int[] all;
    public long total;
}
