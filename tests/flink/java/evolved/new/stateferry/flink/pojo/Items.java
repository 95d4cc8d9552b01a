package stateferry.flink.pojo;

/** The elements of a list have another type. */
public class Items {
    public java.util.List<Long> all;
    public long total;
}
